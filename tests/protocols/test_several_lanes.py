"""All lanes pass through the same runs in the same order.

Two threads submit a run each to a program of two lanes. Mirrors `Program::submit`, `enter_next_run`, `leave_run` and
`Program::finish`: the last lane that leaves a run says that it is done. How slots that sleep learn of a run is
`submitting`'s; here lanes look at the frontier all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, add, explore, load, lock, store, unlock

RUNS = LANES = 2


@dataclass(frozen=True)
class Protocol:
    one_queue: bool = True  # else each lane has its own, and a run is appended to one after the other
    links_first: bool = True  # the run is linked before the frontier is published


def submitter(p: Protocol, run: str) -> Thread:
    for lane in range(1 if p.one_queue else LANES):
        yield lock("program")
        frontier = yield load(f"frontier {lane}")
        if p.links_first:
            yield store(f"run {lane} {frontier + 1}", run)
        yield store(f"frontier {lane}", frontier + 1)
        if not p.links_first:
            yield store(f"run {lane} {frontier + 1}", run)
        yield unlock("program")


def server(p: Protocol, lane: int) -> Thread:
    queue = 0 if p.one_queue else lane
    for index in range(1, RUNS + 1):
        frontier = 0
        while frontier < index:
            frontier = yield load(f"frontier {queue}")
        run = yield load(f"run {queue} {index}")
        assert run, "a run that is not linked"
        first = yield load(f"index of {run}")
        assert first in (0, index), f"lanes pass through {run} in different order"
        yield store(f"index of {run}", index)
        before = yield add(f"lanes left of {run}", -1)
        if before == 1:
            completed = yield load("completed")
            assert completed == index - 1, "the second run is done before the first"
            yield store("completed", index)


def check(p: Protocol) -> int:
    words = {"program": 0, "completed": 0}
    words |= {f"frontier {lane}": 0 for lane in range(LANES)}
    words |= {f"run {lane} {index}": None for lane in range(LANES) for index in range(1, RUNS + 1)}
    threads = {}
    for run in ("the blue run", "the red run"):
        words |= {f"index of {run}": 0, f"lanes left of {run}": LANES}
        threads[f"submitter of {run}"] = lambda run=run: submitter(p, run)
    threads |= {f"lane {lane}": lambda lane=lane: server(p, lane) for lane in range(LANES)}
    return explore(words, threads, lambda memory: memory["completed"] == RUNS)


def test_lanes_pass_through_runs_in_one_order():
    assert check(Protocol()) > 10


@pytest.mark.parametrize("broken", [Protocol(one_queue=False), Protocol(links_first=False)], ids=str)
def test_lanes_lose_runs_or_their_order_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
