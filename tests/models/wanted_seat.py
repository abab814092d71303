"""A thread in replay() would like seat 0, which its worker holds. Mirrors `Caller::work_until_done`, the part of
`Server::serve_as_worker` that looks at `attention`, and `Machine::work`. The caller's run may end without the caller;
work of another program comes up at any time. The caller's nap is short, so that it is no wait here.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.explorer import Thread, add, explore, fence, load, membarrier, ring, sleep, store, swap


@dataclass(frozen=True)
class Protocol:
    rings_when_it_gives_up: bool = True
    rings_when_it_leaves: bool = True
    worker_counts_callers: bool = True


def other_seat() -> Thread:
    """Ends the caller's run."""
    yield store("run", 1)


def submitter() -> Thread:
    yield store("frontier", 1)
    yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield ring("doorbell")


def caller(p: Protocol) -> Thread:
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
    if not seated:
        if p.rings_when_it_gives_up:
            yield ring("doorbell")
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


def worker(p: Protocol) -> Thread:
    while True:
        ticket = yield load("doorbell")
        taken = yield swap("taken", 1)
        if not taken:
            yield store("asleep", 0)
            while True:
                ticket = yield load("doorbell")
                asked = yield swap("attention", 0)
                if asked:
                    waiting = 1
                    if p.worker_counts_callers:
                        waiting = yield load("callers_waiting")
                    if waiting:
                        yield store("asleep", 1)
                        break
                frontier = yield load("frontier")
                done = yield load("done")
                if frontier > done:
                    yield store("done", frontier)
                    continue
                # fall_asleep
                yield store("asleep", 1)
                yield from membarrier()
                frontier = yield load("frontier")
                asked = yield load("attention")
                if frontier == done and not asked:
                    break
                yield store("asleep", 0)
            yield swap("taken", 0)
        yield sleep("doorbell", ticket)


def check(p: Protocol) -> int:
    words = {"run": 0, "frontier": 0, "done": 0, "asleep": 0, "taken": 0, "doorbell": 0}
    words |= {"callers_waiting": 0, "attention": 0}
    threads = {
        "caller": lambda: caller(p),
        "worker": lambda: worker(p),
        "submitter": submitter,
        "other seat": other_seat,
    }
    return explore(words, threads, lambda memory: memory["run"] == memory["done"] == 1)
