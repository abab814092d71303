"""A run goes on once its event has happened, in whatever order events do.

Runs are submitted before the events that start them have happened; these do in any order, and a run is cancelled.
Mirrors `Program::enqueue_locked`, `queued`, `start_locked` and `cancel`, and `enter_next_run` (lane_loop.cpp).

A lane looks at one timeline, `started`: it stands at the last run up to which all have started. So has a cancelled run:
lanes pass through it without a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, explore, load, lock, store, unlock


@dataclass(frozen=True)
class Protocol:
    in_order: bool = True  # the timeline counts; else it is set to the run that has started
    locks: bool = True
    cancel_counts: bool = True  # a cancelled run as started
    always_listens: bool = True  # where the event had not happened under the lock, even if it has afterwards


def start(p: Protocol, run: int) -> Thread:
    """With the lock."""
    yield store(f"run {run} started", 1)
    started = yield load("started")
    upto = max(started, run)
    if p.in_order:
        upto = started
        ended = yield load("ended")
        frontier = yield load("frontier")
        for pending in range(ended + 1, frontier + 1):
            has = yield load(f"run {pending} started")
            if not has:
                break
            upto = max(upto, pending)
    if upto != started:
        yield store("started", upto)


def told(p: Protocol, run: int) -> Thread:
    """What a run's event calls."""
    if p.locks:
        yield lock("program")
    yield from start(p, run)
    if p.locks:
        yield unlock("program")


def event(p: Protocol, run: int) -> Thread:
    yield lock(f"mutex of event {run}")
    yield store(f"event {run}", 1)
    listeners = yield load(f"listeners of event {run}")
    yield unlock(f"mutex of event {run}")
    if listeners:
        yield from told(p, run)


def submitter(p: Protocol, runs: int) -> Thread:
    for run in range(1, runs + 1):
        yield lock("program")
        happened = yield load(f"event {run}")
        waits = not happened
        if waits:
            yield store(f"run {run} waits", 1)
        else:
            yield store(f"run {run} started", 1)
        yield store("frontier", run)
        yield unlock("program")
        if waits and not p.always_listens:
            happened = yield load(f"event {run}")
            waits = not happened
        if waits:
            yield lock(f"mutex of event {run}")
            happened = yield load(f"event {run}")
            if not happened:
                yield store(f"listeners of event {run}", 1)
            yield unlock(f"mutex of event {run}")
            if happened:
                yield from told(p, run)


def canceller(p: Protocol, run: int) -> Thread:
    frontier = 0
    while frontier < run:
        frontier = yield load("frontier")
    yield lock("program")
    ended = yield load("ended")
    if ended < run:
        yield store(f"run {run} cancelled", 1)
        started = yield load(f"run {run} started")
        if not started and p.cancel_counts:
            yield from start(p, run)
    yield unlock("program")


def lane(runs: int) -> Thread:
    for run in range(1, runs + 1):
        frontier = 0
        while frontier < run:
            frontier = yield load("frontier")
        waits = yield load(f"run {run} waits")
        started = 0
        while waits and started < run:
            started = yield load("started")
        happened = yield load(f"event {run}")
        cancelled = yield load(f"run {run} cancelled")
        assert happened or cancelled, f"run {run} goes on before its event"
        yield lock("program")
        yield store("ended", run)
        yield unlock("program")


def check(p: Protocol, runs: int, cancelled: int | None = None) -> int:
    """`cancelled`: a run that is, and whose event does not happen."""
    words = {"program": 0, "frontier": 0, "started": 0, "ended": 0}
    threads = {"submitter": lambda: submitter(p, runs), "lane": lambda: lane(runs)}
    for run in range(1, runs + 1):
        words |= {f"event {run}": 0, f"mutex of event {run}": 0, f"listeners of event {run}": 0}
        words |= {f"run {run} waits": 0, f"run {run} started": 0, f"run {run} cancelled": 0}
        if run != cancelled:
            threads[f"event {run}"] = lambda run=run: event(p, run)
    if cancelled is not None:
        threads["canceller"] = lambda: canceller(p, cancelled)
    return explore(words, threads, lambda memory: memory["ended"] == runs)


@pytest.mark.parametrize("cancelled", [None, 1, 2])
def test_runs_start_in_time(cancelled):
    assert check(Protocol(), 2, cancelled) > 10


@pytest.mark.parametrize(
    ("broken", "cancelled"),
    [
        (Protocol(in_order=False), None),
        (Protocol(locks=False), None),
        (Protocol(cancel_counts=False), 1),
        (Protocol(always_listens=False), None),
    ],
    ids=str,
)
def test_runs_start_too_early_or_never_without(broken, cancelled):
    with pytest.raises(ProtocolError):
        check(broken, 2, cancelled)
