"""The contract on `Machine.spawn`: single tasks beside graphs, on the same threads."""

from __future__ import annotations

import asyncio
import resource
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost
from support.endless import endless_calls


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@ost.task
def value(v):
    return v


@ost.task
def fail():
    raise KeyError("original")


# What it is given, what it gives


def test_result_is_its_value(machine):
    run = machine.spawn(value, 7)
    assert isinstance(run, ost.Run)
    assert run.result(60) == 7
    assert run.result(timeout=0) == 7
    assert run.exception() is None
    assert run.done()
    assert not run.running()
    assert not run.cancelled()
    assert run.cancel() is False
    for thing in (None, [1], "text", np.arange(3)):
        assert machine.spawn(value, thing).result(60) is thing


def test_arrays_and_scalars_are_its_arguments(machine):
    x = np.zeros(3)
    machine.spawn(add, x, 4).result(60)
    machine.spawn(add, x).result(60)
    assert (x == 5).all()

    @ost.task
    def liar(x: ost.Read):
        x += 1

    with pytest.raises(ost.TaskError):
        machine.spawn(liar, x).result(60)
    assert (x == 5).all()


@pytest.mark.parametrize("bad", [None, 3, "task"])
def test_what_is_no_task_is_refused(bad, machine):
    with pytest.raises(TypeError):
        machine.spawn(bad)


def test_wrong_arguments_are_refused(machine):
    with pytest.raises(TypeError):
        machine.spawn(add)
    for more in ({"after": 3}, {"after": [ost.merge()]}, {"priority": "high"}, {"priority": None}):
        with pytest.raises((TypeError, ValueError)):
            machine.spawn(value, 1, **more)
    with pytest.raises((KeyError, TypeError, ValueError, ost.OstinatoError)):
        machine.spawn(value, 1, on="cpu:99")


def test_failure_is_a_task_error_with_its_cause(machine, causes):
    run = machine.spawn(fail)
    with pytest.raises(ost.TaskError) as error:
        run.result(60)
    assert isinstance(error.value.__cause__, KeyError)
    assert isinstance(run.exception(), ost.TaskError)
    with pytest.raises(ost.PoisonError) as poison:
        run.event.wait(60)
    assert any(isinstance(cause, KeyError) for cause in causes(poison.value))
    assert machine.spawn(value, 1).result(60) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_keyboard_interrupt_or_system_exit_is_raised_as_itself(kind, machine):
    @ost.task
    def stop():
        raise kind(7)

    run = machine.spawn(stop)
    with pytest.raises(kind) as error:
        run.result(60)
    assert error.value.args == (7,)


def test_as_a_future_and_awaitable(machine):
    start, seen, finished = ost.UserEvent(), [], threading.Event()
    run = machine.spawn(value, 3, after=start)
    run.add_done_callback(lambda r: (seen.append(r.result()), finished.set()))
    with pytest.raises(TimeoutError):
        run.result(0.001)

    async def main():
        start.trigger()
        return await asyncio.gather(*(one() for _ in range(3)))

    async def one():
        return await run

    assert asyncio.run(main()) == [3, 3, 3]
    assert finished.wait(60)
    assert seen == [3]


# Events


def test_after_an_event_or_a_run(machine):
    x, start = np.zeros(1), ost.UserEvent()
    first = machine.spawn(add, x, 1, after=start)
    second = machine.spawn(lambda_of(lambda: x[0]), after=first)
    third = machine.spawn(lambda_of(lambda: x[0]), after=ost.merge(first, second))
    with pytest.raises(TimeoutError):
        third.result(0.01)
    assert x[0] == 0
    start.trigger()
    assert third.result(60) == 1
    assert second.result(60) == 1


def lambda_of(function):
    return ost.task(function)


def test_what_waits_does_not_take_a_thread(machine):
    starts = [ost.UserEvent() for _ in range(100)]
    runs = [machine.spawn(value, k, after=start) for k, start in enumerate(starts)]
    assert machine.spawn(value, "now").result(60) == "now"
    for start in starts[::-1]:
        start.trigger()
    assert [run.result(60) for run in runs] == list(range(100))


def test_poison_of_what_it_comes_after(machine, causes):
    event, cause, called = ost.UserEvent(), ValueError("why"), []
    run = machine.spawn(lambda_of(lambda: called.append(1)), after=event)
    last = machine.spawn(value, 1, after=run)
    event.poison(cause)
    for each in (run, last):
        with pytest.raises(ost.PoisonError) as error:
            each.result(60)
        assert cause in causes(error.value)
    bad = machine.spawn(fail)
    with pytest.raises(ost.PoisonError) as error:
        machine.spawn(value, 1, after=bad).result(60)
    assert any(isinstance(c, KeyError) for c in causes(error.value))
    assert machine.spawn(value, 1, after=ost.merge(bad, ignore_poison=True)).result(60) == 1
    assert not called


def test_cancel_of_one_that_waits(machine):
    called, start = [], ost.UserEvent()
    run = machine.spawn(lambda_of(lambda: called.append(1)), after=start)
    assert run.cancel() is True
    with pytest.raises(CancelledError):
        run.result(60)
    assert run.cancelled()
    start.trigger()
    machine.spawn(value, 1).result(60)
    assert not called


def test_programs_and_spawned_tasks_follow_each_other(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, 10)
    with g.compile(machine) as program:
        event = start = ost.UserEvent()
        for _ in range(20):
            spawned = machine.spawn(lambda_of(lambda: x.__imul__(2).sum()), after=event)
            event = program.submit(after=spawned)
        start.trigger()
        event.result(60)
    expected = 0
    for _ in range(20):
        expected = expected * 2 + 10
    assert x[0] == expected


# From anywhere


def test_from_running_tasks_and_from_spawned_ones(machine):
    runs, lock = [], threading.Lock()

    @ost.task
    def tree(depth):
        for _ in range(2 if depth else 0):
            run = machine.spawn(tree, depth - 1)
            with lock:
                runs.append(run)
        return depth

    g = ost.Graph()
    g.task(tree, 5)
    with g.compile(machine) as program:
        program.replay(2)
    done = 0
    while done < len(runs):  # more come while we look
        runs[done].result(60)
        done += 1
    assert len(runs) == 2 * (2**6 - 2)


def test_from_callbacks_and_from_many_threads(machine, in_threads):
    total, lock, finished = 0, threading.Lock(), threading.Event()

    @ost.task
    def count():
        nonlocal total
        with lock:
            total += 1
            if total == 4 * 250 * 2:
                finished.set()

    def work():
        for _ in range(250):
            machine.spawn(count).add_done_callback(lambda r: machine.spawn(count))

    in_threads(*[work] * 4)
    assert finished.wait(60)


# Where, and how urgent


def test_on_a_named_processor(machine):
    name = machine.processors[-1].name
    ident = lambda_of(lambda: threading.get_ident())
    found = {machine.spawn(ident, on=name).result(60) for _ in range(20)}
    assert len(found) == 1
    assert threading.get_ident() not in found
    assert machine.spawn(ident, on=machine.processors[-1]).result(60) in found
    machine.spawn(ident, on="cpu").result(60)


def test_the_more_urgent_first():
    with ost.Machine(cpus=1) as machine:
        gate, entered, order = threading.Event(), threading.Event(), []
        blocker = ost.task(releases_gil=True)(lambda: (entered.set(), gate.wait(60)))
        first = machine.spawn(blocker)
        assert entered.wait(60)
        note = lambda_of(lambda priority: order.append(priority))
        runs = [machine.spawn(note, p, priority=p) for p in (0, 3, -2, 1, 5, -1)]
        gate.set()
        for run in [first, *runs]:
            run.result(60)
    assert order == [5, 3, 1, 0, -1, -2]


@pytest.mark.parametrize("priority", [0, 1])
def test_a_spawned_task_gets_its_turn_beside_an_endless_program(priority, machine):
    x = np.zeros(8)
    g = ost.Graph()
    for k in range(8):
        g.task(add, x[k : k + 1])
    with g.compile(machine) as program:
        run = program.submit(10**12)
        for k in range(20):
            assert machine.spawn(value, k, priority=priority).result(60) == k
        assert not run.done()
        run.cancel()


def test_a_program_gets_its_turn_beside_endless_spawns(machine):
    x = np.zeros(4)
    g = ost.Graph()
    for k in range(4):
        g.task(add, x[k : k + 1])
    with g.compile(machine) as program, endless_calls(machine, 5):
        assert program.submit(30).result(60) == 30
        assert program.replay(30) == 30
    assert (x == 60).all()


def test_a_long_spawned_task_does_not_stop_a_program():
    with ost.Machine(cpus=2) as machine:
        x, gate, entered = np.zeros(8), threading.Event(), threading.Event()
        blocker = ost.task(releases_gil=True)(lambda: (entered.set(), gate.wait(60)))
        g = ost.Graph()
        for k in range(8):
            g.task(add, x[k : k + 1])
        with g.compile(machine) as program:
            run = machine.spawn(blocker)
            assert entered.wait(60)
            try:
                assert program.replay(100) == 100
                assert program.submit(100).result(60) == 100
                assert not run.done()
            finally:
                gate.set()
            run.result(60)
        assert (x == 200).all()


def test_an_urgent_run_whose_input_comes_from_lower_work_on_its_own_threads(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, after=g.precondition("input"))
    with g.compile(machine) as program:
        for _ in range(10):
            made = machine.spawn(value, 1, priority=-5)
            low = program.submit(after={"input": made}, priority=100)
            assert low.result(60) == 1
    assert x[0] == 10


# Many, and the end


@pytest.mark.slow
def test_very_many_spawns_leave_memory_flat(machine):
    def spawn(n):
        for _ in range(n // 100):
            runs = [machine.spawn(value, k) for k in range(100)]
            assert sum(run.result(60) for run in runs) == 4950
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB

    before = spawn(10_000)
    assert spawn(20_000) - before < 20 * 1024


def test_close_waits_for_what_was_spawned():
    x = np.zeros(1)
    with ost.Machine(cpus=2) as machine:
        runs = [machine.spawn(add, x) for _ in range(50)]
    assert all(run.done() for run in runs)
    assert all(run.exception() is None for run in runs)
    with pytest.raises(RuntimeError):
        machine.spawn(add, x)


def test_cancelling_an_await_cancels_a_spawned_task(machine):
    @ost.task
    def nothing():
        raise AssertionError("it was cancelled before")

    async def main():
        run = machine.spawn(nothing, after=ost.UserEvent())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.001)
        return run

    assert asyncio.run(main()).cancelled()
