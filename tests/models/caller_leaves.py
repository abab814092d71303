"""A thread in replay() leaves seat 0 while another thread submits, and a third gives back a lane that it took over.
Mirrors `Caller::leave`, `Machine::sit`, `Machine::stand_up`, `Machine::work`, `Program::submit` and the end of
`Server::run`. The lane waits for the frontier, or is held by the visitor.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.explorer import Thread, explore, fence, load, membarrier, ring, sleep, store, swap, take


@dataclass(frozen=True)
class Protocol:
    rings: bool = True  # when work is left
    fences: bool = True
    counts_held_lanes: bool = True  # as work that is left
    stands_up_first: bool = True  # and rings then
    rings_again: bool = True  # for a worker that was rung before the seat was free


def caller(p: Protocol) -> Thread:
    """Holds the seat, awake; its own run is done."""
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
        yield ring("doorbell")
    if not p.stands_up_first:
        yield store("taken", 0)


def submitter() -> Thread:
    yield store("frontier", 1)
    yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield ring("doorbell")


def visitor() -> Thread:
    """Holds the lane's claim; it has found the lane blocked."""
    yield store("claim", 0)
    asleep = yield load("asleep")
    if asleep:
        yield ring("doorbell")


def worker() -> Thread:
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
        yield sleep("doorbell", ticket)


def check(p: Protocol, visited: bool) -> int:
    words = {"frontier": 0, "done": 0, "asleep": 0, "taken": 1, "claim": int(visited), "doorbell": 0}
    threads = {"caller": lambda: caller(p), "submitter": submitter, "worker": worker}
    if visited:
        threads["visitor"] = visitor
    return explore(words, threads, lambda memory: memory["done"] == 1)
