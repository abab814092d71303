"""The contract on state: step numbers, the current array of a ring, resetting, and replays with a limit of time."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import ostinato as ost

RUNS = ["pipelined", "serial", "concurrent"]


@ost.task
def double(src: ost.Read, dst: ost.Write):
    dst[:] = 2 * src


@ost.task
def note(log: ost.ReadWrite, step):
    log.append(step)


@ost.task
def nap(x: ost.ReadWrite):
    time.sleep(0.005)
    x += 1


def doubling():
    a, b = np.ones(2), np.zeros(2)
    ring = ost.ring(a, b)
    with ost.capture() as graph:
        double(ring[0], ring[1])
    return graph, ring, a, b


@pytest.mark.parametrize("runs", RUNS)
def test_step_is_the_number_of_the_next_step(runs):
    graph, *_ = doubling()
    with graph.compile(runs=runs) as program:
        assert program.step == 0
        program.replay(3)
        assert program.step == 3
        program.submit(2).result()
        assert program.step == 5


def test_step_counts_what_until_let_run():
    flag = np.zeros(1)
    count = np.zeros(1)

    @ost.task
    def look(count: ost.ReadWrite, flag: ost.Write):
        count += 1
        flag[0] = count[0] == 4

    with ost.capture() as graph:
        look(count, flag)
        ost.until(flag)
    with graph.compile() as program:
        assert program.replay(100) == 4
        assert program.step == 4


@pytest.mark.parametrize("runs", RUNS)
def test_current_is_the_newest_array_of_a_ring(runs):
    graph, ring, a, b = doubling()
    with graph.compile(runs=runs) as program:
        assert program.current(ring) is a
        program.replay(3)
        assert program.current(ring) is b
        assert b.tolist() == [8, 8]


def test_current_follows_rebinding():
    graph, ring, a, b = doubling()
    c = np.full(2, 5.0)
    with graph.compile() as program:
        program.rebind([(a, c)])
        assert program.current(ring) is c
        program.replay(1)
        assert program.current(ring) is b
        assert b.tolist() == [10, 10]


def test_current_follows_the_rebinding_of_a_base():
    base, other = np.ones((2, 3)), np.full((2, 3), 7.0)
    ring = ost.ring(base[0], base[1])
    with ost.capture() as graph:
        double(ring[0], ring[1])
    with graph.compile() as program:
        program.rebind([(base, other)])
        program.replay(1)
        assert program.current(ring).tolist() == [14, 14, 14]
        assert np.shares_memory(program.current(ring), other)


def test_current_of_what_is_no_ring_of_the_program():
    graph, _, a, b = doubling()
    with graph.compile() as program:
        with pytest.raises(TypeError, match="ring must be a ring"):
            program.current(a)
        with pytest.raises(ValueError, match="that the program uses"):
            program.current(ost.ring(a, b))


@pytest.mark.parametrize("runs", RUNS)
def test_reset_numbers_steps_anew(runs):
    log = []
    with ost.capture() as graph:
        note(log, ost.step)
    with graph.compile(runs=runs) as program:
        program.replay(2)
        program.reset()
        program.replay(2)
        program.reset(7)
        assert program.step == 7
        program.submit(2).result()
    assert log == [0, 1, 0, 1, 7, 8]


@pytest.mark.parametrize("cpus", [1, 2])
def test_reset_turns_rings_and_until_with_it(cpus):
    graph, ring, a, b = doubling()
    with ost.Machine(cpus=cpus) as machine, graph.compile(machine) as program:
        program.replay(1)
        program.reset()
        a[:] = 3
        program.replay(1)  # from a to b once more
        assert b.tolist() == [6, 6]
        assert program.current(ring) is b


def test_reset_of_a_retuned_program():
    log = []
    with ost.capture() as graph:
        note(log, ost.step)
    with graph.compile() as program:
        program.retune(60)
        program.reset(3)
        program.replay(2)
    assert log == [*range(60), 3, 4]


def test_reset_while_a_run_is_in_flight():
    start = ost.UserEvent()
    graph, *_ = doubling()
    with graph.compile() as program:
        run = program.submit(1, after=start)
        with pytest.raises(RuntimeError, match="in flight"):
            program.reset()
        start.trigger()
        run.result()
        program.reset()


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [(2.5, TypeError, "step must be an integer, got 2.5"), (-1, ValueError, "step must be at least 0, got -1")],
)
def test_reset_to_what_is_no_step(step, error, message):
    graph, *_ = doubling()
    with graph.compile() as program, pytest.raises(error, match=message):
        program.reset(step)


def test_reset_of_a_program_with_a_barrier():
    barrier = ost.Barrier(1)
    graph = ost.Graph()
    graph.arrive(barrier)
    with graph.compile() as program:
        program.replay(2)
        with pytest.raises(RuntimeError, match="phases go by step numbers"):
            program.reset()


def test_reset_with_a_barrier_as_parameter():
    barrier = ost.Barrier(1)
    graph = ost.Graph()
    graph.arrive(graph.param("barrier"))
    with graph.compile() as program:
        program.replay(2, barrier=barrier)
        program.reset()
        program.replay(2, barrier=barrier)
    assert barrier.phase == 4


def test_reset_after_close():
    graph, *_ = doubling()
    program = graph.compile()
    program.close()
    with pytest.raises(RuntimeError, match="closed"):
        program.reset()


@pytest.mark.parametrize("progress", [False, True])
def test_a_replay_that_takes_too_long_is_cancelled(progress):
    x = np.zeros(1)
    with ost.capture() as graph:
        nap(x)
    with graph.compile() as program:
        with pytest.raises(TimeoutError, match=r"did not end within 0\.05 s and was cancelled after \d+ steps"):
            program.replay(10**6, timeout=0.05, progress=progress)
        assert x[0] == program.step  # a whole number of steps, and none is under way
        assert program.replay(2) == 2


def test_a_replay_that_ends_in_time():
    x = np.zeros(1)
    with ost.capture() as graph:
        nap(x)
    with graph.compile() as program:
        assert program.replay(2, timeout=60) == 2
        assert program.replay(0, timeout=60) == 0


def test_a_failure_before_the_limit_is_raised_as_it_is():
    @ost.task
    def fail(x: ost.ReadWrite):
        raise ValueError("no")

    with ost.capture() as graph:
        fail(np.zeros(1))
    with graph.compile() as program, pytest.raises(ost.TaskError, match="ValueError: no"):
        program.replay(1, timeout=60)


@pytest.mark.parametrize("timeout", ["soon", float("nan")])
def test_a_limit_that_is_no_number_of_seconds(timeout):
    graph, *_ = doubling()
    with graph.compile() as program:
        with pytest.raises((TypeError, ValueError)):
            program.replay(1, timeout=timeout)
        assert program.step == 0


def test_a_replay_with_a_limit_inside_a_task():
    graph, *_ = doubling()
    with graph.compile() as program:

        @ost.task
        def replay(x: ost.ReadWrite):
            program.replay(1, timeout=1)

        with ost.capture() as outer:
            replay(np.zeros(1))
        with outer.compile() as other, pytest.raises(ost.TaskError, match="ContractError"):
            other.replay()


def test_step_may_be_asked_from_any_thread_while_programs_run():
    x = np.zeros(1)
    with ost.capture() as graph:
        nap(x)
    with graph.compile() as program:
        run = program.submit(20)
        seen = []
        watcher = threading.Thread(target=lambda: [seen.append(program.step) or time.sleep(0.002) for _ in range(50)])
        watcher.start()
        run.result()
        watcher.join()
        assert seen == sorted(seen)
        assert program.step == 20
