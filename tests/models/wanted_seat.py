"""A thread in replay() would like seat 0, which its worker holds: before it submits its run it asks for a short while,
and after that until the run is done. Mirrors `Caller::Caller`, `ask` and `work_until_done`, the part of
`Server::serve_as_worker` that looks at `attention`, and `Machine::work`. What the run has to do is at home here or
elsewhere; work of another program comes up at any time. The caller's nap is short, so that it is no wait here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from models.explorer import Op, Thread, add, choose, explore, fence, load, membarrier, ring, sleep, store, swap


@dataclass(frozen=True)
class Protocol:
    rings_after_asking: bool = True
    rings_when_it_gives_up: bool = True
    rings_when_it_leaves: bool = True
    worker_counts_callers: bool = True


def other_seat() -> Thread:
    """Ends the caller's run, where that has nothing to do on this seat."""
    yield store("run", 1)


def submitter() -> Thread:
    yield store("frontier", 1)
    yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield ring("doorbell")


def caller(p: Protocol, elsewhere: bool) -> Thread:
    taken = yield swap("taken", 1)
    seated = not taken
    if not seated:
        yield add("callers_waiting", 1)
        patient = True
        while patient and not seated:
            yield swap("attention", 1)
            taken = yield swap("taken", 1)
            seated = not taken
            patient = yield choose(2)
        yield add("callers_waiting", -1)
        if not seated and p.rings_after_asking:
            yield ring("doorbell")
    if seated:
        yield store("asleep", 0)
    if not elsewhere:
        yield store("submitted", 1)
        yield fence()
        asleep = yield load("asleep")
        if asleep:
            yield ring("doorbell")
    if not seated:
        seated = yield from waiting_for_the_seat(p)
    if not seated:
        return
    yield store("asleep", 0)
    yield store("run", 1)
    # Caller::leave, see caller_leaves
    ticket = yield load("doorbell")
    yield store("asleep", 1)
    yield fence()
    frontier = yield load("frontier")
    done = yield load("done")
    yield swap("taken", 0)
    rings = yield load("doorbell")
    if (frontier > done or rings != ticket) and p.rings_when_it_leaves:
        yield ring("doorbell")


def waiting_for_the_seat(p: Protocol) -> Generator[Op, Any, bool]:
    run = yield load("run")
    if run:
        return False
    yield add("callers_waiting", 1)
    seated = False
    while not seated:
        run = yield load("run")
        if run:
            break
        taken = yield swap("taken", 1)
        seated = not taken
        if not seated:
            yield swap("attention", 1)
    yield add("callers_waiting", -1)
    if not seated and p.rings_when_it_gives_up:
        yield ring("doorbell")
    return seated


def worker(p: Protocol, elsewhere: bool) -> Thread:
    while True:
        ticket = yield load("doorbell")
        if not (yield swap("taken", 1)):
            yield store("asleep", 0)
            ticket = yield from serve(p, elsewhere)
            yield swap("taken", 0)
        yield sleep("doorbell", ticket)


def serve(p: Protocol, elsewhere: bool) -> Generator[Op, Any, int]:
    """Work until there is none, or the seat is wanted; return the ticket to sleep with."""
    while True:
        ticket = yield load("doorbell")
        if (yield swap("attention", 0)) and (not p.worker_counts_callers or (yield load("callers_waiting"))):
            yield store("asleep", 1)
            return ticket
        if (yield from something_to_do(elsewhere)):
            yield from do_it(elsewhere)
            continue
        # fall_asleep
        yield store("asleep", 1)
        yield from membarrier()
        if not (yield from something_to_do(elsewhere)) and not (yield load("attention")):
            return ticket
        yield store("asleep", 0)


def something_to_do(elsewhere: bool) -> Generator[Op, Any, bool]:
    frontier = yield load("frontier")
    done = yield load("done")
    if frontier > done or elsewhere:
        return frontier > done
    submitted = yield load("submitted")
    run = yield load("run")
    return submitted > run


def do_it(elsewhere: bool) -> Thread:
    frontier = yield load("frontier")
    yield store("done", frontier)
    if not elsewhere:
        submitted = yield load("submitted")
        if submitted:
            yield store("run", 1)


def check(p: Protocol, elsewhere: bool) -> int:
    words = {"submitted": 0, "run": 0, "frontier": 0, "done": 0, "asleep": 0, "taken": 0, "doorbell": 0}
    words |= {"callers_waiting": 0, "attention": 0}
    threads = {
        "caller": lambda: caller(p, elsewhere),
        "worker": lambda: worker(p, elsewhere),
        "submitter": submitter,
    }
    if elsewhere:
        threads["other seat"] = other_seat
    return explore(words, threads, lambda memory: memory["run"] == memory["done"] == 1)
