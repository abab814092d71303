"""A thread in replay() would like seat 0, which its worker holds: it says so before it submits its run, and until it
sits there or the run is done. Mirrors `Caller`, the part of `Server::serve_as_worker` that looks at `callers_waiting`,
the beginning of `enter_next_run`, and `Machine::work`. What the run has to do is at home here or elsewhere; work of
another program comes up at any time. What is at home here is for the thread in replay(), not for the worker.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from models.explorer import Op, Thread, add, choose, explore, fence, load, membarrier, ring, sleep, store, swap


@dataclass(frozen=True)
class Protocol:
    rings_when_it_gives_up: bool = True
    rings_when_it_leaves: bool = True
    rings_who_waits: bool = True  # when the worker stands up
    waits_throughout: bool = True  # from before it submits on
    looks_before_entering: bool = True  # a run


def other_seat() -> Thread:
    """Ends the caller's run, where that has nothing to do on this seat."""
    yield store("run", 1)
    yield ring("finished")


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
        yield swap("attention", 1)
        patient = True
        while patient and not seated:
            taken = yield swap("taken", 1)
            seated = not taken
            patient = yield choose(2)
        if seated or not p.waits_throughout:
            yield add("callers_waiting", -1)
            if not seated:
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
        seated = yield from wait_for_seat(p)
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


def wait_for_seat(p: Protocol) -> Generator[Op, Any, bool]:
    if not p.waits_throughout:
        yield add("callers_waiting", 1)
        yield swap("attention", 1)
    yield store("listed", 1)  # under a mutex
    yield fence()
    seated = False
    while True:
        ticket = yield load("finished")
        run = yield load("run")
        if run:
            break
        taken = yield swap("taken", 1)
        seated = not taken
        if seated:
            break
        yield sleep("finished", ticket)
    yield add("callers_waiting", -1)
    if not seated and p.rings_when_it_gives_up:
        yield ring("doorbell")
    return seated


def worker(p: Protocol, elsewhere: bool) -> Thread:
    while True:
        ticket = yield load("doorbell")
        waiting = yield load("callers_waiting")
        if not waiting and not (yield swap("taken", 1)):
            yield store("asleep", 0)
            ticket = yield from serve(p, elsewhere)
            yield swap("taken", 0)
            waiting = yield load("callers_waiting")
            listed = yield load("listed")
            if waiting and listed and p.rings_who_waits:
                yield ring("finished")
        yield sleep("doorbell", ticket)


def serve(p: Protocol, elsewhere: bool) -> Generator[Op, Any, int]:
    """Work until there is none, or the seat is wanted; return the ticket to sleep with."""
    while True:
        ticket = yield load("doorbell")
        yield swap("attention", 0)
        if (yield load("callers_waiting")):
            yield store("asleep", 1)
            return ticket
        if (yield from something_to_do(elsewhere)):
            yield from do_it(p, elsewhere)
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


def do_it(p: Protocol, elsewhere: bool) -> Thread:
    frontier = yield load("frontier")
    yield store("done", frontier)
    if not elsewhere:
        submitted = yield load("submitted")
        waiting = yield load("callers_waiting")
        if submitted and not (waiting and p.looks_before_entering):
            run = yield load("run")
            assert run, "the worker runs what is for the thread in replay()"


def check(p: Protocol, elsewhere: bool) -> int:
    words = {"submitted": 0, "run": 0, "frontier": 0, "done": 0, "asleep": 0, "taken": 0, "doorbell": 0}
    words |= {"callers_waiting": 0, "attention": 0, "listed": 0, "finished": 0}
    threads = {
        "caller": lambda: caller(p, elsewhere),
        "worker": lambda: worker(p, elsewhere),
        "submitter": submitter,
    }
    if elsewhere:
        threads["other seat"] = other_seat
    return explore(words, threads, lambda memory: memory["run"] == memory["done"] == 1)
