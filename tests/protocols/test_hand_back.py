"""A lane given back blocked is taken up again by its home, awake or asleep.

A slot serves a lane that is at home on another slot, and gives it back blocked; its home falls asleep meanwhile.
Mirrors `Worker::run` (the end), `Lane::ready`, `register_lane`, `covered`, and `publish`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, commit_wait, explore, load, lock, membarrier, notify, store, take, unlock

NEVER = 99


@dataclass(frozen=True)
class Protocol:
    notifies_home: bool = True
    heavy_fence: bool = True
    looks_at_claims: bool = True  # a free lane must be one that the slot will be notified for


def publisher() -> Thread:
    yield store("value", 1)
    least = yield load("least_sleeper")
    if least <= 1:
        yield lock("parking")
        waits = yield load("waits")
        if waits:
            yield notify("event_count")
        yield store("waits", 0)
        yield store("least_sleeper", NEVER)
        yield unlock("parking")


def visitor(p: Protocol) -> Thread:
    """Holds the claim. The lane's head waits for the timeline's value 1; afterwards it is busy for ever."""
    value = yield load("value")
    if value >= 1:
        yield store("done", 1)
        yield store("blocked_until", NEVER)
    else:
        yield store("blocked_until", 1)
    yield store("claim", 0)
    if p.notifies_home:
        asleep = yield load("asleep")
        if asleep:
            yield notify("event_count")


def home(p: Protocol) -> Thread:
    while True:
        epoch = yield load("event_count")
        claim = yield load("claim")
        if claim == 0:
            until = yield load("blocked_until")
            value = yield load("value")
            if value >= until:
                took = yield take("claim", 0, 1)
                if took:
                    yield store("done", 1)
                    yield store("blocked_until", NEVER)
                    yield store("claim", 0)
                    continue
        # prepare_wait
        registered = 0
        yield store("asleep", 1)
        yield lock("parking")
        claim = yield load("claim")
        if claim == 0:
            until = yield load("blocked_until")
            if until != NEVER:
                yield store("waits", 1)
                yield store("least_sleeper", until)
                registered = until
        yield unlock("parking")
        if p.heavy_fence:
            yield from membarrier()
        covered = True
        claim = yield load("claim")
        if claim == 0 and p.looks_at_claims:
            until = yield load("blocked_until")
            value = yield load("value")
            if value >= until or (registered != until and until != NEVER):
                covered = False
        if covered:
            yield commit_wait("event_count", epoch)
        # cancel_wait
        yield store("asleep", 0)
        yield lock("parking")
        yield store("waits", 0)
        yield store("least_sleeper", NEVER)
        yield unlock("parking")


def check(p: Protocol) -> int:
    words = {
        "value": 0,
        "least_sleeper": NEVER,
        "waits": 0,
        "parking": 0,
        "claim": 1,
        "blocked_until": 1,
        "asleep": 0,
        "event_count": 0,
        "done": 0,
    }
    threads = {"publisher": publisher, "visitor": lambda: visitor(p), "home": lambda: home(p)}
    return explore(words, threads, lambda memory: memory["done"] == 1)


def test_the_home_takes_up_the_lane():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken", [Protocol(notifies_home=False), Protocol(heavy_fence=False), Protocol(looks_at_claims=False)]
)
def test_the_lane_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
