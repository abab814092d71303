"""Events together with runs: what a run comes after, and what comes after it."""

import asyncio

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@pytest.fixture(params=[1, 2])
def machine(request):
    with ost.Machine(cpus=request.param) as machine:
        yield machine


@pytest.fixture
def x():
    return np.zeros(1)


@pytest.fixture
def program(machine, x):
    graph = ost.Graph()
    graph.task(add, x)
    return graph.compile(machine, runs="concurrent")


def test_a_run_comes_after_an_event_and_has_one(program, x):
    start = ost.UserEvent()
    run = program.submit(3, after=start)
    merged = ost.merge(run, start)
    assert not run.event.done
    start.trigger()
    merged.wait(60)
    assert run.event.done
    assert x[0] == 3


def test_a_failed_run_explains_its_poison(machine, x):
    @ost.task
    def fail(x: ost.ReadWrite):
        raise ValueError("no ink")

    graph = ost.Graph()
    graph.task(fail, x)
    run = graph.compile(machine).submit()
    merged = ost.merge(ost.merge(run))
    assert isinstance(merged.exception(), ost.PoisonError)
    cause = merged.exception().__cause__
    assert isinstance(cause, ost.TaskError)
    assert str(cause.__cause__) == "no ink"
    assert str(run.event.exception().__cause__) == str(run.exception())


def test_poison_passes_through_runs(program, x):
    start, reason = ost.UserEvent(), ValueError("no ink")
    run = program.submit(after=program.submit(after=start).event)
    start.poison(reason)
    assert run.event.exception().__cause__ is reason
    assert x[0] == 0


def test_what_a_run_is_granted_its_end_releases(program, x):
    reservation, gate = ost.Reservation(), ost.UserEvent()
    mine = reservation.acquire()
    runs = []
    for _ in range(20):
        granted = reservation.acquire()
        runs.append(program.submit(after=ost.merge(granted, gate)))
        reservation.release(after=runs[-1])
    assert mine.done
    gate.trigger()
    assert not any(run.done() for run in runs)
    reservation.release()
    for run in runs:
        run.result(60)
    assert x[0] == 20
    reservation.acquire().wait(60)


def test_a_run_cancelled_before_its_grant_releases_nothing_of_others(program):
    reservation = ost.Reservation()
    mine, yours = reservation.acquire(), reservation.acquire()
    run = program.submit(after=yours)
    reservation.release(after=run)
    third = reservation.acquire()
    assert run.cancel()
    run.event.exception()
    assert mine.done
    assert not yours.done
    reservation.release()
    third.wait(60)
    reservation.release()


def test_a_run_that_is_poisoned_before_its_grant_releases_nothing_of_others(program):
    reservation, other = ost.Reservation(), ost.UserEvent()
    mine, yours = reservation.acquire(), reservation.acquire()
    run = program.submit(after=ost.merge(yours, other))
    reservation.release(after=run)
    other.poison()
    run.event.exception()
    assert mine.done
    assert not yours.done
    reservation.release()
    yours.wait(60)
    reservation.acquire().wait(60)


def test_a_run_arrives(program):
    barrier, start = ost.Barrier(2, "+", 0), ost.UserEvent()
    barrier.arrive(after=program.submit(after=start))
    barrier.arrive(value=4, after=program.submit())
    assert barrier.phase == 0
    start.trigger()
    barrier.event(0).wait(60)
    assert barrier.result(0) == 4


def test_awaiting_events_of_runs(program, x):
    async def main():
        start = ost.UserEvent()
        runs = [program.submit(after=start) for _ in range(5)]
        start.trigger()
        await asyncio.gather(*[run.event for run in runs])
        return await ost.merge(*runs)

    asyncio.run(main())
    assert x[0] == 5


def test_what_a_spawned_task_is_granted_its_end_releases(machine, x):
    reservation = ost.Reservation()
    mine, yours = reservation.acquire(), reservation.acquire()
    run = machine.spawn(add, x, after=yours)
    reservation.release(after=run)
    gone = machine.spawn(add, x, after=reservation.acquire())
    reservation.release(after=gone)
    third = reservation.acquire()
    assert gone.cancel()
    gone.event.exception()
    assert mine.done
    assert not yours.done
    reservation.release()
    third.wait(60)
    run.result(60)
    assert x[0] == 1
    reservation.release()
