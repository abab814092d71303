"""Nobody sleeps through a value that has been published, and no slot is notified that is no more.

A lane publishes; slots that polled in vain park. Mirrors `publish`, `wake_waiters` (timeline.h, parking.cpp),
`prepare_wait` with `register_lane` and `covered`, the nap and `still_waits` after it, `cancel_wait` with `unregister`,
`Worker::serve_as_worker`, and the end of a machine, whose slots nobody may notify any more.
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
    unlock,
)

NEVER = 99


@dataclass(frozen=True)
class Protocol:
    """What the two sides do; all true is what the core does."""

    asymmetric: bool = True  # False: where membarrier is refused, both sides fence
    fences: bool = True  # before the first look
    heavy_fence: bool = True
    looks_again: bool = True
    ticket_first: bool = True
    sets_least: bool = True  # to the least value left, when waiters are woken
    counts_under_lock: bool = True  # notifiers, which notify without it
    waits_for_notifiers: bool = True  # before slots end


def light_fence(p: Protocol) -> Thread:
    if not p.asymmetric:
        yield fence()


def heavy_fence(p: Protocol) -> Thread:
    if p.heavy_fence:
        if p.asymmetric:
            yield from membarrier()
        else:
            yield fence()


def set_least(waiters: frozenset[tuple[str, int]]) -> int:
    return min((value for _, value in waiters), default=NEVER)


def publisher(p: Protocol, last: int) -> Thread:
    for value in range(1, last + 1):
        yield store("value", value)
        yield from light_fence(p)
        least = yield load("least_sleeper")
        if least <= value:
            yield from wake_waiters(p, value)


def wake_waiters(p: Protocol, value: int) -> Thread:
    yield lock("parking")
    waiters = yield load("waiters")
    taken = tuple(sorted(slot for slot, until in waiters if until <= value))
    waiters = frozenset((slot, until) for slot, until in waiters if until > value)
    yield store("waiters", waiters)
    yield store("least_sleeper", set_least(waiters) if p.sets_least else NEVER)
    if p.counts_under_lock:
        yield add("notifiers", 1)
    yield unlock("parking")
    if not p.counts_under_lock:
        yield add("notifiers", 1)
    for slot in taken:
        ended = yield load("ended")
        if ended:
            yield store("notified too late", 1)
        yield notify(f"event_count {slot}")
    yield add("notifiers", -1)


def worker(p: Protocol, slot: str, until: int) -> Thread:
    """Its lane waits for the timeline to reach `until`."""
    epoch = 0
    while True:
        if p.ticket_first:
            epoch = yield load(f"event_count {slot}")
        value = yield load("value")
        if value >= until:
            break
        yield lock("parking")
        waiters = yield load("waiters")
        waiters = waiters | {(slot, until)}
        yield store("waiters", waiters)
        least = yield load("least_sleeper")
        if until < least:
            yield store("least_sleeper", until)
        yield unlock("parking")
        if p.fences:
            yield fence()
        value = yield load("value")
        if value < until:
            yield from heavy_fence(p)  # the nap: stores reach memory meanwhile
        if p.looks_again and value < until:
            value = yield load("value")
        if value < until:
            if not p.ticket_first:
                epoch = yield load(f"event_count {slot}")
            yield commit_wait(f"event_count {slot}", epoch)
        yield lock("parking")
        waiters = yield load("waiters")
        waiters = frozenset(waiter for waiter in waiters if waiter[0] != slot)
        yield store("waiters", waiters)
        yield store("least_sleeper", set_least(waiters))
        yield unlock("parking")
    yield add("arrived", 1)


def last_of_a_machine(p: Protocol, slot: str, until: int) -> Thread:
    """Its slot ends with it."""
    yield from worker(p, slot, until)
    if p.waits_for_notifiers:
        yield lock("notifiers")  # waits until it is 0
    yield store("ended", 1)


def check(p: Protocol, *targets: int, ends: bool = False) -> int:
    """Go through all interleavings of a publisher and a slot for each of `targets`, which may end their machine."""
    slots = {f"slot {i}": target for i, target in enumerate(targets)}
    words = {"value": 0, "least_sleeper": NEVER, "parking": 0, "waiters": frozenset(), "arrived": 0}
    words |= {"notifiers": 0, "ended": 0, "notified too late": 0}
    sitting = last_of_a_machine if ends else worker
    words |= {f"event_count {slot}": 0 for slot in slots}
    threads = {"publisher": lambda: publisher(p, max(targets))}
    threads |= {slot: lambda slot=slot, until=until: sitting(p, slot, until) for slot, until in slots.items()}
    return explore(words, threads, lambda memory: memory["arrived"] == len(slots) and not memory["notified too late"])


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [True, False])
@pytest.mark.parametrize("targets", [(1,), (2,), (1, 2)])
def test_every_sleeper_wakes(asymmetric, targets):
    assert check(Protocol(asymmetric=asymmetric), *targets) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(heavy_fence=False),
        Protocol(asymmetric=False, fences=False, heavy_fence=False),
        Protocol(looks_again=False),
        Protocol(ticket_first=False),
    ],
)
def test_a_sleeper_is_forgotten_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, 1)


def test_the_least_value_must_follow_the_waiters():
    with pytest.raises(ProtocolError):
        check(Protocol(sets_least=False), 1, 2)


def test_no_slot_is_notified_that_is_no_more():
    assert check(Protocol(), 1, ends=True) > 10


@pytest.mark.parametrize("broken", [Protocol(counts_under_lock=False), Protocol(waits_for_notifiers=False)], ids=str)
def test_a_slot_is_notified_too_late_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, 1, ends=True)
