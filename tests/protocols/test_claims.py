"""A lane is served by one server at a time, from where the last one left it.

Two servers pass two lanes to and fro while two runs of one step are in flight. Mirrors `Lane::try_claim`,
`Worker::run` and the cursor of `run_steps`.

Lane B's operation waits for lane A's of the same step. Each operation also comes after its own of the step before,
which nobody waits for: the lane's order holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, choose, explore, load, store, take

RUNS = 2


@dataclass(frozen=True)
class Protocol:
    cursor_per_lane: bool = True  # else one a run and lane: the server takes up any run that is not through the lane
    claim_is_atomic: bool = True
    claim_last: bool = True  # it is given back after all else was written


def server(p: Protocol) -> Thread:
    left = 2 * RUNS
    while left:
        left = 0
        for lane in "AB":
            passed = yield load(f"timeline {lane}")
            left += RUNS - passed
            took = False
            if passed < RUNS:
                if p.claim_is_atomic:
                    took = yield take(f"claim {lane}", 0, 1)
                else:
                    claim = yield load(f"claim {lane}")
                    took = not claim
                    yield store(f"claim {lane}", 1)
            if took:
                yield from serve(p, lane)


def serve(p: Protocol, lane: str) -> Thread:
    """With the claim: run the next operation, if it is ready."""
    if p.cursor_per_lane:
        step = yield load(f"cursor {lane}")
    else:
        step = yield choose(RUNS)
        passed = yield load(f"cursor {lane} of run {step}")
        if passed:
            step = RUNS
    ready = step < RUNS
    if ready and lane == "B":
        value = yield load("timeline A")
        ready = value > step
    if ready:
        inside = yield load(f"inside {lane}")
        assert not inside, f"two servers in lane {lane}"
        yield store(f"inside {lane}", 1)
        yield from body(lane, step)
        value = yield load(f"timeline {lane}")
        yield store(f"timeline {lane}", value + 1)
        if not p.claim_last:
            yield store(f"claim {lane}", 0)
        yield store(f"inside {lane}", 0)
        if p.cursor_per_lane:
            yield store(f"cursor {lane}", step + 1)
        else:
            yield store(f"cursor {lane} of run {step}", 1)
    if p.claim_last or not ready:
        yield store(f"claim {lane}", 0)


def body(lane: str, step: int) -> Thread:
    if step > 0:
        before = yield load(f"ran {lane} {step - 1}")
        assert before, f"step {step} of lane {lane} before the step before"
    if lane == "B":
        before = yield load(f"ran A {step}")
        assert before, f"step {step} of lane B before that of lane A"
    ran = yield load(f"ran {lane} {step}")
    assert not ran, f"step {step} of lane {lane} twice"
    yield store(f"ran {lane} {step}", 1)


def check(p: Protocol) -> int:
    words = {f"{what} {lane}": 0 for what in ("claim", "cursor", "inside", "timeline") for lane in "AB"}
    words |= {f"ran {lane} {step}": 0 for lane in "AB" for step in range(RUNS)}
    words |= {f"cursor {lane} of run {run}": 0 for lane in "AB" for run in range(RUNS)}
    threads = {"first server": lambda: server(p), "second server": lambda: server(p)}
    return explore(words, threads, lambda memory: memory["timeline A"] == memory["timeline B"] == RUNS)


def test_lanes_keep_their_order():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken",
    [Protocol(cursor_per_lane=False), Protocol(claim_is_atomic=False), Protocol(claim_last=False)],
    ids=str,
)
def test_lanes_do_not_keep_their_order_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
