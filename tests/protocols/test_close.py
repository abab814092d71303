"""A machine that is closed ends its threads, and every run that it took.

A thread closes a machine while a run is in flight and another thread submits one, to a program that it may be just
compiling. Mirrors `Machine._close` and `Program._close` (Python), `Program::close`, `submit` and `finish_first`,
`Machine::close`, and `Worker::serve_as_worker`. Tasks are Python's: the worker needs the GIL for them, and for the plan
that it lets go of when a run is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, commit_wait, explore, fence, load, lock, membarrier, notify, store, unlock


@dataclass(frozen=True)
class Protocol:
    refuses_first: bool = True  # before it looks which runs to wait for
    drops_gil: bool = True  # while it waits
    notifies: bool = True  # the worker, to tell it that it is to end
    plan_outside_lock: bool = True  # it ends there
    compiler_looks_again: bool = True  # whether the machine was closed, once it has put the program on the list


def closer(p: Protocol) -> Thread:
    yield lock("GIL")
    yield store("closed", 1)
    yield unlock("GIL")  # other threads get their turns
    yield lock("GIL")
    listed = yield load("listed")
    if listed:
        yield from close_program(p)
    yield store("closing", 1)
    if p.notifies:
        yield notify("event_count")
    yield from wait(p, "ended", 1)
    yield unlock("GIL")


def close_program(p: Protocol) -> Thread:
    if p.refuses_first:
        yield from refuse()
    yield lock("program")
    last = yield load("frontier")
    yield unlock("program")
    yield from wait(p, "completed", last)
    if not p.refuses_first:
        yield from refuse()


def refuse() -> Thread:
    yield lock("program")
    yield store("refuses", 1)
    yield unlock("program")


def wait(p: Protocol, word: str, value: int) -> Thread:
    if p.drops_gil:
        yield unlock("GIL")
    reached = yield load(word)
    while reached < value:
        reached = yield load(word)
    if p.drops_gil:
        yield lock("GIL")


def submitter(p: Protocol, compiles: bool) -> Thread:
    if compiles:
        yield lock("GIL")
        closed = yield load("closed")
        yield unlock("GIL")
        if closed:
            return
        yield lock("GIL")
        yield store("listed", 1)
        if p.compiler_looks_again:
            closed = yield load("closed")
        yield unlock("GIL")
        if closed:
            return
    yield lock("GIL")
    yield lock("program")
    refuses = yield load("refuses")
    if not refuses:
        frontier = yield load("frontier")
        yield store("frontier", frontier + 1)
    yield unlock("program")
    if not refuses:
        yield fence()
        asleep = yield load("asleep")
        if asleep:
            yield notify("event_count")
    yield unlock("GIL")


def worker(p: Protocol) -> Thread:
    completed = 0
    while True:
        epoch = yield load("event_count")
        closing = yield load("closing")
        if closing:
            break
        frontier = yield load("frontier")
        if frontier > completed:
            completed += 1
            yield from touch_python()  # the task
            yield lock("program")
            yield store("completed", completed)
            if not p.plan_outside_lock:
                yield from touch_python()
            yield unlock("program")
            if p.plan_outside_lock:
                yield from touch_python()
            continue
        yield store("asleep", 1)
        yield from membarrier()
        frontier = yield load("frontier")
        if frontier == completed:
            yield commit_wait("event_count", epoch)
        yield store("asleep", 0)
    yield store("ended", 1)


def touch_python() -> Thread:
    yield lock("GIL")
    yield unlock("GIL")


def check(p: Protocol, compiles: bool) -> int:
    words = {"GIL": 0, "program": 0, "closed": 0, "closing": 0, "refuses": 0, "event_count": 0, "asleep": 0, "ended": 0}
    words |= {"listed": int(not compiles), "frontier": int(not compiles), "completed": 0}
    threads = {
        "closer": lambda: closer(p),
        "submitter": lambda: submitter(p, compiles),
        "worker": lambda: worker(p),
    }
    return explore(words, threads, lambda memory: memory["ended"] == 1 and memory["completed"] == memory["frontier"])


@pytest.mark.parametrize("compiles", [False, True])
def test_all_runs_end_and_then_the_threads(compiles):
    assert check(Protocol(), compiles) > 10


@pytest.mark.parametrize(
    ("broken", "compiles"),
    [
        (Protocol(refuses_first=False), False),
        (Protocol(drops_gil=False), False),
        (Protocol(notifies=False), False),
        (Protocol(plan_outside_lock=False), False),
        (Protocol(compiler_looks_again=False), True),
    ],
    ids=str,
)
def test_a_run_or_a_thread_is_left_without(broken, compiles):
    with pytest.raises(ProtocolError):
        check(broken, compiles)
