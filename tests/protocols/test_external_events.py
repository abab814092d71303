"""A lane that waits for an event goes on when it has happened, or its run is aborted, and for nothing else.

A lane waits for events of the outside while its run is aborted. Mirrors `Place::happened` and `Signal::reach`
(external.cpp), `Program::abort` and `Event::listen`. The lane passes through two runs of one step; in the first it
waits for one event, in the second for another. In run r its signal is to reach r.

That who sleeps is woken by a publish is `publish_and_park`'s; here a blocked lane looks at the timeline all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, explore, load, lock, membarrier, store, unlock


@dataclass(frozen=True)
class Protocol:
    only_forward: bool = True  # the timeline is not set to less than it is at
    reach_locks: bool = True
    aborted_under_lock: bool = True  # the lane looks whether its run is aborted under the hold in which it arms
    abort_reaches: bool = True  # what the signal is armed for
    run_under_lock: bool = True  # the aborting thread looks in which run the lane is under the hold in which it reaches
    looks_at_event: bool = True  # when it is served again; else it trusts the timeline


def reach(p: Protocol, value: int) -> Thread:
    if p.reach_locks:
        yield lock("signal")
    reached = yield load("value")
    if reached < value or not p.only_forward:
        yield store("value", value)
    if p.reach_locks:
        yield unlock("signal")


def event(p: Protocol, number: int) -> Thread:
    """Happens at some time."""
    yield lock(f"mutex of event {number}")
    yield store(f"event {number}", 1)
    listeners = yield load(f"listeners of event {number}")
    yield unlock(f"mutex of event {number}")
    if listeners:
        yield from reach(p, number)


def listen(p: Protocol, number: int) -> Thread:
    yield lock(f"mutex of event {number}")
    happened = yield load(f"event {number}")
    if not happened:
        yield store(f"listeners of event {number}", 1)
    yield unlock(f"mutex of event {number}")
    if happened:
        yield from reach(p, number)


def lane(p: Protocol) -> Thread:
    for run in (1, 2):
        yield store("run_index", run)
        waited = False
        while True:
            happened = yield load(f"event {run}")
            if happened or (waited and not p.looks_at_event):
                assert happened, f"run {run} goes on before its event"
                yield store(f"outcome of run {run}", "ran")
                break
            aborted = 0
            if not p.aborted_under_lock:
                aborted = yield load(f"run {run} aborted")
            yield lock("signal")
            if p.aborted_under_lock:
                aborted = yield load(f"run {run} aborted")
            if aborted:
                yield unlock("signal")
                yield store(f"outcome of run {run}", "skipped")
                break
            assert not waited, f"run {run} is woken for nothing, and does not sleep any more"
            yield store("armed", run)
            yield unlock("signal")
            yield from listen(p, run)
            reached = yield load("value")
            while reached < run:
                reached = yield load("value")
            waited = True


def aborter(p: Protocol) -> Thread:
    yield store("run 1 aborted", 1)
    if not p.run_under_lock:
        yield from membarrier()
        run = yield load("run_index")
        if run != 1:
            return
    yield lock("signal")
    if p.run_under_lock:
        run = yield load("run_index")
        if run != 1:
            yield unlock("signal")
            return
    armed = yield load("armed")
    reached = yield load("value")
    if reached < armed and p.abort_reaches:
        yield store("value", armed)
    yield unlock("signal")


def check(p: Protocol, aborts: bool, happens: bool) -> int:
    """`aborts`: the first run is aborted. `happens`: so does its event."""
    words = {"value": 0, "armed": 0, "signal": 0, "run_index": 0, "run 1 aborted": 0, "run 2 aborted": 0}
    for run in (1, 2):
        words |= {f"event {run}": 0, f"mutex of event {run}": 0, f"listeners of event {run}": 0}
        words |= {f"outcome of run {run}": None}
    threads = {"lane": lambda: lane(p), "event 2": lambda: event(p, 2)}
    if happens:
        threads["event 1"] = lambda: event(p, 1)
    if aborts:
        threads["aborter"] = lambda: aborter(p)

    def good(memory):
        first = memory["outcome of run 1"]
        return memory["outcome of run 2"] == "ran" and (first == "ran" or (aborts and first == "skipped"))

    return explore(words, threads, good)


@pytest.mark.parametrize(("aborts", "happens"), [(False, True), (True, False), (True, True)])
def test_lanes_go_on_in_time(aborts, happens):
    assert check(Protocol(), aborts, happens) > 10


@pytest.mark.parametrize(
    ("broken", "happens"),
    [
        (Protocol(only_forward=False), True),
        (Protocol(reach_locks=False), True),
        (Protocol(aborted_under_lock=False), False),
        (Protocol(abort_reaches=False), False),
        (Protocol(run_under_lock=False), False),
        (Protocol(looks_at_event=False), False),
    ],
    ids=str,
)
def test_lanes_go_on_too_early_or_never_without(broken, happens):
    with pytest.raises(ProtocolError):
        check(broken, True, happens)
