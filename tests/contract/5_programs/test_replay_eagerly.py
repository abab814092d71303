"""The contract on `replay_eagerly`: the effect of a replay, in the calling thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost


@ost.task
def double(src: ost.Read, dst: ost.Write):
    dst[:] = 2 * src


@ost.task
def add(x: ost.ReadWrite, step, by):
    x += step * by


@ost.task
def fail_in(x: ost.ReadWrite, step, when):
    if step == when:
        raise KeyError("no")
    x += 1


def program_and_arrays():
    a, b, x = np.ones(2), np.zeros(2), np.zeros(1)
    ring = ost.ring(a, b)
    with ost.capture() as graph:
        double(ring[0], ring[1])
        add(x, ost.step, by=ost.param("by", 1.0))
        graph.copy(a, b[::-1], reduce="+")
        graph.fill(a[:1], ost.param("by", 1.0))
    return graph, (a, b, x)


def test_it_has_the_effect_of_a_replay_and_both_mix():
    graph, eager = program_and_arrays()
    other, wanted = program_and_arrays()
    with graph.compile() as program, other.compile() as oracle:
        assert program.replay_eagerly(3, by=2.0) == 3
        assert program.step == 3
        program.replay(2)
        assert program.replay_eagerly(2, params={"by": 3.0}) == 2
        oracle.replay(3, by=2.0)
        oracle.replay(2)
        oracle.replay(2, by=3.0)
    for got, want in zip(eager, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_tasks_run_in_the_calling_thread_and_raise_as_they_are():
    threads = []

    @ost.task(releases_gil=True)
    def note(x: ost.ReadWrite):
        threads.append(threading.get_ident())

    x = np.zeros(1)
    with ost.capture() as graph:
        note(x)
        fail_in(x, ost.step, 1)
        note(x)
    with graph.compile() as program:
        with pytest.raises(KeyError, match="no") as caught:
            program.replay_eagerly(5)
        assert caught.value.__notes__[0].startswith("in step 1: 'fail_in', called at ")
        assert program.step == 2
    assert threads == [threading.get_ident()] * 3


def test_until_ends_it():
    x, flag = np.zeros(1), np.zeros(1)

    @ost.task
    def look(x: ost.ReadWrite, flag: ost.Write):
        x += 1
        flag[0] = x[0] == 3

    with ost.capture() as graph:
        look(x, flag)
        ost.until(flag)
    with graph.compile() as program:
        assert program.replay_eagerly(100) == 3
        assert program.step == 3


def test_barriers_and_reservations_are_used():
    barrier, reservation = ost.Barrier(1, reduce="+"), ost.Reservation()
    graph = ost.Graph()
    held = graph.acquire(reservation)
    done = graph.arrive(barrier, value=2, after=held)
    graph.wait(barrier, after=done)
    graph.release(reservation)
    with graph.compile() as program:
        program.replay(1)
        program.replay_eagerly(2)
        program.replay(1)
    assert barrier.phase == 4
    assert barrier.result(2) == 2
    assert reservation.acquire().done


def test_what_is_held_is_released_when_a_task_fails():
    reservation, x = ost.Reservation(), np.zeros(1)
    graph = ost.Graph()
    held = graph.acquire(reservation)
    graph.task(fail_in, x, 0, 0, after=held)
    graph.release(reservation)
    with graph.compile() as program, pytest.raises(KeyError):
        program.replay_eagerly()
    assert reservation.acquire().done


def test_preconditions_cannot_be_given():
    graph = ost.Graph()
    graph.task(double, np.ones(1), np.zeros(1), after=graph.precondition("go"))
    with graph.compile() as program, pytest.raises(ValueError, match="precondition 'go' is not given"):
        program.replay_eagerly()


def test_a_program_of_one_run_has_one():
    graph = ost.Graph()
    graph.fill(np.zeros(1), 1.0)
    with graph.compile(runs="once") as program:
        program.replay_eagerly()
        with pytest.raises(RuntimeError, match="has been run"):
            program.replay()


def test_wrong_arguments_and_places():
    graph, _ = program_and_arrays()
    with graph.compile() as program:
        with pytest.raises(TypeError, match="steps must be an integer"):
            program.replay_eagerly(1.5)
        with pytest.raises(TypeError, match="no parameter 'rate'"):
            program.replay_eagerly(rate=1)

        @ost.task
        def inside(x: ost.ReadWrite):
            program.replay_eagerly()

        with ost.capture() as other:
            inside(np.zeros(1))
        with other.compile() as outer, pytest.raises(ost.TaskError, match="ContractError"):
            outer.replay()
    with pytest.raises(RuntimeError, match="closed"):
        program.replay_eagerly()


def test_rebound_arrays_are_used():
    x, y = np.zeros(1), np.full(1, 10.0)
    with ost.capture() as graph:
        add(x, 1, 1.0)
    with graph.compile() as program:
        program.rebind([(x, y)])
        program.replay_eagerly()
    assert (x[0], y[0]) == (0, 11)


def test_init_of_the_machine_is_called_in_the_calling_thread_first():
    here = threading.local()

    @ost.task
    def use(x: ost.ReadWrite):
        x += here.value

    def init():
        here.value = 2

    x, graph = np.zeros(1), ost.Graph()
    graph.task(use, x)
    with ost.Machine(cpus=1, init=init) as machine, graph.compile(machine) as program:
        assert program.replay_eagerly() == 1
    assert x == 2
