"""Every run is run once, and has the number of its step, whichever program runs it.

Threads submit runs to a program while another one of the same operations takes its place. Mirrors
`Program::submit`, `Program::switch_from` and `enter_next_run`, and in Python `Program._catch_up` and `Forms.enter`.
Two programs of one lane each, whose workers find that each run has the number of the step that the arrays are at.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, commit_wait, explore, load, lock, store, unlock

FIRST, SECOND = "first", "second"


@dataclass(frozen=True)
class Protocol:
    submit_looks: bool = True  # whether another program has taken over
    idle_only: bool = True
    hands_on_its_steps: bool = True
    own_steps_are_taken_off: bool = True


def submitter(p: Protocol, tries: int = 4) -> Thread:
    for _ in range(tries):
        name = yield load("present")  # as the program has it, which may be late
        yield lock(name + " mutex")
        passive = yield load(name + " passive")
        if passive and p.submit_looks:
            yield unlock(name + " mutex")
            yield lock("forms")  # catches up: which takes runs is the core's knowledge
            passive = yield load(FIRST + " passive")
            yield store("present", SECOND if passive else FIRST)
            yield unlock("forms")
            continue
        frontier = yield load(name + " frontier")
        yield store(name + " frontier", frontier + 1)
        yield unlock(name + " mutex")
        return


def worker(name: str, most: int) -> Thread:
    for done in range(most):
        yield commit_wait(name + " frontier", done)
        offset = yield load(name + " offset")
        step = yield load("step")  # that the arrays are at
        assert step == done - offset
        yield store("step", step + 1)
        yield lock(name + " mutex")
        yield store(name + " completed", done + 1)
        yield unlock(name + " mutex")


def retuner(p: Protocol, turns: tuple[tuple[str, str], ...]) -> Thread:
    for new, old in turns:
        yield lock("forms")
        serving = yield load("present")
        yield lock(FIRST + " mutex")  # of both, in one order
        yield lock(SECOND + " mutex")
        passive = yield load(old + " passive")
        frontier = yield load(old + " frontier")
        completed = yield load(old + " completed")
        if serving == old and not passive and (completed == frontier or not p.idle_only):
            offset = yield load(old + " offset")
            steps = completed - offset if p.hands_on_its_steps else 0
            own = yield load(new + " completed")
            yield store(new + " offset", (own if p.own_steps_are_taken_off else 0) - steps)
            yield store(new + " passive", 0)
            yield store(old + " passive", 1)
            serving = new
        yield unlock(SECOND + " mutex")
        yield unlock(FIRST + " mutex")
        yield store("present", serving)
        yield unlock("forms")


def check(p: Protocol, submitters: int = 2, turns: int = 2) -> int:
    words: dict[str, Hashable] = {"present": FIRST, "forms": 0, "step": 0}
    for name in (FIRST, SECOND):
        words |= {f"{name} {word}": 0 for word in ("mutex", "passive", "frontier", "completed", "offset")}
    words[SECOND + " passive"] = 1  # it stands by
    order = ((SECOND, FIRST), (FIRST, SECOND))[:turns]
    threads = {f"submitter {i}": lambda: submitter(p) for i in range(submitters)}
    threads |= {name: lambda name=name: worker(name, submitters) for name in (FIRST, SECOND)}
    threads["retuner"] = lambda: retuner(p, order)

    return explore(words, threads, lambda memory: memory["step"] == submitters)


@pytest.mark.parametrize(("submitters", "turns"), [(1, 2), (2, 1), (2, 2)])
def test_every_run_is_run_and_counted(submitters, turns):
    assert check(Protocol(), submitters, turns) > 10


@pytest.mark.parametrize(
    ("broken", "submitters", "turns"),
    [
        (Protocol(submit_looks=False), 2, 1),
        (Protocol(idle_only=False), 2, 1),
        (Protocol(hands_on_its_steps=False), 2, 1),
        (Protocol(own_steps_are_taken_off=False), 2, 2),
    ],
    ids=str,
)
def test_steps_go_wrong_without(broken, submitters, turns):
    with pytest.raises(ProtocolError):
        check(broken, submitters, turns)
