"""A run gets the same phases of a given barrier, however far the runs before it have come.

Runs are given a barrier while earlier ones arrive at it, wait, and end. Mirrors `Barrier::attend`, `arrive` and
`leave` (barrier.cpp), `Program::submit` and `Program::end_locked`. A run's base must not depend on how far the earlier
runs have come. All runs are of one step.

The barrier's fields are one word here, since its mutex guards all of them; they are read and written under one hold.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from explorer import Op, ProtocolError, Thread, choose, explore, load, lock, store, unlock

ARRIVALS = 2


@dataclass(frozen=True)
class Protocol:
    at_submission: bool = True  # else a run gets its base when a lane enters it
    attends_in_one_hold: bool = True  # looks which phase it belongs to, and attends
    counts_expected: bool = True  # arrivals that attending runs are still to make
    counts_waits: bool = True  # phases that an earlier run of the same program waits for
    notes_in_one_hold: bool = True  # makes an arrival, and no longer expects it of its run
    leaves_last: bool = True  # after the run's arrivals and waits
    leaves_before_done: bool = True
    leaving_looks_again: bool = True  # phases below which all was expected may lack something now


@dataclass(frozen=True)
class Scenario:
    """Two or three runs in the order of submission, and the bases that they must get."""

    bases: tuple[int, ...]
    count: int  # arrivals of each run
    waits: bool = False
    cancelled: int = 0  # so many of the first runs are submitted, and then end without arrivals, before the next
    others: int = 0  # arrivals of another thread, one in each phase
    arrives: int = 0  # those of the submitting thread, after it has submitted all runs
    submitters: int = 1  # threads that submit one run each, of programs of their own, if more than one


class Attending(NamedTuple):
    run: int
    base: int
    count: int
    waits: bool
    program: int


class Barrier(NamedTuple):
    phase: int = 0
    arrived: tuple[int, ...] = (0, 0, 0, 0)
    attending: tuple[Attending, ...] = ()
    made: frozenset[int] = frozenset()  # runs whose arrivals are noted
    expected_below: int = 0

    def expects_all(self, p: Protocol, phase: int) -> bool:
        left = ARRIVALS - self.arrived[phase]
        if p.counts_expected:
            left -= sum(run.count for run in self.attending if run.base == phase and run.run not in self.made)
        return left <= 0

    def base_of(self, p: Protocol, count: int, program: int) -> tuple[int, int]:
        """The base, and below which phase all is expected."""
        base, below = self.phase, self.expected_below
        if count:
            base = max(base, below)
            while self.expects_all(p, base):
                base += 1
            below = base
        ends = [run.base + 1 for run in self.attending if run.waits and run.program == program and p.counts_waits]
        return max([base, *ends]), below

    def arrive(self, phase: int, count: int) -> Barrier:
        assert self.phase <= phase, f"an arrival in phase {phase}, which is complete"
        assert self.arrived[phase] + count <= ARRIVALS, f"too many arrivals in phase {phase}"
        arrived = tuple(n + count * (i == phase) for i, n in enumerate(self.arrived))
        done = self.phase
        while done < len(arrived) and arrived[done] == ARRIVALS:
            done += 1
        return self._replace(arrived=arrived, phase=done)


def attend(p: Protocol, s: Scenario, run: int, program: int) -> Thread:
    yield lock("mutex")
    barrier = yield load("barrier")
    base, below = barrier.base_of(p, s.count, program)
    if not p.attends_in_one_hold:
        yield unlock("mutex")
        yield lock("mutex")
        barrier = yield load("barrier")
    own = Attending(run, base, s.count, s.waits, program)
    yield store("barrier", barrier._replace(attending=(*barrier.attending, own), expected_below=below))
    yield store(f"base {run}", base)
    yield unlock("mutex")


def submit(p: Protocol, s: Scenario, run: int, program: int) -> Thread:
    if p.at_submission:
        yield from attend(p, s, run, program)
    yield store(f"submitted {run}", 1)


def submitter(p: Protocol, s: Scenario) -> Thread:
    for run in range(len(s.bases)):
        yield from submit(p, s, run, 0)
        awaits = run + 1 == s.cancelled
        if s.cancelled <= run < len(s.bases) - 1:
            awaits = yield choose(2)
        if awaits:
            yield from until(f"done {run}")
    for _ in range(s.arrives):
        yield from arrive_now()


def until(word: str) -> Thread:
    reached = yield load(word)
    while not reached:
        reached = yield load(word)


def lanes(p: Protocol, s: Scenario, runs: range) -> Thread:
    for run in runs:
        yield from until(f"submitted {max(run, s.cancelled - 1)}")
        if not p.at_submission:
            yield from attend(p, s, run, 0)
        if not p.leaves_last:
            yield from leave(p, run)
        base = yield load(f"base {run}")
        if run >= s.cancelled:
            yield from take_part(p, s, run, base)
        if p.leaves_last and p.leaves_before_done:
            yield from leave(p, run)
        yield store(f"done {run}", 1)
        if p.leaves_last and not p.leaves_before_done:
            yield from leave(p, run)


def take_part(p: Protocol, s: Scenario, run: int, base: int) -> Thread:
    if s.count:
        yield lock("mutex")
        barrier = yield load("barrier")
        barrier = barrier.arrive(base, s.count)
        if not p.notes_in_one_hold:
            yield store("barrier", barrier)
            yield unlock("mutex")
            yield lock("mutex")
            barrier = yield load("barrier")
        yield store("barrier", barrier._replace(made=barrier.made | {run}))
        yield unlock("mutex")
    if s.waits:
        yield from complete(base)


def complete(phase: int) -> Generator[Op, Any, None]:
    barrier = yield load("barrier")
    while barrier.phase <= phase:
        barrier = yield load("barrier")


def leave(p: Protocol, run: int) -> Thread:
    yield lock("mutex")
    barrier = yield load("barrier")
    attending = tuple(other for other in barrier.attending if other.run != run)
    below = 0 if p.leaving_looks_again else barrier.expected_below
    yield store("barrier", barrier._replace(attending=attending, expected_below=below))
    yield unlock("mutex")


def other(s: Scenario) -> Thread:
    """The other party, which arrives in a phase once the one before is complete."""
    for phase in range(s.others):
        if phase:
            yield from complete(phase - 1)
        yield from arrive_now()


def arrive_now() -> Thread:
    yield lock("mutex")
    barrier = yield load("barrier")
    barrier = barrier.arrive(barrier.phase, 1)
    yield store("barrier", barrier)
    yield unlock("mutex")


def check(p: Protocol, s: Scenario) -> int:
    runs = range(len(s.bases))
    words: dict[str, Any] = {"mutex": 0, "barrier": Barrier()}
    words |= {f"{word} {run}": 0 for run in runs for word in ("submitted", "base", "done")}
    if s.submitters > 1:
        threads = {f"submitter {run}": lambda run=run: submit(p, s, run, run) for run in runs}
        threads |= {f"lanes {run}": lambda run=run: lanes(p, s, range(run, run + 1)) for run in runs}
    else:
        threads = {"submitter": lambda: submitter(p, s), "lanes": lambda: lanes(p, s, runs)}
    if s.others:
        threads["other"] = lambda: other(s)

    def good(memory):
        bases = [memory[f"base {run}"] for run in runs]
        if s.submitters > 1:
            bases.sort()  # who comes first is open
        return tuple(bases) == s.bases and all(memory[f"done {run}"] for run in runs)

    return explore(words, threads, good)


SCENARIOS = {
    "runs that share a phase": Scenario((0, 0), count=1),
    "runs that fill a phase each": Scenario((0, 1), count=2),
    "runs that wait for another party": Scenario((0, 1), count=1, waits=True, others=2),
    "a run after a cancelled one": Scenario((0, 0), count=2, cancelled=1),
    "a run after two cancelled ones": Scenario((0, 1, 0), count=2, cancelled=2),
    "programs that fill a phase each": Scenario((0, 1), count=2, submitters=2),
    "a phase that is complete once the run was submitted": Scenario((0,), count=0, waits=True, arrives=2),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_runs_get_their_phases(scenario):
    assert check(Protocol(), SCENARIOS[scenario]) > 10


@pytest.mark.parametrize(
    ("broken", "scenario"),
    [
        (Protocol(at_submission=False), "a phase that is complete once the run was submitted"),
        (Protocol(attends_in_one_hold=False), "programs that fill a phase each"),
        (Protocol(counts_expected=False), "runs that fill a phase each"),
        (Protocol(counts_waits=False), "runs that wait for another party"),
        (Protocol(notes_in_one_hold=False), "runs that share a phase"),
        (Protocol(leaves_last=False), "runs that wait for another party"),
        (Protocol(leaves_before_done=False), "a run after a cancelled one"),
        (Protocol(leaving_looks_again=False), "a run after two cancelled ones"),
    ],
    ids=str,
)
def test_their_phases_depend_on_timing_without(broken, scenario):
    with pytest.raises(ProtocolError):
        check(broken, SCENARIOS[scenario])
