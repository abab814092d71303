"""A lane publishes; seats that polled in vain park. Mirrors `publish`, `wake_waiters` (timeline.h, parking.cpp),
`fall_asleep` with `register_lane` and `covered`, `wake_up` with `unregister`, `Server::serve_as_worker`, and the end of
a machine, whose seats nobody may ring any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.explorer import Thread, add, explore, fence, load, lock, membarrier, ring, sleep, store, unlock

NEVER = 99


@dataclass(frozen=True)
class Protocol:
    """What the two sides do; all true is what the core does."""

    asymmetric: bool = True  # False: where membarrier is refused, both sides fence
    heavy_fence: bool = True
    looks_again: bool = True
    ticket_first: bool = True
    sets_least: bool = True  # to the least value left, when waiters are woken
    counts_under_lock: bool = True  # ringers, which ring without it
    waits_for_ringers: bool = True  # before seats end


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
    taken = tuple(sorted(seat for seat, until in waiters if until <= value))
    waiters = frozenset((seat, until) for seat, until in waiters if until > value)
    yield store("waiters", waiters)
    yield store("least_sleeper", set_least(waiters) if p.sets_least else NEVER)
    if p.counts_under_lock:
        yield add("ringers", 1)
    yield unlock("parking")
    if not p.counts_under_lock:
        yield add("ringers", 1)
    for seat in taken:
        ended = yield load("ended")
        if ended:
            yield store("rung too late", 1)
        yield ring(f"doorbell {seat}")
    yield add("ringers", -1)


def worker(p: Protocol, seat: str, until: int) -> Thread:
    """Its lane waits for the timeline to reach `until`."""
    ticket = 0
    while True:
        if p.ticket_first:
            ticket = yield load(f"doorbell {seat}")
        value = yield load("value")
        if value >= until:
            break
        yield lock("parking")
        waiters = yield load("waiters")
        waiters = waiters | {(seat, until)}
        yield store("waiters", waiters)
        least = yield load("least_sleeper")
        if until < least:
            yield store("least_sleeper", until)
        yield unlock("parking")
        yield from heavy_fence(p)
        if p.looks_again:
            value = yield load("value")
        if value < until:
            if not p.ticket_first:
                ticket = yield load(f"doorbell {seat}")
            yield sleep(f"doorbell {seat}", ticket)
        yield lock("parking")
        waiters = yield load("waiters")
        waiters = frozenset(waiter for waiter in waiters if waiter[0] != seat)
        yield store("waiters", waiters)
        yield store("least_sleeper", set_least(waiters))
        yield unlock("parking")
    yield add("arrived", 1)


def last_of_a_machine(p: Protocol, seat: str, until: int) -> Thread:
    """Its seat ends with it."""
    yield from worker(p, seat, until)
    if p.waits_for_ringers:
        yield lock("ringers")  # waits until it is 0
    yield store("ended", 1)


def check(p: Protocol, *targets: int, ends: bool = False) -> int:
    """Go through all interleavings of a publisher and a seat for each of `targets`, which may end their machine."""
    seats = {f"seat {i}": target for i, target in enumerate(targets)}
    words = {"value": 0, "least_sleeper": NEVER, "parking": 0, "waiters": frozenset(), "arrived": 0}
    words |= {"ringers": 0, "ended": 0, "rung too late": 0}
    sitting = last_of_a_machine if ends else worker
    words |= {f"doorbell {seat}": 0 for seat in seats}
    threads = {"publisher": lambda: publisher(p, max(targets))}
    threads |= {seat: lambda seat=seat, until=until: sitting(p, seat, until) for seat, until in seats.items()}
    return explore(words, threads, lambda memory: memory["arrived"] == len(seats) and not memory["rung too late"])
