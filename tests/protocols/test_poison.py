"""Exactly what comes after a failure is skipped, and order holds for all the rest.

A failure spreads to what comes after it, an abort to the rest of its run, and nothing is run too early. Mirrors
`Program::fail`, `Program::abort`, the loop of `run_steps` and `run_batch_slowly` (lane_loop.cpp), with `History`.

Lanes of one step: `z` fails, or the run is aborted; `a` runs; on the third lane `b`, which depends on both, then `d`,
which depends on neither; then `e`, which depends on `a` and `d`, on the same lane or on a fourth. It does not wait for
`a`: that is implied by its own lane, or by what `d` stands for. If the run is aborted, `d` and `e` are a later run's.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, explore, load, store


@dataclass(frozen=True)
class Protocol:
    skipped_ops_wait: bool = True
    flag_after_waits: bool = True
    marks_before_publish: bool = True


def failing(p: Protocol) -> Thread:
    if p.marks_before_publish:
        yield store("slow", 1)
        yield store("poison z", 1)
        yield store("timeline z", 1)
    else:
        yield store("timeline z", 1)
        yield store("slow", 1)
        yield store("poison z", 1)


def aborting() -> Thread:
    yield store("aborted", 1)
    yield store("slow", 1)


def waiting(op: str) -> Thread:
    value = yield load(f"timeline {op}")
    while not value:
        value = yield load(f"timeline {op}")


def running(aborts: bool) -> Thread:
    aborted = 0
    if aborts:
        aborted = yield load("aborted")
    if not aborted:
        yield store("ran a", 1)
    yield store("timeline a", 1)


def third(p: Protocol, aborts: bool, across: bool) -> Thread:
    slow = 0
    if not p.flag_after_waits:
        slow = yield load("slow")
    if not aborts:
        yield from waiting("z")
    skips = 0
    if not p.skipped_ops_wait:
        skips = yield load("aborted" if aborts else "poison z")
    if not skips:
        yield from waiting("a")
    if p.flag_after_waits:
        slow = yield load("slow")
    poisoned = 0
    if slow:
        poisoned = yield load("aborted" if aborts else "poison z")
    yield store("poison b", poisoned)
    if not poisoned:
        yield store("ran b", 1)
    yield store("timeline d", 1)
    if not across:
        yield from last()


def fourth() -> Thread:
    yield from waiting("d")
    yield from last()


def last() -> Thread:
    """Run `e`, whatever became of `b`."""
    over = yield load("timeline a")
    assert over, "e runs before a is over"
    yield store("ran e", 1)


def check(p: Protocol, aborts: bool = False, across: bool = False) -> int:
    """`aborts`: instead of a failure, the run is aborted. `across`: `e` is on a lane of its own."""
    words = {f"{what} {op}": 0 for what in ("ran", "poison", "timeline") for op in "zabde"} | {"slow": 0, "aborted": 0}
    threads = {"a": lambda: running(aborts), "third": lambda: third(p, aborts, across)}
    if aborts:
        threads["aborter"] = aborting
    else:
        threads["z"] = lambda: failing(p)
    if across:
        threads["fourth"] = fourth

    def good(memory):
        return memory["ran e"] == 1 and (aborts or (memory["ran a"], memory["ran b"]) == (1, 0))

    return explore(words, threads, good)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("aborts", [False, True])
def test_poison_is_exact(aborts, across):
    assert check(Protocol(), aborts, across) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(skipped_ops_wait=False),
        Protocol(flag_after_waits=False),
        Protocol(marks_before_publish=False),
    ],
    ids=str,
)
def test_poison_is_not_exact_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("aborts", [False, True])
def test_what_lanes_take_as_implied_is_not_true_where_skipped_ops_do_not_wait(aborts, across):
    with pytest.raises(ProtocolError, match="before a is over"):
        check(Protocol(skipped_ops_wait=False), aborts, across)
