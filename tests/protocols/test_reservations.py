"""Reservations are taken in program order within a program, and by whoever comes first between programs.

Two lanes of a program use one reservation, and so does another program. Mirrors `compiler/reservations.py`, which
orders a program's acquires and releases as they were recorded, step after step, and `Reservation::acquire` and
`release`: first come, first served.

The program's step: acquire, `a`, release, then `c`, all on the first lane; acquire, `b`, release on the second. `a` and
`b` take turns at something that only the reservation guards.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, add, explore, load, store


@dataclass(frozen=True)
class Protocol:
    program_order: bool = True  # else a lane requests the reservation when it gets there
    across_steps: bool = True  # the first acquire of a step comes after the last release of the step before


def guarded(name: str) -> Thread:
    request = yield add("requests", 1)
    grants = yield load("released")
    while grants < request:
        grants = yield load("released")
    inside = yield load("inside")
    assert not inside, f"{name} and {inside} hold the reservation"
    yield store("inside", name)


def release(name: str) -> Thread:
    yield store("inside", "")
    yield add("released", 1)


def wait(op: str, step: int) -> Thread:
    done = yield load(op)
    while done < step:
        done = yield load(op)


def first(p: Protocol, steps: int) -> Thread:
    for step in range(steps):
        if p.program_order and p.across_steps:
            yield from wait("second release", step)
        yield from guarded("a")
        turns = yield load("turns")
        yield store("turns", turns + "a")
        yield from release("a")
        yield store("first release", step + 1)
        yield store("c", step + 1)


def second(p: Protocol, steps: int, depends: bool) -> Thread:
    for step in range(steps):
        if p.program_order:
            yield from wait("first release", step + 1)
        yield from guarded("b")
        if depends:
            yield from wait("c", step + 1)
        turns = yield load("turns")
        yield store("turns", turns + "b")
        yield from release("b")
        yield store("second release", step + 1)


def other_program(steps: int) -> Thread:
    for _ in range(steps):
        yield from guarded("the other program")
        yield from release("the other program")


def check(p: Protocol, depends: bool, steps: int = 2) -> int:
    """`depends`: b waits for c, too."""
    words = {"requests": 0, "released": 0, "inside": "", "turns": ""}
    words |= {"first release": 0, "second release": 0, "c": 0}
    threads = {
        "first lane": lambda: first(p, steps),
        "second lane": lambda: second(p, steps, depends),
        "other program": lambda: other_program(steps),
    }
    return explore(words, threads, lambda memory: memory["turns"] == "ab" * steps)


@pytest.mark.parametrize("depends", [False, True])
def test_the_program_does_as_it_was_recorded(depends):
    assert check(Protocol(), depends) > 10


@pytest.mark.parametrize("broken", [Protocol(program_order=False), Protocol(across_steps=False)], ids=str)
def test_the_first_to_come_is_not_always_the_same_without(broken):
    with pytest.raises(ProtocolError, match="a bad end"):
        check(broken, depends=False)


def test_the_first_to_come_waits_for_who_waits_for_the_reservation():
    with pytest.raises(ProtocolError, match="no end"):
        check(Protocol(program_order=False), depends=True, steps=1)
