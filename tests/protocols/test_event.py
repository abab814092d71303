"""An event ends once, and everybody who listens or sleeps is told, once.

An event is triggered and poisoned at once while threads leave listeners, and one sleeps until it is done. Mirrors
`Event::end`, `add`, `listen` (event.cpp) and `wait_until_done` (caller.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, add, commit_wait, explore, load, lock, notify, store, unlock


@dataclass(frozen=True)
class Protocol:
    ends_once: bool = True  # who ends it looks whether it has ended, and ends it, under one hold of the mutex
    listens_locked: bool = True  # who listens looks whether it has ended, and adds itself, under one hold
    reason_first: bool = True  # before the state
    notifies_last: bool = True  # after the state


def ender(p: Protocol, state: int) -> Thread:
    if not p.ends_once:
        ended = yield load("state")
        if ended:
            return
    yield lock("mutex")
    if p.ends_once:
        ended = yield load("state")
        if ended:
            yield unlock("mutex")
            return
    if not p.notifies_last:
        yield notify("event_count")
    if p.reason_first:
        yield store("reason", state)
    yield store("state", state)
    if not p.reason_first:
        yield store("reason", state)
    listeners = yield load("listeners")
    yield store("listeners", frozenset())
    yield unlock("mutex")
    if p.notifies_last:
        yield notify("event_count")
    yield add("ends", 1)
    for listener in sorted(listeners):
        yield from called(listener)


def called(listener: str) -> Thread:
    state = yield load("state")
    reason = yield load("reason")
    assert state, f"{listener} is called too early"
    assert reason == state, f"{listener} does not find why"
    yield add(f"calls of {listener}", 1)


def listening(p: Protocol, listener: str) -> Thread:
    if not p.listens_locked:
        state = yield load("state")
        if state:
            yield from called(listener)
            return
    yield lock("mutex")
    if p.listens_locked:
        state = yield load("state")
        if state:
            yield unlock("mutex")
            yield from called(listener)
            return
    listeners = yield load("listeners")
    yield store("listeners", listeners | {listener})
    yield unlock("mutex")


def sleeper() -> Thread:
    while True:
        epoch = yield load("event_count")
        state = yield load("state")
        if state:
            break
        yield commit_wait("event_count", epoch)
    reason = yield load("reason")
    assert reason == state, "the sleeper does not find why"
    yield store("woke", 1)


def check(p: Protocol, listeners: int, sleeps: bool) -> int:
    names = [f"listener {i}" for i in range(listeners)]
    words = {"state": 0, "reason": 0, "listeners": frozenset(), "mutex": 0, "event_count": 0, "ends": 0}
    words |= {"woke": int(not sleeps)}
    words |= {f"calls of {name}": 0 for name in names}
    threads = {"trigger": lambda: ender(p, 1), "poison": lambda: ender(p, 2)}
    threads |= {name: lambda name=name: listening(p, name) for name in names}
    if sleeps:
        threads["sleeper"] = sleeper

    def good(memory):
        return memory["ends"] == memory["woke"] == 1 and all(memory[f"calls of {name}"] == 1 for name in names)

    return explore(words, threads, good)


@pytest.mark.parametrize(("listeners", "sleeps"), [(2, False), (1, True)])
def test_everybody_is_told_once(listeners, sleeps):
    assert check(Protocol(), listeners, sleeps) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(ends_once=False),
        Protocol(listens_locked=False),
        Protocol(reason_first=False),
        Protocol(notifies_last=False),
    ],
    ids=str,
)
def test_not_everybody_is_told_once_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, listeners=1, sleeps=True)
