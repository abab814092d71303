"""Whoever drops the last reference, and wherever: the run and the threads end.

The last references to a program and its machine are dropped while a run is in flight: by the user's thread, which
holds the GIL, or by a task, on the worker. Mirrors `ProgramHandle::let_go`, `Machine::forget`, `retire` and `close`,
and `Worker::serve_as_worker`.

The end of a handle never waits. The run goes on; the worker that finds the program idle takes it off the machine's
list; whoever finds the machine forgotten and its list empty tells the threads to end.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, add, commit_wait, explore, load, lock, notify, store, unlock


@dataclass(frozen=True)
class Protocol:
    waits_for_runs: bool = False  # in the finalizer
    joins_threads: bool = False  # likewise
    drops_gil: bool = True  # while it waits
    locks: bool = True  # whoever looks whether the machine is forgotten, or its list is empty
    notifies: bool = True


def drop_reference(p: Protocol) -> Thread:
    """With the GIL."""
    before = yield add("references", -1)
    if before == 1:
        if p.waits_for_runs:
            yield from wait(p, "done")
        # Machine::forget
        if p.locks:
            yield lock("machine")
        yield store("forgotten", 1)
        listed = yield load("listed")
        if p.locks:
            yield unlock("machine")
        if not listed:
            yield from end_threads(p)
        if p.joins_threads:
            yield from wait(p, "ended")


def wait(p: Protocol, word: str) -> Thread:
    if p.drops_gil:
        yield unlock("GIL")
    reached = yield load(word)
    while not reached:
        reached = yield load(word)
    if p.drops_gil:
        yield lock("GIL")


def end_threads(p: Protocol) -> Thread:
    yield store("closing", 1)
    if p.notifies:
        yield notify("event_count")


def user(p: Protocol) -> Thread:
    yield lock("GIL")
    yield from drop_reference(p)
    yield unlock("GIL")


def worker(p: Protocol, by_task: bool) -> Thread:
    yield lock("GIL")  # the task
    if by_task:
        yield from drop_reference(p)
    yield unlock("GIL")
    yield store("done", 1)
    while True:
        epoch = yield load("event_count")
        closing = yield load("closing")
        if closing:
            break
        listed = yield load("listed")
        if listed:  # Machine::retire
            if p.locks:
                yield lock("machine")
            yield store("listed", 0)
            forgotten = yield load("forgotten")
            if p.locks:
                yield unlock("machine")
            if forgotten:
                yield from end_threads(p)
            continue
        yield commit_wait("event_count", epoch)
    yield store("ended", 1)


def check(p: Protocol, by_task: bool) -> int:
    """`by_task`: it holds a reference, too, and whoever is later drops the last."""
    words = {"GIL": 0, "machine": 0, "references": 1 + by_task, "done": 0, "listed": 1, "forgotten": 0, "closing": 0}
    words |= {"event_count": 0, "ended": 0}
    threads = {"user": lambda: user(p), "worker": lambda: worker(p, by_task)}
    return explore(words, threads, lambda memory: memory["done"] == memory["ended"] == 1)


@pytest.mark.parametrize("by_task", [False, True])
def test_everything_ends(by_task):
    assert check(Protocol(), by_task) > 10


@pytest.mark.parametrize("by_task", [False, True])
@pytest.mark.parametrize("waits_for", ["waits_for_runs", "joins_threads"])
def test_a_finalizer_that_waits_holds_the_gil_that_the_end_needs(waits_for, by_task):
    with pytest.raises(ProtocolError):
        check(Protocol(**{waits_for: True}, drops_gil=False), by_task)


@pytest.mark.parametrize("waits_for", ["waits_for_runs", "joins_threads"])
def test_a_finalizer_that_waits_may_be_on_the_thread_that_the_end_needs(waits_for):
    with pytest.raises(ProtocolError):
        check(Protocol(**{waits_for: True}), by_task=True)
    check(Protocol(**{waits_for: True}), by_task=False)  # dropping the GIL helps elsewhere only


@pytest.mark.parametrize("broken", [Protocol(locks=False), Protocol(notifies=False)], ids=str)
def test_threads_are_left_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, by_task=False)
