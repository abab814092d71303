"""A request that is withdrawn leaves the reservation to others, held by nobody who does not know of it.

A lane requests a reservation, and takes the request back when its run is aborted, while a holder releases it.
Mirrors `AcquireOp::advance` and `ReleaseOp::skip` (reservation_ops.cpp), and `Reservation::acquire`, `release`,
`withdraw` and `grant`.

Grants are decided under the mutex, and told by events after it is let go.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, explore, load, lock, store, unlock


@dataclass(frozen=True)
class Protocol:
    heeds_answer: bool = True  # a request that can no longer be withdrawn is granted, though the event has not happened
    grants_those_behind: bool = True  # when a request is withdrawn


def grant() -> Thread:
    """With the lock; then lets go of it, and tells."""
    queue = yield load("queue")
    held = yield load("held")
    granted = ()
    while queue and (not held or (held[0][1] == queue[0][1] == "shared")):
        held = (*held, queue[0])
        granted = (*granted, queue[0][0])
        queue = queue[1:]
    yield store("queue", queue)
    yield store("held", held)
    yield unlock("mutex")
    for name in granted:
        yield store(f"{name} told", 1)


def request(name: str, how: str) -> Thread:
    yield lock("mutex")
    queue = yield load("queue")
    yield store("queue", (*queue, (name, how)))
    yield from grant()


def release(name: str) -> Thread:
    yield lock("mutex")
    held = yield load("held")
    assert any(holder == name for holder, _ in held), f"{name} does not hold it"
    yield store("held", tuple(holder for holder in held if holder[0] != name))
    yield from grant()


def wait(word: str) -> Thread:
    value = yield load(word)
    while not value:
        value = yield load(word)


def lane(p: Protocol) -> Thread:
    yield from request("lane", "exclusive")
    told, aborted = 0, 0
    while not told and not aborted:
        told = yield load("lane told")
        aborted = yield load("aborted")
    if not told:
        yield lock("mutex")
        queue = yield load("queue")
        withdrawn = ("lane", "exclusive") in queue
        yield store("queue", tuple(waiting for waiting in queue if waiting[0] != "lane"))
        if p.grants_those_behind:
            yield from grant()
        else:
            yield unlock("mutex")
        if withdrawn or not p.heeds_answer:
            return
    yield from release("lane")


def aborter() -> Thread:
    yield store("aborted", 1)


def holder(how: str) -> Thread:
    """Of two who share it, the first holds it until the second does, too."""
    if how == "shared":
        yield from wait("second told")
    yield from release("first")


def second(how: str) -> Thread:
    yield from request("second", how)
    yield from wait("second told")
    yield from release("second")


def check(p: Protocol, how: str) -> int:
    """`how`: the first holder holds it, and the second requests it, ``"shared"`` or ``"exclusive"``."""
    words = {"mutex": 0, "queue": (), "held": (("first", how),), "aborted": 0}
    words |= {"first told": 1, "second told": 0, "lane told": 0}
    threads = {"first": lambda: holder(how), "second": lambda: second(how), "lane": lambda: lane(p), "aborter": aborter}
    return explore(words, threads, lambda memory: memory["held"] == memory["queue"] == ())


@pytest.mark.parametrize("how", ["exclusive", "shared"])
def test_everybody_gets_the_reservation_and_gives_it_back(how):
    assert check(Protocol(), how) > 10


@pytest.mark.parametrize(
    ("broken", "how"),
    [(Protocol(heeds_answer=False), "exclusive"), (Protocol(grants_those_behind=False), "shared")],
    ids=str,
)
def test_it_is_held_forever_without(broken, how):
    with pytest.raises(ProtocolError):
        check(broken, how)
