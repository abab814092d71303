"""A failure spreads to what comes after it, and nothing is run too early. Mirrors `Program::fail`, the loop of
`run_steps` and `run_stretch_slowly` (lane_loop.cpp), with `History`.

Three lanes of one step: `z` fails; `a` runs; then on the third lane `b`, which depends on both, and `d`, which depends
on `a` only, and whose wait was pruned because `b` of the same lane waits for `a` before.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.explorer import Thread, explore, load, store


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


def running() -> Thread:
    yield store("ran a", 1)
    yield store("timeline a", 1)


def third(p: Protocol) -> Thread:
    slow = 0
    if not p.flag_after_waits:
        slow = yield load("slow")
    value = yield load("timeline z")
    while not value:
        value = yield load("timeline z")
    skips = 0
    if not p.skipped_ops_wait:
        skips = yield load("poison z")
    value = yield load("timeline a")
    while not value and not skips:
        value = yield load("timeline a")
    if p.flag_after_waits:
        slow = yield load("slow")
    poisoned = 0
    if slow:
        poisoned = yield load("poison z")
    yield store("poison b", poisoned)
    if not poisoned:
        yield store("ran b", 1)
    ran = yield load("ran a")
    assert ran, "d runs before a"
    yield store("ran d", 1)


def check(p: Protocol) -> int:
    words = {f"{what} {op}": 0 for what in ("ran", "poison", "timeline") for op in "zabd"} | {"slow": 0}
    threads = {"z": lambda: failing(p), "a": running, "b, d": lambda: third(p)}
    return explore(words, threads, lambda memory: (memory["ran b"], memory["ran d"]) == (0, 1))
