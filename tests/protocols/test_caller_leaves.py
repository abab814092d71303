"""What a caller leaves behind on its slot, the slot's worker takes up.

A thread in replay() leaves slot 0 while another thread submits, and a third gives back a lane that it took over.
Mirrors `Caller::leave`, `Machine::take_slot`, `Machine::leave_slot`, `Machine::work`, `Program::submit`, the end of
`Worker::run`. The lane waits for the frontier, and the caller has slept first, so that who notifies may have woken it
alone (`EventCount`); or the lane is held by the visitor, and the caller awake.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import (
    ProtocolError,
    Thread,
    add,
    commit_wait,
    explore,
    fence,
    load,
    membarrier,
    notify,
    store,
    swap,
    take,
)


@dataclass(frozen=True)
class Protocol:
    notifies: bool = True  # when work is left
    fences: bool = True
    counts_held_lanes: bool = True  # as work that is left
    stands_up_first: bool = True  # and notifies then
    notifies_again: bool = True  # for a worker that was notified before the slot was free
    first_no_more: bool = True  # who has woken up, before it looks at the epoch


def call(slept: bool) -> Thread:
    """`EventCount::notify`: the worker, which sleeps until `wakes` goes on, is woken if nobody sleeps first."""
    if not slept:
        yield notify("event_count")
        return
    yield add("event_count", 1)
    first = yield load("first")
    if not first:
        yield notify("wakes")


def nap(epoch: int, slept: bool) -> Thread:
    """The worker's `EventCount::sleep`: the futex looks at the epoch and sleeps in one."""
    if not slept:
        yield commit_wait("event_count", epoch)
        return
    wakes = yield load("wakes")
    now = yield load("event_count")
    if now == epoch:
        yield commit_wait("wakes", wakes)


def caller(p: Protocol, slept: bool) -> Thread:
    """Holds the slot; its own run is done."""
    if slept:
        if p.first_no_more:
            yield add("first", -1)
        yield store("asleep", 0)
    epoch = yield load("event_count")
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
        notifies = yield load("event_count")
        if notifies != epoch and p.notifies_again:
            left = True
    if left and p.notifies:
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
        epoch = yield load("event_count")
        taken = yield swap("taken", 1)
        if not taken:
            yield store("asleep", 0)
            while True:
                epoch = yield load("event_count")
                took = yield take("claim", 0, 1)
                if took:
                    frontier = yield load("frontier")
                    done = yield load("done")
                    if frontier > done:
                        yield store("done", frontier)
                    yield store("claim", 0)
                    if frontier > done:
                        continue
                # prepare_wait
                yield store("asleep", 1)
                yield from membarrier()
                claim = yield load("claim")
                frontier = yield load("frontier")
                done = yield load("done")
                if claim or frontier == done:
                    break
                yield store("asleep", 0)
            yield store("taken", 0)
        yield from nap(epoch, slept)


def check(p: Protocol, visited: bool) -> int:
    slept = not visited
    words = {"frontier": 0, "done": 0, "asleep": int(slept), "taken": 1, "claim": int(visited)}
    words |= {"event_count": 0, "first": int(slept), "wakes": 0}
    threads = {
        "caller": lambda: caller(p, slept),
        "submitter": lambda: submitter(slept),
        "worker": lambda: worker(slept),
    }
    if visited:
        threads["visitor"] = lambda: visitor(slept)
    return explore(words, threads, lambda memory: memory["done"] == 1)


@pytest.mark.parametrize("visited", [False, True])
def test_the_worker_takes_up_what_is_left(visited):
    assert check(Protocol(), visited) > 10


@pytest.mark.parametrize(
    ("broken", "visited"),
    [
        (Protocol(notifies=False), False),
        (Protocol(fences=False), False),
        (Protocol(stands_up_first=False), False),
        (Protocol(notifies_again=False), False),
        (Protocol(first_no_more=False), False),
        (Protocol(counts_held_lanes=False), True),
    ],
    ids=str,
)
def test_work_is_left_lying_without(broken, visited):
    with pytest.raises(ProtocolError):
        check(broken, visited)
