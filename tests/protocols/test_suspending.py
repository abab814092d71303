"""A program that is taken off the lists comes back when what its lanes wait for happens.

A worker suspends a program while what the program's lane waits for happens, and while the lane's own worker looks
at its list and falls asleep. Mirrors `Machine::suspend_waiting`, `resume`, `give_back`, `refresh`, `wake_waiters`,
`Program::submit` and `prepare_wait`. The lane waits for a signal, which is published, or for the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import (
    ProtocolError,
    Thread,
    commit_wait,
    explore,
    fence,
    load,
    lock,
    membarrier,
    notify,
    store,
    take,
    unlock,
)


@dataclass(frozen=True)
class Protocol:
    heavy_fence: bool = True
    looks_again: bool = True  # when it is registered: at what the lane waits for
    resumes: bool = True  # who publishes
    notifies: bool = True  # who gives the claim back, if the program has been listed meanwhile


def resume(p: Protocol) -> Thread:
    """Under the parking mutex."""
    yield store("registered", 0)
    yield lock("machine")
    suspended = yield load("suspended")
    if suspended:
        yield store("suspended", 0)
        yield store("listed", 1)
        version = yield load("version")
        yield store("version", version + 1)
    yield unlock("machine")
    if suspended:
        yield fence()
        asleep = yield load("asleep")
        if asleep:
            yield notify("event_count")


def activate(p: Protocol) -> Thread:
    listed = yield load("listed")
    if not listed:
        yield lock("parking")
        yield from resume(p)
        yield unlock("parking")


def publisher(p: Protocol) -> Thread:
    yield store("value", 1)
    waits = yield load("slot_registered")
    if waits:
        yield notify("event_count")
    registered = yield load("registered")
    if registered and p.resumes:
        yield lock("parking")
        registered = yield load("registered")
        if registered:
            yield from resume(p)
        yield unlock("parking")


def submitter(p: Protocol) -> Thread:
    yield store("value", 1)
    yield fence()
    yield from activate(p)
    asleep = yield load("asleep")
    if asleep:
        yield notify("event_count")


def suspender(p: Protocol, signal: bool) -> Thread:
    """The worker of another slot."""
    yield lock("parking")
    took = yield take("claim", 0, 1)
    if took:
        value = yield load("value")
        waits = not value
        if waits:
            yield lock("machine")
            yield store("listed", 0)
            yield store("suspended", 1)
            version = yield load("version")
            yield store("version", version + 1)
            yield unlock("machine")
            if signal:
                yield store("registered", 1)
        yield unlock("parking")
        if waits:
            if p.heavy_fence:
                yield from membarrier()
            value = yield load("value")
            if value and p.looks_again:
                yield from activate(p)
        yield store("claim", 0)
        listed = yield load("listed")
        asleep = yield load("asleep")
        if listed and asleep and p.notifies:
            yield notify("event_count")
    else:
        yield unlock("parking")


def worker(signal: bool) -> Thread:
    """Of the lane's slot; its copy of the list names the program."""
    mine, known = 1, 0
    while True:
        version = took = value = claim = registered = stays = 0  # dead: they would only multiply states
        epoch = yield load("event_count")
        version = yield load("version")
        if version != known:
            yield lock("machine")
            mine = yield load("listed")
            known = yield load("version")
            yield unlock("machine")
        if mine:
            took = yield take("claim", 0, 1)
            if took:
                value = yield load("value")
                if value:
                    yield store("done", 1)
                yield store("claim", 0)
                if value:
                    return
        took = value = version = 0
        # prepare_wait
        yield store("asleep", 1)
        registered = 0
        if mine and signal:
            claim = yield load("claim")
            registered = not claim
            if registered:
                yield store("slot_registered", 1)
        yield from membarrier()
        version = yield load("version")
        stays = version != known
        if mine and not stays:
            claim = yield load("claim")
            if not claim:
                value = yield load("value")
                stays = value or (signal and not registered)
        if not stays:
            yield commit_wait("event_count", epoch)
        yield store("asleep", 0)
        if registered:
            yield store("slot_registered", 0)


def check(p: Protocol, signal: bool) -> int:
    words = dict.fromkeys(("value", "done", "claim", "asleep", "event_count", "registered", "slot_registered"), 0)
    words |= {"listed": 1, "suspended": 0, "version": 0, "parking": 0, "machine": 0}
    threads = {
        "happens": lambda: publisher(p) if signal else submitter(p),
        "suspender": lambda: suspender(p, signal),
        "worker": lambda: worker(signal),
    }
    return explore(words, threads, lambda memory: memory["done"] == 1)


@pytest.mark.slow
@pytest.mark.parametrize("signal", [False, True])
def test_what_a_suspended_program_waits_for_lists_it_again(signal):
    assert check(Protocol(), signal) > 10


@pytest.mark.parametrize(
    ("broken", "signal"),
    [
        (Protocol(heavy_fence=False), True),
        (Protocol(looks_again=False), True),
        (Protocol(looks_again=False), False),
        (Protocol(resumes=False), True),
        (Protocol(notifies=False), True),
    ],
    ids=str,
)
def test_a_lane_is_lost_without(broken, signal):
    with pytest.raises(ProtocolError):
        check(broken, signal)
