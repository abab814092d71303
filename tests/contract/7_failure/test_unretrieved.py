"""The contract on failures that nobody has retrieved: raised at the end of a block, or logged."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import ostinato as ost

# Leaving the block is what raises.
# ruff: noqa: PT012


@ost.task
def fail(x: ost.ReadWrite, message="no"):
    raise ValueError(message)


@ost.task
def add(x: ost.ReadWrite):
    x += 1


def failing(message="no"):
    graph = ost.Graph()
    graph.task(fail, np.zeros(1), message)
    return graph


def wait_until(done, seconds=60):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.005)


@pytest.fixture
def machine():
    machine = ost.Machine(cpus=2)
    yield machine
    machine.close()


@pytest.mark.parametrize("held", [False, True])
def test_submit_and_leave_the_block_raises_the_failure(machine, held):
    with pytest.raises(ost.TaskError, match="'fail' raised ValueError: no"), failing().compile(machine) as program:
        run = program.submit(3)
        if not held:
            del run


def test_a_script_whose_run_failed_ends_with_an_error():
    script = """
        import numpy as np, ostinato as ost
        @ost.task
        def fail(x: ost.ReadWrite):
            raise ValueError("no")
        with ost.capture() as graph:
            fail(np.zeros(1))
        with graph.compile() as program:
            program.submit(3)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "TaskError: 'fail' raised ValueError: no" in done.stderr


def test_the_block_of_the_machine_raises_what_its_programs_did_not():
    with pytest.raises(ost.TaskError, match="ValueError: no"), ost.Machine(cpus=2) as machine:
        program = failing().compile(machine)
        program.submit(1)
        program.close()


def test_the_block_of_the_machine_raises_though_the_program_is_gone():
    with pytest.raises(ost.TaskError, match="ValueError: no"), ost.Machine(cpus=2) as machine:
        failing().compile(machine).submit(3)
        gc.collect()


def test_the_block_of_the_machine_raises_failures_of_spawned_tasks():
    with pytest.raises(ost.TaskError, match="ValueError: no"), ost.Machine(cpus=2) as machine:
        machine.spawn(fail, np.zeros(1))


def test_of_several_failures_the_least_is_raised_and_the_others_are_notes(machine):
    x = np.zeros(1)

    @ost.task
    def fail_in(x: ost.ReadWrite, step):
        if step % 2:
            raise ValueError(f"step {step}")

    graph = ost.Graph()
    graph.task(fail_in, x, ost.step)
    with (
        pytest.raises(ost.TaskError, match="ValueError: step 1") as caught,
        graph.compile(machine, runs="concurrent") as program,
    ):
        later = program.submit(2), program.submit(2)
        del later
    assert "step 3" in caught.value.__notes__[0]


def test_inner_and_outer_block_raise_a_failure_once():
    with ost.Machine(cpus=2) as machine, pytest.raises(ost.TaskError), failing().compile(machine) as program:
        program.submit(1)


def test_a_retrieved_failure_is_not_raised_again(machine):
    with failing().compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.submit(1).result()
        assert isinstance(program.submit(1).exception(), ost.TaskError)
        with pytest.raises(ost.TaskError):
            program.replay(1)


def test_a_cancelled_run_is_no_failure(machine):
    graph = ost.Graph()
    graph.task(add, np.zeros(1))
    with graph.compile(machine) as program:
        run = program.submit(10**9)
        assert run.cancel()


def test_poison_counts_unless_the_failure_was_retrieved(machine):
    with failing().compile(machine) as program:
        first = program.submit(1)
        second = program.submit(1)
        with pytest.raises(ost.TaskError):
            first.result()
        wait_until(second.done)


def test_poison_that_came_from_outside_is_raised(machine):
    graph = ost.Graph()
    graph.task(add, np.zeros(1))
    event = ost.UserEvent()
    with pytest.raises(ost.PoisonError, match="OSError: the disk is full"), graph.compile(machine) as program:
        program.submit(1, after=event)
        event.poison(OSError("the disk is full"))


def test_poison_is_told_once_along_a_chain_of_runs(machine):
    graph = ost.Graph()
    graph.task(add, np.zeros(1))
    event = ost.UserEvent()
    with graph.compile(machine) as program:
        run = program.submit(1, after=program.submit(1, after=event).event)
        event.poison(OSError("the disk is full"))
        assert isinstance(run.event.exception(), ost.PoisonError)
        wait_until(run.done)


def test_who_retrieves_the_poison_has_retrieved_the_failure(machine):
    with failing().compile(machine) as program:
        run = program.submit(1)
        wait_until(run.done)
        with pytest.raises(ost.PoisonError):
            program.submit(1).result()


def test_waiting_for_the_event_of_a_run_retrieves_its_failure(machine):
    with failing().compile(machine) as program:
        run = program.submit(1)
        with pytest.raises(ost.PoisonError):
            run.event.wait()


def test_a_block_left_by_another_exception_logs_and_no_outer_block_raises(caplog):
    with pytest.raises(KeyError), ost.Machine(cpus=2) as machine, failing().compile(machine) as program:
        run = program.submit(1)
        wait_until(run.done)
        raise KeyError("other")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "ValueError: no" in caplog.text


def test_ctrl_c_inside_a_task_is_not_logged_as_a_failure(caplog):
    @ost.task
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError), ost.Machine(cpus=1) as machine:
        run = machine.spawn(interrupted)
        while not run.done():
            time.sleep(0.001)
        raise ZeroDivisionError
    assert not caplog.records


def test_dropping_a_failed_run_logs(machine, caplog):
    program = failing().compile(machine)
    run = program.submit(1)
    wait_until(run.done)
    assert not caplog.records
    del run
    gc.collect()
    assert "nobody retrieved its exception: TaskError: 'fail' raised ValueError: no" in caplog.text
    program.close()


def test_a_run_dropped_before_it_fails_logs_when_it_has(machine, caplog):
    start = ost.UserEvent()
    program = failing().compile(machine)
    program.submit(1, after=start)
    start.trigger()
    wait_until(lambda: "ValueError: no" in caplog.text)
    program.close()
    assert len(caplog.records) == 1


def test_a_spawned_task_dropped_before_it_fails_logs_when_it_has(machine, caplog):
    start = ost.UserEvent()
    machine.spawn(fail, np.zeros(1), after=start)
    start.trigger()
    wait_until(lambda: "ValueError: no" in caplog.text)


def test_a_callback_is_told_of_the_failure(machine, caplog):
    told = []
    with failing().compile(machine) as program:
        program.submit(1).add_done_callback(told.append)
        wait_until(lambda: told)
    assert not caplog.records


def test_a_retrieved_failure_is_not_logged(machine, caplog):
    program = failing().compile(machine)
    with pytest.raises(ost.TaskError):
        program.submit(1).result()
    run = program.submit(1)
    assert run.exception() is not None
    del run
    gc.collect()
    program.close()
    assert not caplog.records


def test_many_runs_that_end_well_are_forgotten(machine):
    graph = ost.Graph()
    graph.task(add, np.zeros(1))
    with graph.compile(machine) as program:
        for _ in range(2000):
            program.submit(1)
        program.submit(1).result()
        program.submit(1).result()
        assert len(program._engine.unretrieved._held) < 2000
        assert not program._engine.take_failures()
