"""The last references to a program and its machine are dropped while a run is in flight: by the user's thread, which
holds the GIL, or by a task, on the worker. Mirrors `ProgramHandle::let_go`, `Machine::forget`, `retire` and `close`,
and `Worker::serve_as_worker`.

The end of a handle never waits. The run goes on; the worker that finds the program idle takes it off the machine's
list; whoever finds the machine forgotten and its list empty tells the threads to end.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.explorer import Thread, add, commit_wait, explore, load, lock, notify, store, unlock


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
