"""Every spawned call is taken, and a long one leaves no lane lying.

Spawned calls, and the lanes of a slot that runs a long one. Mirrors `Machine::notify_for`, `Machine::pass_on`,
`Machine::take_slot`, `Worker::run` of a call, `SpawnedCalls::take`, `prepare_wait`, `Caller::leave` and
`Machine::notify_slots`.

Three situations. *Taking*: threads spawn calls, slots take them, and each call keeps its slot for ever. *Sitting*: a
thread in replay() sits down on the slot that the spawner counts on, and takes no calls. *Looking after*: one slot goes
into a call for ever, while its lane becomes ready by a publish, or by the submission of a run; the other slot must
serve it, be it asleep already, on its way, or left by a caller just then.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import (
    ProtocolError,
    Thread,
    add,
    commit_wait,
    explore,
    fence,
    load,
    lock,
    membarrier,
    notify,
    store,
    swap,
    unlock,
)


@dataclass(frozen=True)
class Protocol:
    spawner_fences: bool = True
    pops_locked: bool = True
    heavy_fence: bool = True
    sleeper_looks_at_calls: bool = True
    passes_on: bool = True  # who takes a call notifies another slot when more are left
    taker_fences: bool = True  # between saying that it does not poll, and passing on
    polls_end: bool = True  # before a slot sleeps
    caller_passes_on: bool = True  # who sits down and takes no calls does so too
    caller_fences: bool = True
    busy_fences: bool = True  # before a call
    busy_notifies: bool = True  # a slot that sleeps, to look after the lanes
    sleeper_covers: bool = True  # stays awake unless it will be notified for the lanes of a busy slot
    submit_notifies_another: bool = True  # where the slot is busy
    leaver_looks_at_busy: bool = True


def spawner(p: Protocol, calls: int) -> Thread:
    for _ in range(calls):
        yield lock("calls")
        ready = yield load("ready")
        yield store("ready", ready + 1)
        yield unlock("calls")
        if p.spawner_fences:
            yield fence()
        for slot in "ab":  # one that polls is counted on
            polling = yield load(f"{slot} polling")
            by_caller = polling and (yield load(f"{slot} by caller"))
            if polling and not by_caller:
                break
        else:
            yield from notifies_sleeper()


def notifies_sleeper() -> Thread:
    for slot in "ab":
        asleep = yield load(f"{slot} asleep")
        if asleep:
            by_caller = yield load(f"{slot} by caller")
            if not by_caller:
                yield notify(f"{slot} event_count")
                break


def takes(p: Protocol) -> Thread:
    """The number of calls that were ready; one fewer are when it is not 0."""
    if p.pops_locked:
        yield lock("calls")
    ready = yield load("ready")
    if ready:
        yield store("ready", ready - 1)
    if p.pops_locked:
        yield unlock("calls")
    return ready


def taker(p: Protocol, slot: str, other: str, shared: bool) -> Thread:
    """A worker that takes calls, and stays in the first one. `shared`: a caller may sit on its slot."""
    while True:
        epoch = yield load(f"{slot} event_count")
        taken = 0
        if shared:
            taken = yield swap(f"{slot} taken", 1)
        if not taken:
            yield store(f"{slot} asleep", 0)
            yield store(f"{slot} polling", 1)
            ready = yield from takes(p)
            if ready:
                yield store(f"{slot} polling", 0)
                if p.taker_fences:
                    yield fence()
                ready = yield load("ready")
                if ready and p.passes_on:
                    asleep = yield load(f"{other} asleep")
                    if asleep:
                        yield notify(f"{other} event_count")
                yield add("served", 1)
                return
            if p.polls_end:
                yield store(f"{slot} polling", 0)
            yield store(f"{slot} asleep", 1)
            if p.heavy_fence:
                yield from membarrier()
            ready = yield load("ready")
            if shared:
                yield swap(f"{slot} taken", 0)
            if ready and p.sleeper_looks_at_calls:
                continue
        yield commit_wait(f"{slot} event_count", epoch)


def sitter(p: Protocol, slot: str, other: str) -> Thread:
    """A thread in replay(), which stays there and takes no calls."""
    taken = yield swap(f"{slot} taken", 1)
    if taken:
        return
    yield store(f"{slot} by caller", 1)
    if p.caller_fences:
        yield fence()
    ready = yield load("ready")
    if ready and p.caller_passes_on:
        asleep = yield load(f"{other} asleep")
        if asleep:
            yield notify(f"{other} event_count")
    yield store(f"{slot} asleep", 0)


def check_taking(p: Protocol, calls: int, shared: bool) -> int:
    """So many calls and two slots, with or without a caller on the one that is notified first: all are taken."""
    words = {"ready": 0, "calls": 0, "served": 0, "a taken": 0}
    words |= {f"{slot} {what}": 0 for slot in "ab" for what in ("event_count", "by caller", "polling")}
    words |= {"a asleep": 1, "b asleep": 1}
    threads = {
        "spawner": lambda: spawner(p, calls),
        "a": lambda: taker(p, "a", "b", shared),
        "b": lambda: taker(p, "b", "a", False),
    }
    if shared:
        threads["caller"] = lambda: sitter(p, "a", "b")
    return explore(words, threads, lambda memory: memory["served"] == calls, most=1_000_000)


def busy(p: Protocol, by_submission: bool) -> Thread:
    """The lane's slot goes into a call."""
    yield store("busy", 1)
    if p.busy_fences:
        yield fence()
    value = yield load("value")
    asleep = yield load("asleep")
    if asleep and p.busy_notifies and (value or not by_submission):  # nobody looks after a lane that waits for a run
        yield notify("event_count")


def publisher() -> Thread:
    """The lane waits for this; who is registered is notified."""
    yield store("value", 1)
    registered = yield load("registered")
    if registered:
        yield notify("event_count")


def submitter(p: Protocol) -> Thread:
    """The lane waits for a run. Its slot is awake, and will serve it unless it is busy."""
    yield store("value", 1)
    yield fence()
    is_busy = yield load("busy")
    if is_busy and p.submit_notifies_another:
        asleep = yield load("asleep")
        if asleep:
            yield notify("event_count")


def leaver(p: Protocol) -> Thread:
    """A caller leaves the other slot, whose worker sleeps."""
    yield store("asleep", 1)
    yield fence()
    is_busy = yield load("busy")
    if is_busy and p.leaver_looks_at_busy:
        yield notify("event_count")


def visitor(p: Protocol, by_submission: bool, left: bool) -> Thread:
    """The other slot's server, which serves the lane while its home is busy."""
    if left:
        yield commit_wait("event_count", 0)
        yield store("asleep", 0)
    while True:
        epoch = yield load("event_count")
        is_busy = yield load("busy")
        if is_busy:
            value = yield load("value")
            if value:
                yield store("served", 1)
                return
        yield store("asleep", 1)
        registered = by_submission  # nobody registers for those: whoever submits notifies
        if is_busy and not by_submission:
            registered = True
            yield store("registered", 1)
        if p.heavy_fence:
            yield from membarrier()
        is_busy = yield load("busy")
        stays = False
        if is_busy:
            value = yield load("value")
            stays = bool(value) or (not registered and p.sleeper_covers)
        if not stays:
            yield commit_wait("event_count", epoch)
        yield store("asleep", 0)
        yield store("registered", 0)


def check_looking_after(p: Protocol, by_submission: bool, left: bool) -> int:
    """The lane is served if its home was busy by then; else the slot is, for this model, the one to serve it."""
    words = {"value": 0, "registered": 0, "busy": 0, "asleep": 0, "event_count": 0, "served": 0}
    threads = {
        "home": lambda: busy(p, by_submission),
        "writer": lambda: submitter(p) if by_submission else publisher(),
        "other": lambda: visitor(p, by_submission, left),
    }
    if left:
        threads["caller"] = lambda: leaver(p)
    return explore(words, threads, lambda memory: memory["served"] == 1)


def test_every_call_is_taken():
    """R17: the hand-off of ready work from those who make it to the threads that take it."""
    assert check_taking(Protocol(), calls=2, shared=False) > 100


def test_a_caller_that_takes_no_calls_has_another_slot_rung():
    assert check_taking(Protocol(), calls=1, shared=True) > 100


@pytest.mark.parametrize("by_submission", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_the_lanes_of_a_busy_slot_are_looked_after(by_submission, left):
    assert check_looking_after(Protocol(), by_submission, left) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(pops_locked=False),
        Protocol(heavy_fence=False),
        Protocol(sleeper_looks_at_calls=False),
        Protocol(passes_on=False),
        Protocol(taker_fences=False),
        Protocol(polls_end=False),
    ],
    ids=str,
)
def test_a_call_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check_taking(broken, calls=2, shared=False)


@pytest.mark.parametrize(
    "broken",
    [Protocol(caller_passes_on=False), Protocol(caller_fences=False), Protocol(spawner_fences=False)],
    ids=str,
)
def test_a_call_is_left_to_a_caller_without(broken):
    with pytest.raises(ProtocolError):
        check_taking(broken, calls=1, shared=True)


@pytest.mark.parametrize(
    ("broken", "by_submission", "left"),
    [
        (Protocol(busy_notifies=False), False, False),
        (Protocol(busy_notifies=False), True, False),
        (Protocol(sleeper_covers=False), False, False),
        (Protocol(heavy_fence=False), False, False),
        (Protocol(submit_notifies_another=False), True, False),
        (Protocol(leaver_looks_at_busy=False), False, True),
        (Protocol(busy_fences=False), True, True),
    ],
    ids=str,
)
def test_a_lane_is_left_lying_without(broken, by_submission, left):
    with pytest.raises(ProtocolError):
        check_looking_after(broken, by_submission, left)
