"""A thread in replay() leaves seat 0 while another thread submits, and a third gives back a lane that it took over.
Mirrors `Caller::leave`, `Machine::sit`, `Machine::stand_up`, `Machine::work`, `Program::submit`, the end of
`Server::run`. The lane waits for the frontier, and the caller has slept first, so that who rings may have woken it
alone (`Doorbell`); or the lane is held by the visitor, and the caller awake.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.explorer import Thread, add, explore, fence, load, membarrier, ring, sleep, store, swap, take


@dataclass(frozen=True)
class Protocol:
    rings: bool = True  # when work is left
    fences: bool = True
    counts_held_lanes: bool = True  # as work that is left
    stands_up_first: bool = True  # and rings then
    rings_again: bool = True  # for a worker that was rung before the seat was free
    first_no_more: bool = True  # who has woken up, before it looks at the ticket


def call(slept: bool) -> Thread:
    """`Doorbell::ring`: the worker, which sleeps until `wakes` goes on, is woken if nobody sleeps first."""
    if not slept:
        yield ring("doorbell")
        return
    yield add("doorbell", 1)
    first = yield load("first")
    if not first:
        yield ring("wakes")


def nap(ticket: int, slept: bool) -> Thread:
    """The worker's `Doorbell::sleep`: the futex looks at the ticket and sleeps in one."""
    if not slept:
        yield sleep("doorbell", ticket)
        return
    wakes = yield load("wakes")
    now = yield load("doorbell")
    if now == ticket:
        yield sleep("wakes", wakes)


def caller(p: Protocol, slept: bool) -> Thread:
    """Holds the seat; its own run is done."""
    if slept:
        if p.first_no_more:
            yield add("first", -1)
        yield store("asleep", 0)
    ticket = yield load("doorbell")
    yield store("asleep", 1)
    if p.fences:
        yield fence()
    left = False
    claim = yield load("claim")
    if claim:
        left = p.counts_held_lanes
    else:
        frontier = yield load("frontier")
        done = yield load("done")
        left = frontier > done
    if p.stands_up_first:
        yield swap("taken", 0)
        rings = yield load("doorbell")
        if rings != ticket and p.rings_again:
            left = True
    if left and p.rings:
        yield from call(slept)
    if not p.stands_up_first:
        yield store("taken", 0)
    if slept and not p.first_no_more:
        yield add("first", -1)


def submitter(slept: bool) -> Thread:
    yield store("frontier", 1)
    yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield from call(slept)


def visitor(slept: bool) -> Thread:
    """Holds the lane's claim; it has found the lane blocked."""
    yield store("claim", 0)
    asleep = yield load("asleep")
    if asleep:
        yield from call(slept)


def worker(slept: bool) -> Thread:
    while True:
        ticket = yield load("doorbell")
        taken = yield swap("taken", 1)
        if not taken:
            yield store("asleep", 0)
            while True:
                ticket = yield load("doorbell")
                took = yield take("claim", 0, 1)
                if took:
                    frontier = yield load("frontier")
                    done = yield load("done")
                    if frontier > done:
                        yield store("done", frontier)
                    yield store("claim", 0)
                    if frontier > done:
                        continue
                # fall_asleep
                yield store("asleep", 1)
                yield from membarrier()
                claim = yield load("claim")
                frontier = yield load("frontier")
                done = yield load("done")
                if claim or frontier == done:
                    break
                yield store("asleep", 0)
            yield store("taken", 0)
        yield from nap(ticket, slept)


def check(p: Protocol, visited: bool) -> int:
    slept = not visited
    words = {"frontier": 0, "done": 0, "asleep": int(slept), "taken": 1, "claim": int(visited)}
    words |= {"doorbell": 0, "first": int(slept), "wakes": 0}
    threads = {
        "caller": lambda: caller(p, slept),
        "submitter": lambda: submitter(slept),
        "worker": lambda: worker(slept),
    }
    if visited:
        threads["visitor"] = lambda: visitor(slept)
    return explore(words, threads, lambda memory: memory["done"] == 1)
