"""Whoever stops a run, and whenever: all lanes run the same steps.

Stoppers end a run whose lanes go on all the while. Mirrors `Program::stop_locked`, `Program::stop_at` and the
start of a step in `run_steps`. The first step is 0; `bound` is one more than the steps, 0 while a stopper decides.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from explorer import Op, ProtocolError, Thread, explore, load, lock, membarrier, store, unlock


@dataclass(frozen=True)
class Protocol:
    heavy_fence: bool = True
    one_word: bool = True  # False: the limit, 0 while a stopper decides, and beside it a flag that says so
    reads_again: bool = True  # two words only: a lane that sees no stopper makes sure that the limit is the same
    verdict_first: bool = True  # a lane waits for the until operation's verdict before it reads the bound


def stopper(p: Protocol, lanes: int) -> Thread:
    yield lock("mutex")
    if p.one_word:
        bound = yield load("bound")
        limit = bound - 1
        yield store("bound", 0)
    else:
        limit = yield load("limit")
        yield store("stopping", 1)
        yield store("limit", 0)
    if p.heavy_fence:
        yield from membarrier()
    steps = 0
    for lane in range(lanes):
        entered = yield load(f"entered {lane}")
        if entered:
            begun = yield load(f"begun {lane}")
            steps = max(steps, begun + 1)
    if p.one_word:
        yield store("bound", min(steps, limit) + 1)
    else:
        yield store("limit", min(steps, limit))
        yield store("stopping", 0)
    yield unlock("mutex")


def may_begin(p: Protocol, lane: int, step: int) -> Generator[Op, Any, bool]:
    while True:
        yield store(f"begun {lane}", step)
        if p.one_word:
            bound = yield load("bound")
            if step + 1 < bound:
                return True
            if bound != 0:
                return False
        else:
            limit = yield load("limit")
            if step < limit:
                return True
            stopping = yield load("stopping")
            if not stopping:
                again = limit
                if p.reads_again:
                    again = yield load("limit")
                if again == limit:
                    return False
                continue
        yield lock("mutex")
        yield unlock("mutex")


def lane(p: Protocol, index: int, until: int | None) -> Thread:
    yield store(f"entered {index}", 1)
    step = 0
    while True:
        if until is not None and index != 0 and step > 0 and p.verdict_first:
            judged = yield load("judged")
            while judged < step:
                judged = yield load("judged")
        go = yield from may_begin(p, index, step)
        if until is not None and index != 0 and step > 0 and not p.verdict_first:
            judged = yield load("judged")
            while judged < step:
                judged = yield load("judged")
        if not go:
            break
        if until is not None and index == 0:
            if step == until:
                yield lock("mutex")
                bound = yield load("bound")
                if step + 1 < bound - 1:
                    yield store("bound", step + 2)
                yield unlock("mutex")
            yield store("judged", step + 1)
        step += 1
    yield store(f"ran {index}", step)


def check(p: Protocol, steps: int, lanes: int = 2, stoppers: int = 1, until: int | None = None) -> int:
    """All lanes run the same steps; with `until`, none after it; and no more than the run's bound says."""
    words = {"bound": steps + 1, "limit": steps, "stopping": 0, "mutex": 0, "judged": 0}
    for i in range(lanes):
        words |= {f"begun {i}": 0, f"entered {i}": 0, f"ran {i}": -1}
    threads = {f"lane {i}": lambda i=i: lane(p, i, until) for i in range(lanes)}
    threads |= {f"stopper {i}": lambda: stopper(p, lanes) for i in range(stoppers)}

    def good(memory):
        ran = {memory[f"ran {i}"] for i in range(lanes)}
        limit = memory["bound"] - 1 if p.one_word else memory["limit"]
        return ran == {limit} and (until is None or limit <= until + 1)

    return explore(words, threads, good)


@pytest.mark.parametrize(("steps", "lanes", "stoppers"), [(2, 2, 1), (2, 1, 2), (1, 2, 2)])
def test_all_lanes_run_the_same_steps(steps, lanes, stoppers):
    assert check(Protocol(), steps, lanes, stoppers) > 10


@pytest.mark.parametrize("stoppers", [0, 1])
def test_no_lane_goes_past_the_verdict(stoppers):
    assert check(Protocol(), steps=3, stoppers=stoppers, until=1) > 10


def test_lanes_part_without_the_fence():
    with pytest.raises(ProtocolError):
        check(Protocol(heavy_fence=False), steps=1)


def test_the_verdict_must_be_known_before_the_bound_is_read():
    with pytest.raises(ProtocolError):
        check(Protocol(verdict_first=False), steps=3, stoppers=0, until=1)


def test_a_flag_beside_the_limit_must_be_read_with_care():
    with pytest.raises(ProtocolError):
        check(Protocol(one_word=False, reads_again=False), steps=1)


def test_a_flag_beside_the_limit_does_for_one_stopper_only():
    check(Protocol(one_word=False), steps=1)
    with pytest.raises(ProtocolError):
        check(Protocol(one_word=False), steps=1, lanes=1, stoppers=2)
