"""Every run that is submitted is served.

Threads submit runs while the worker retires the idle program and falls asleep. Mirrors `Program::submit`,
`Machine::activate`, `Machine::notify_slots`, `Machine::retire`, `Machine::refresh`, `Worker::serve_as_worker` and
`prepare_wait`. One program with one lane; the worker serves it only while its own copy of the list names it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from explorer import (
    Op,
    ProtocolError,
    Thread,
    commit_wait,
    explore,
    fence,
    load,
    lock,
    membarrier,
    notify,
    store,
    unlock,
)


@dataclass(frozen=True)
class Protocol:
    submit_fences: bool = True
    retire_looks_again: bool = True
    retire_fences: bool = True
    heavy_fence: bool = True
    sleeper_reads_version: bool = True
    sleeper_reads_frontier: bool = True


def submitter(p: Protocol) -> Thread:
    yield lock("program")
    frontier = yield load("frontier")
    yield store("frontier", frontier + 1)
    yield unlock("program")
    if p.submit_fences:
        yield fence()
    active = yield load("active")
    if not active:
        yield lock("machine")
        active = yield load("active")
        if not active:
            yield store("listed", 1)
            yield store("active", 1)
            version = yield load("version")
            yield store("version", version + 1)
        yield unlock("machine")
        yield fence()
    asleep = yield load("asleep")
    if asleep:
        yield notify("event_count")


def worker(p: Protocol, most_retires: int) -> Thread:
    mine, known, done, retires = 0, 0, 0, 0  # the slot's copy of the list and its version
    while True:
        epoch = yield load("event_count")
        if (yield load("version")) != known:
            yield lock("machine")
            mine = yield load("listed")
            known = yield load("version")
            yield unlock("machine")
        if mine and (yield load("frontier")) > done:
            done += 1
            yield store("completed", done)
            continue
        if mine and retires < most_retires and (yield load("active")):
            retires += 1
            yield lock("machine")
            yield store("active", 0)
            if p.retire_fences:
                yield fence()
            if (yield load("frontier")) > done and p.retire_looks_again:
                yield store("active", 1)
            else:
                yield store("listed", 0)
                version = yield load("version")
                yield store("version", version + 1)
            yield unlock("machine")
        yield store("asleep", 1)
        if p.heavy_fence:
            yield from membarrier()
        if not (yield from something_new(p, mine, known, done)):
            yield commit_wait("event_count", epoch)
        yield store("asleep", 0)


def something_new(p: Protocol, mine: int, known: int, done: int) -> Generator[Op, Any, bool]:
    version = yield load("version")
    if version != known and p.sleeper_reads_version:
        return True
    frontier = done
    if mine and p.sleeper_reads_frontier:
        frontier = yield load("frontier")
    return frontier > done


def check(p: Protocol, submitters: int = 2, retires: int = 1) -> int:
    words = {"frontier": 0, "completed": 0, "active": 0, "listed": 0, "version": 0, "asleep": 0, "event_count": 0}
    words |= {"program": 0, "machine": 0}
    threads = {f"submitter {i}": lambda: submitter(p) for i in range(submitters)}
    threads["worker"] = lambda: worker(p, retires)
    return explore(words, threads, lambda memory: memory["completed"] == submitters)


@pytest.mark.parametrize(("submitters", "retires"), [(1, 2), (2, 1)])
def test_every_run_is_served(submitters, retires):
    assert check(Protocol(), submitters, retires) > 10


@pytest.mark.parametrize(
    ("broken", "submitters"),
    [
        (Protocol(submit_fences=False), 2),
        (Protocol(retire_looks_again=False), 2),
        (Protocol(retire_fences=False), 2),
        (Protocol(heavy_fence=False), 1),
        (Protocol(sleeper_reads_version=False), 1),
        (Protocol(sleeper_reads_frontier=False), 2),
    ],
    ids=str,
)
def test_a_run_is_lost_without(broken, submitters):
    with pytest.raises(ProtocolError):
        check(broken, submitters)
