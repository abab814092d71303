"""Whatever a visitor leaves lying is served, and what workers leave to it.

A thread spawns a call and does it itself while it waits: it takes slot 0 for that, if the slot is free or its worker
only polls, takes the call if nothing else is ready, and leaves. Another thread spawns a call at any time. The worker
may leave the first call alone for a moment, but must not sleep meanwhile: the visitor may not come, or may not take it.
Mirrors the constructor of `Caller` for visits, `Worker::serve_visit` of a call, `SpawnedCalls::take_only`,
`Caller::leave`, `Worker::serve_as_worker` and `prepare_wait`.
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
    lock,
    membarrier,
    notify,
    store,
    swap,
    unlock,
)


@dataclass(frozen=True)
class Protocol:
    sleeper_looks: bool = True  # at calls that it left alone, too
    leaver_looks: bool = True
    leaver_fences: bool = True
    notifies_when_it_gives_up: bool = True
    notifies_again: bool = True  # the worker, if that was notified while the visitor was there


def spawn(which: str) -> Thread:
    yield lock("calls")
    yield store(f"{which} ready", 1)
    yield unlock("calls")
    yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield notify("event_count")


def take(own_only: bool) -> Generator[Op, Any, bool]:
    """Take the oldest call, or `own_only`: the visitor's, if it is the only one."""
    yield lock("calls")
    own = yield load("own ready")
    other = yield load("other ready")
    took = bool((own and not other) if own_only else (own or other))
    if took:
        yield store("own ready" if own else "other ready", 0)
    yield unlock("calls")
    if took:
        yield add("served", 1)
    return took


def visitor(p: Protocol) -> Thread:
    yield from spawn("own")
    taken = yield swap("taken", 1)
    if taken:
        yield add("callers_waiting", 1)
        patient = 1
        while taken and patient:
            taken = yield swap("taken", 1)
            patient = yield choose(2)
        yield add("callers_waiting", -1)
        if taken and p.notifies_when_it_gives_up:
            yield notify("event_count")
    if taken:
        return
    yield store("asleep", 0)
    yield from take(own_only=True)
    # Caller::leave
    epoch = yield load("event_count")
    yield store("asleep", 1)
    if p.leaver_fences:
        yield fence()
    own = yield load("own ready")
    other = yield load("other ready")
    left = (own or other) and p.leaver_looks
    own = other = 0
    yield swap("taken", 0)
    notified = (yield load("event_count")) != epoch
    if left or (notified and p.notifies_again):
        yield notify("event_count")


def worker(p: Protocol) -> Thread:
    while True:
        epoch = yield load("event_count")
        waiting = yield load("callers_waiting")
        if not waiting and not (yield swap("taken", 1)):
            yield store("asleep", 0)
            epoch = yield from serve(p)
            yield swap("taken", 0)
        yield commit_wait("event_count", epoch)


def serve(p: Protocol) -> Generator[Op, Any, int]:
    """Work until there is none, or the slot is wanted; return the epoch to sleep with."""
    while True:
        epoch = yield load("event_count")
        waiting = yield load("callers_waiting")
        if waiting:
            yield store("asleep", 1)
            return epoch
        own = yield load("own ready")
        other = yield load("other ready")
        left_alone = 0
        if own and not other:
            left_alone = yield choose(2)  # for how long is a matter of the clock
        own = other = 0
        if not left_alone and (yield from take(own_only=False)):
            continue
        yield store("asleep", 1)
        yield from membarrier()
        own = yield load("own ready")
        other = yield load("other ready")
        stays = own or other
        if left_alone and not p.sleeper_looks:
            stays = other
        own = other = 0
        if not stays:
            return epoch
        yield store("asleep", 0)


def check(p: Protocol, others: bool) -> int:
    """Every call is served in the end."""
    words = {"own ready": 0, "other ready": 0, "calls": 0, "served": 0}
    words |= {"taken": 0, "asleep": 1, "event_count": 0, "callers_waiting": 0}
    threads = {"visitor": lambda: visitor(p), "worker": lambda: worker(p)}
    if others:
        threads["spawner"] = lambda: spawn("other")
    return explore(words, threads, lambda memory: memory["served"] == 1 + others, most=2_000_000)


@pytest.mark.parametrize("others", [False, True])
def test_every_call_is_served(others):
    assert check(Protocol(), others) > 100


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(sleeper_looks=False),
        Protocol(leaver_looks=False),
        Protocol(leaver_fences=False),
        Protocol(notifies_when_it_gives_up=False),
        Protocol(notifies_again=False),
    ],
    ids=str,
)
def test_a_call_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, others=True)
