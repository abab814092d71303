"""A worker that leaves its slot for a caller comes back, and leaves it what it has submitted.

A thread in replay() would like slot 0, which its worker holds: it says so before it submits its run, and until it
sits there or the run is done. Mirrors `Caller`, the part of `Worker::serve_as_worker` that looks at `callers_waiting`,
the beginning of `enter_next_run`, and `Machine::work`. What the run has to do is at home here or elsewhere; work of
another program comes up at any time. What is at home here is for the thread in replay(), not for the worker.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from explorer import (
    Op,
    ProtocolError,
    Thread,
    add,
    choose,
    commit_wait,
    explore,
    fence,
    load,
    membarrier,
    notify,
    store,
    swap,
)


@dataclass(frozen=True)
class Protocol:
    notifies_when_it_gives_up: bool = True
    notifies_when_it_leaves: bool = True
    notifies_who_waits: bool = True  # when the worker stands up
    waits_throughout: bool = True  # from before it submits on
    looks_before_entering: bool = True  # a run


def other_slot() -> Thread:
    """Ends the caller's run, where that has nothing to do on this slot."""
    yield store("run", 1)
    yield notify("finished")


def submitter() -> Thread:
    yield store("frontier", 1)
    yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield notify("event_count")


def caller(p: Protocol, elsewhere: bool) -> Thread:
    taken = yield swap("taken", 1)
    in_slot = not taken
    if not in_slot:
        yield add("callers_waiting", 1)
        yield swap("attention", 1)
        patient = True
        while patient and not in_slot:
            taken = yield swap("taken", 1)
            in_slot = not taken
            patient = yield choose(2)
        if in_slot or not p.waits_throughout:
            yield add("callers_waiting", -1)
            if not in_slot:
                yield notify("event_count")
    if in_slot:
        yield store("asleep", 0)
    if not elsewhere:
        yield store("submitted", 1)
        yield fence()
        asleep = yield load("asleep")
        if asleep:
            yield notify("event_count")
    if not in_slot:
        in_slot = yield from wait_for_slot(p)
    if not in_slot:
        return
    yield store("asleep", 0)
    yield store("run", 1)
    # Caller::leave, see caller_leaves
    epoch = yield load("event_count")
    yield store("asleep", 1)
    yield fence()
    frontier = yield load("frontier")
    done = yield load("done")
    yield swap("taken", 0)
    notifies = yield load("event_count")
    if (frontier > done or notifies != epoch) and p.notifies_when_it_leaves:
        yield notify("event_count")


def wait_for_slot(p: Protocol) -> Generator[Op, Any, bool]:
    if not p.waits_throughout:
        yield add("callers_waiting", 1)
        yield swap("attention", 1)
    yield store("listed", 1)  # under a mutex
    yield fence()
    in_slot = False
    while True:
        epoch = yield load("finished")
        run = yield load("run")
        if run:
            break
        taken = yield swap("taken", 1)
        in_slot = not taken
        if in_slot:
            break
        yield commit_wait("finished", epoch)
    yield add("callers_waiting", -1)
    if not in_slot and p.notifies_when_it_gives_up:
        yield notify("event_count")
    return in_slot


def worker(p: Protocol, elsewhere: bool) -> Thread:
    while True:
        epoch = yield load("event_count")
        waiting = yield load("callers_waiting")
        if not waiting and not (yield swap("taken", 1)):
            yield store("asleep", 0)
            epoch = yield from serve(p, elsewhere)
            yield swap("taken", 0)
            waiting = yield load("callers_waiting")
            listed = yield load("listed")
            if waiting and listed and p.notifies_who_waits:
                yield notify("finished")
        yield commit_wait("event_count", epoch)


def serve(p: Protocol, elsewhere: bool) -> Generator[Op, Any, int]:
    """Work until there is none, or the slot is wanted; return the epoch to sleep with."""
    while True:
        epoch = yield load("event_count")
        yield swap("attention", 0)
        if (yield load("callers_waiting")):
            yield store("asleep", 1)
            return epoch
        if (yield from something_to_do(elsewhere)):
            yield from do_it(p, elsewhere)
            continue
        # prepare_wait
        yield store("asleep", 1)
        yield from membarrier()
        if not (yield from something_to_do(elsewhere)) and not (yield load("attention")):
            return epoch
        yield store("asleep", 0)


def something_to_do(elsewhere: bool) -> Generator[Op, Any, bool]:
    frontier = yield load("frontier")
    done = yield load("done")
    if frontier > done or elsewhere:
        return frontier > done
    submitted = yield load("submitted")
    run = yield load("run")
    return submitted > run


def do_it(p: Protocol, elsewhere: bool) -> Thread:
    frontier = yield load("frontier")
    yield store("done", frontier)
    if not elsewhere:
        submitted = yield load("submitted")
        waiting = yield load("callers_waiting")
        if submitted and not (waiting and p.looks_before_entering):
            run = yield load("run")
            assert run, "the worker runs what is for the thread in replay()"


def check(p: Protocol, elsewhere: bool) -> int:
    words = {"submitted": 0, "run": 0, "frontier": 0, "done": 0, "asleep": 0, "taken": 0, "event_count": 0}
    words |= {"callers_waiting": 0, "attention": 0, "listed": 0, "finished": 0}
    threads = {
        "caller": lambda: caller(p, elsewhere),
        "worker": lambda: worker(p, elsewhere),
        "submitter": submitter,
    }
    if elsewhere:
        threads["other slot"] = other_slot
    return explore(words, threads, lambda memory: memory["run"] == memory["done"] == 1)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_nothing_is_left_lying(elsewhere):
    assert check(Protocol(), elsewhere) > 10


@pytest.mark.parametrize(
    "broken", [Protocol(notifies_when_it_gives_up=False), Protocol(notifies_when_it_leaves=False)], ids=str
)
def test_work_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, elsewhere=True)


def test_the_caller_sleeps_for_ever_if_the_worker_does_not_ring():
    with pytest.raises(ProtocolError):
        check(Protocol(notifies_who_waits=False), elsewhere=False)


@pytest.mark.parametrize("broken", [Protocol(waits_throughout=False), Protocol(looks_before_entering=False)], ids=str)
def test_the_worker_gets_the_callers_run_without(broken):
    with pytest.raises(ProtocolError, match="what is for the thread"):
        check(broken, elsewhere=False)
