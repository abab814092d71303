"""Random worlds: programs, spawned tasks, events, barriers and reservations that are linked at random, without circles.

Everything is planned beforehand, in an order in which each thing needs only what is before it; then several threads
submit, trigger, poison and arrive at once, and what has become of all is compared with the oracle.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from stress.oracle import Ask, Oracle, Told
from stress.scene import STEPS, Features, Scene

PATIENCE = float(os.environ.get("OSTINATO_STRESS_PATIENCE", "90"))  # seconds


@dataclass
class Part:
    """A scene with its program."""

    scene: Scene
    oracle: Oracle
    program: Any
    runs: str
    team: bool
    held: tuple[ost.Reservation, bool] | None = None
    planned: int = 0  # steps
    used: bool = False

    def conditions(self) -> list[str]:
        return self.scene.top.names("pre")


class Signal:
    """Something that happens outside, or is poisoned: an event, or a phase of a barrier."""

    def __init__(self, random: Random, poisoned: bool) -> None:
        self.poisoned = poisoned
        self.fired = False
        self._arrivals = 0 if poisoned else random.choice([0, 0, 1, 3])
        self._barrier = ost.Barrier(max(self._arrivals, 1))
        self._event = ost.UserEvent()

    def __repr__(self) -> str:
        return f"<signal, {'poisoned' * self.poisoned}, {'fired' * self.fired}>"

    def event(self) -> Any:
        return self._barrier.event(0) if self._arrivals else self._event

    def fire(self) -> None:
        self.fired = True
        for _ in range(self._arrivals):
            self._barrier.arrive()
        if self._arrivals:
            return
        if self.poisoned:
            self._event.poison(ValueError("poisoned"))
        else:
            self._event.trigger()


@dataclass
class Merged:
    """Several at once."""

    gates: list[Any]
    ignore: bool

    @property
    def poisoned(self) -> bool:
        return not self.ignore and any(gate.poisoned for gate in self.gates)

    def event(self) -> Any:
        return ost.merge(*(gate.event() for gate in self.gates), ignore_poison=self.ignore)


@dataclass
class End:
    """The end of an act: the run itself, its event, or one of its postconditions."""

    act: Act
    what: str
    post: str = ""

    @property
    def poisoned(self) -> bool:
        return self.act.posts[self.post] if self.what == "post" else self.act.poisoned

    def __repr__(self) -> str:
        return f"{self.what} {self.post} of {self.act.number}"

    def event(self) -> Any:
        assert self.act.submitted.wait(PATIENCE), "what a run comes after was never submitted"
        run = self.act.run
        return run if self.what == "run" else run.event if self.what == "event" else run.posts[self.post]


@dataclass(repr=False)
class Act:
    """A run of a program, or a spawned task, in the plan."""

    number: int
    part: Part | None
    steps: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    odds: int = 0
    gates: dict[str | None, Any] = field(default_factory=dict)
    floor: int = 0
    gate: Any = None  # what blocking tasks wait for
    replays: bool = False
    given: Any = None  # a barrier
    count: int = 1
    nested: bool = False  # a spawned task that spawns another
    run: Any = None
    told: Told | None = None
    poisoned: bool = False
    posts: dict[str, bool] = field(default_factory=dict)
    submitted: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> Ask:
        poisoned = frozenset(name for name, gate in self.gates.items() if gate.poisoned)
        return Ask(self.number, self.steps, self.seed, self.odds, poisoned)


class World:
    """Programs on a machine, and what links them.

    Attributes
    ----------
    ops
        How many operations have been done.
    over
        Whether it can go no further: programs that meet at a barrier have not made equally many steps.
    """

    def __init__(self, random: Random, machine: ost.Machine, how: str) -> None:
        self.random = random
        self.machine = machine
        self.how = how  # "exact", "stop" or "mayhem"
        self.ops = 0
        self.cpus = sum(each.kind == "cpu" for each in machine.processors)
        self.holders = np.zeros(4, np.int64)
        self.reservations = tuple(ost.Reservation() for _ in range(random.choice([0, 0, 1, 2])))
        self.parts: list[Part] = []
        self.team: list[Part] = []
        self.phases = 0
        self.over = False
        self._numbers = 0
        if how != "stop" and random.random() < 0.35:
            self._add_team()
        for _ in range(random.choice([1, 1, 2, 3]) - bool(self.team)):
            runs = random.choice(["pipelined"] * 3 + ["serial", "concurrent", "once"])
            self._add_part(runs, self._features(runs))
        if self.reservations and random.random() < 0.5:
            held = random.randrange(len(self.reservations)), random.random() < 0.5
            self._add_part("concurrent", Features(arrays=False, ports=False, nested=False, held=held))

    def _features(self, runs: str, barriers: tuple[Any, ...] = ()) -> Features:
        random = self.random
        return Features(
            arrays=runs != "concurrent",
            ports=random.random() < 0.6,
            nested=random.random() < 0.5,
            reservations=self.reservations if random.random() < 0.7 else (),
            barriers=barriers,
            given_barrier=self.how == "exact" and random.random() < 0.2,
            blocking=random.random() < 0.15,
            until=self.how == "exact" and not barriers and runs in ("pipelined", "serial") and random.random() < 0.1,
        )

    def _add_team(self) -> None:
        """Programs that arrive at one barrier, and wait there for each other, step by step."""
        counts = [self.random.choice([0, 1, 1, 2]) for _ in range(2)]
        self.outside = self.random.choice([0, 0, 1]) if any(counts) else 1
        self.barrier = ost.Barrier(sum(counts) + self.outside)
        for count in counts:
            self._add_part("pipelined", self._features("pipelined", ((self.barrier, count),)), team=True)
        self.team = [part for part in self.parts if part.team]

    def _add_part(self, runs: str, features: Features, team: bool = False) -> None:
        random = self.random
        scene = Scene(random, self.cpus, features, self.holders)
        oracle = Oracle(scene)
        program = scene.top.graph.compile(self.machine, runs=runs, lanes=random.randint(1, self.cpus))
        held = None if features.held is None else (self.reservations[features.held[0]], features.held[1])
        self.parts.append(Part(scene, oracle, program, runs, team, held))

    # The plan

    def plan(self) -> tuple[list[Act], list[Signal]]:
        """Return acts and signals for a batch."""
        random = self.random
        healthy = random.random() < 0.4
        signals = [Signal(random, not healthy and random.random() < 0.2) for _ in range(random.randint(1, 4))]
        acts: list[Act] = []
        for part in self.parts:
            part.used = part.used and part.runs == "once"
        for _ in range(random.choice([1, 3, 6, 12])):
            part = random.choice([*self.parts, None])
            if part is None:
                acts.append(self._spawned(acts, signals, healthy))
            elif part.team:
                steps = random.choice([1, 2, 5, 10])
                before = list(acts)
                for each in self.team:
                    self._add_run(each, steps, before, acts, signals, healthy)
            elif not (part.used and (part.runs == "once" or self.how == "stop")):
                self._add_run(part, random.choice([0, 1, 1, 2, 5, 20, 40]), list(acts), acts, signals, healthy)
        return acts, signals

    def _add_run(
        self, part: Part, steps: int, before: list[Act], acts: list[Act], signals: list[Signal], healthy: bool
    ) -> None:
        random = self.random
        if part.planned + steps >= STEPS - 4:
            return
        act = self._act(part)
        act.steps = steps
        act.floor = -1 if self.how == "mayhem" else part.planned if part.runs == "concurrent" else part.oracle.steps
        part.planned += steps
        part.used = True
        act.options = {
            "priority": random.randint(-1, 1),
            "profile": self.how != "mayhem" and random.random() < 0.15,
            "on_error": random.choice({"exact": ["continue"], "stop": ["stop"]}.get(self.how, ["stop", "continue"])),
        }
        if not healthy and random.random() < 0.5:
            act.seed, act.odds = random.randrange(2**31), random.choice([3, 20, 100, 1000])
        names = part.conditions()
        act.gates = {name: self._gate(part, before, signals) for name in names}
        if random.random() < 0.6 and not act.gates:
            act.gates[None] = self._gate(part, before, signals)
        elif random.random() < 0.5 and (sound := [s for s in signals if not s.poisoned]):
            act.gates[None] = random.choice(sound)
        if not steps:  # what a run of nothing does with poison is left open
            act.gates = {name: Merged([], False) for name in names}
        sound = [s for s in signals if not s.poisoned]
        act.gate = random.choice(sound) if sound and random.random() < 0.7 else None
        plain = part.runs != "serial" and not part.team and part.held is None
        act.replays = plain and healthy and self.how == "exact" and random.random() < 0.2
        if part.scene.features.given_barrier:
            act.count = random.choice([1, 2, 5])
            act.given = ost.Barrier(act.count, "+", 5)
        acts.append(act)

    def _act(self, part: Part | None) -> Act:
        self._numbers += 1
        return Act(self._numbers, part)

    def _spawned(self, acts: list[Act], signals: list[Signal], healthy: bool) -> Act:
        act = self._act(None)
        act.gates = {None: self._gate(None, acts, signals)} if self.random.random() < 0.6 else {}
        act.odds = 0 if healthy else self.random.choice([0, 0, 0, 1])
        act.nested = self.random.random() < 0.3
        act.options = {"priority": self.random.randint(-1, 1)}
        if self.random.random() < 0.3:
            act.options["on"] = f"cpu:{self.random.randrange(self.cpus)}"
        return act

    def _gate(self, part: Part | None, before: list[Act], signals: list[Signal]) -> Any:
        """Something that comes before: a signal, or what earlier acts give."""
        random = self.random
        if part is not None and (part.runs == "serial" or self.how == "stop"):
            return random.choice(signals)  # what happens then is known
        earlier = [a for a in before if not (self.team and a.part is not None and a.part.runs == "serial")]
        if self.how == "stop":
            earlier = [a for a in earlier if a.part is None]
        earlier = [a for a in earlier if not a.replays]
        found = []
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            if not earlier or random.random() < 0.4:
                found.append(random.choice(signals))
                continue
            act = random.choice(earlier)
            posts = act.part.scene.top.names("post") if act.part is not None and act.steps else []
            what = random.choice(["run", "event", *(["post"] * 3 * bool(posts))])
            found.append(End(act, what, random.choice(posts) if what == "post" else ""))
        return found[0] if len(found) == 1 else Merged(found, random.random() < 0.3)

    # The play

    def play(self) -> None:
        """Plan a batch, and have it done by several threads."""
        random = self.random
        acts, signals = self.plan()
        self._acts, self._signals = acts, signals
        self._order: list[Act] = []
        self._pending: list[Act] = []
        self._lock = threading.Lock()
        errors: list[BaseException] = []
        first = self.phases
        if self.team and self.how == "exact":
            self._tell([act for act in acts if act.part is None or act.part.runs != "serial"])
        submitters = random.choice([1, 1, 2, 3])
        of = {id(part): random.randrange(submitters) for part in self.parts}
        shares = [[act for act in acts if of.get(id(act.part), 0) == k] for k in range(submitters)]
        jobs: list[Callable[[], None]] = [partial(self._submit_all, share, Random(random.random())) for share in shares]
        fired = random.sample(signals, len(signals))
        for k in range(half := random.choice([1, 2])):
            jobs.append(partial(self._fire_all, fired[k::half], Random(random.random())))
        if self.team:
            exact = self.how == "exact"
            jobs.append(partial(self._arrive, self._missing(acts, first)) if exact else partial(self._unstick, acts))
        if self.how == "mayhem":
            jobs.append(partial(self._cancel, acts, Random(random.random())))
        threads = [threading.Thread(target=_guarded, args=(job, errors)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        {"exact": self._check, "stop": self._check_stopped, "mayhem": self._check_ends}[self.how](acts)
        for reservation in self.reservations:
            reservation.acquire().wait(PATIENCE)  # free when all runs have ended
            reservation.release()
        assert not self.holders.any()

    def _submit_all(self, acts: list[Act], random: Random) -> None:
        for act in acts:
            if random.random() < 0.2:
                time.sleep(random.random() * 1e-3)
            try:
                self._submit(act)
            finally:
                act.submitted.set()

    def _submit(self, act: Act) -> None:
        part = act.part
        after = {name: gate.event() for name, gate in act.gates.items()}
        if part is None:
            task, options = _nested if act.nested else _alone, act.options | {"after": after.get(None)}
            act.run = self.machine.spawn(task, self.machine, act.number, act.odds, **options)
            return
        given: Any = after.get(None) if set(after) <= {None} else after
        if part.held is not None:
            given = part.held[0].acquire(part.held[1], given)
        params = {"run": act.number, "floor": act.floor, "seed": act.seed, "odds": act.odds}
        params = {name: value for name, value in params.items() if name in part.scene.top.graph.params}
        if part.scene.features.given_barrier:
            params |= {"barrier": act.given, "count": act.count}
        if "gate" in part.scene.top.graph.params:
            params["gate"] = None if act.gate is None else act.gate.event()
        if act.replays:
            options = {name: value for name, value in act.options.items() if name != "profile"}
            ran = part.program.replay(act.steps, after=given, params=params, **options)
            act.run = _Done(ran)
            return
        if part.runs != "serial":
            act.run = part.program.submit(act.steps, after=given, params=params, **act.options)
        else:
            with self._lock:
                act.run = part.program.submit(act.steps, after=given, params=params, **act.options)
                self._pending.append(act)
                self._note_order()
        if part.held is not None:
            part.held[0].release(after=act.run)

    def _note_order(self) -> None:
        """Serial runs go in the order in which their events happen, ties by submission."""
        for act in list(self._pending):
            if None not in act.gates or act.gates[None].fired:
                self._pending.remove(act)
                self._order.append(act)

    def _fire_all(self, signals: list[Signal], random: Random) -> None:
        for signal in signals:
            if random.random() < 0.6:
                time.sleep(random.random() * 3e-3)
            with self._lock:
                signal.fire()
                self._note_order()

    def _missing(self, acts: list[Act], first: int) -> list[tuple[int, int]]:
        """Which phases of the team's barrier lack how many arrivals."""
        made: dict[int, int] = {}
        for act in acts:
            if act.part is not None and act.part.team and act.told is not None:
                for step, count in act.part.oracle.arrivals(act.told, "0"):
                    made[step] = made.get(step, 0) + count
        self.phases = max([first, *(phase + 1 for phase in made)])
        return [(phase, self.barrier.arrivals - made[phase]) for phase in sorted(made)]

    def _arrive(self, missing: list[tuple[int, int]]) -> None:
        end = time.monotonic() + PATIENCE
        for phase, count in missing:
            if not count:
                continue
            while self.barrier.phase != phase:
                assert time.monotonic() < end, f"{self.barrier} should be in phase {phase}"
                time.sleep(1e-4)
            self.barrier.arrive(count)

    def _unstick(self, acts: list[Act]) -> None:
        """Arrive wherever nobody does, until all runs have ended."""
        end = time.monotonic() + PATIENCE
        runs = [act for act in acts if act.part is not None]
        while not all(act.submitted.is_set() and (act.run is None or act.run.done()) for act in runs):
            if time.monotonic() > end:
                return
            phase = self.barrier.phase
            time.sleep(2e-3)
            if self.barrier.phase == phase:
                with suppress(RuntimeError):
                    self.barrier.arrive()

    def _cancel(self, acts: list[Act], random: Random) -> None:
        """Cancel, and close, at random."""
        for act in random.sample(acts, len(acts)):
            if random.random() < 0.4 and act.submitted.wait(PATIENCE) and act.run is not None:
                time.sleep(random.random() * 2e-3)
                act.run.cancel()

    # The end

    def _tell(self, acts: list[Act]) -> None:
        """Find what must become of acts, in an order in which all they come after is known."""
        for act in acts:
            if act.part is None:
                fails = bool(act.odds) and not act.nested
                act.poisoned = fails or any(gate.poisoned for gate in act.gates.values())
            elif act.told is None:
                act.told = self._become(act)
                act.poisoned = not act.told.clean
                act.posts = dict(act.part.oracle.posts(act.told))

    def _become(self, act: Act) -> Told:
        assert act.part is not None
        oracle = act.part.oracle
        return oracle.alone(act.ask()) if act.part.runs == "concurrent" else oracle.run(act.ask(), self.how == "exact")

    def _check(self, acts: list[Act]) -> None:
        ends = [self._outcome(act) for act in acts]
        self._tell(self._order)
        self._tell(acts)
        early = [act.part for act in acts if act.part is not None and self._may_end_early(act)]
        for act, end in zip(acts, ends, strict=True):
            if act.part is None:
                self._check_spawned(act, end)
            else:
                self._check_run(act, end, act.part in early)
        if any(part.team for part in early):
            self.over = True
            return
        for part in self.parts:
            assert not part.scene.violations, part.scene.violations
            if part.runs != "concurrent" and part.oracle.determined:
                assert part.oracle.arrays_equal(), f"arrays of {part.program}"
            part.oracle.told()
            if part in early and part.runs != "concurrent":
                self._start_again(part)
                part.oracle.take_arrays()

    def _check_run(self, act: Act, end: Any, early: bool) -> None:
        part, told = act.part, act.told
        assert part is not None
        assert told is not None
        failure = told.failure
        where = f"run {act.number}, {part.runs}"
        if failure is not None:
            assert isinstance(end, ost.TaskError), f"{where}: {end!r}"
            expected = failure[0], part.oracle.nodes[failure[1]].item.op
            assert (end.step, end.op) == expected, f"{where}: {end!r}, expected {expected}"
        elif not told.clean:
            assert isinstance(end, ost.PoisonError), f"{where}: {end!r}"
        else:
            assert end == told.steps, f"{where}: {end!r} instead of {told.steps}"
        differs = part.oracle.counts_differ(told, act.number)
        assert not differs, f"{where}: {differs}"
        self.ops += part.oracle.ops * told.steps - sum(map(len, told.skipped))
        if act.replays:
            return
        self._check_events(act)
        if act.options["profile"] and not early:
            self._check_profile(act)
        if act.given is not None:
            nodes = part.oracle.nodes
            at = next(at for at, node in enumerate(nodes) if node.kind == "arrive given")
            arrived = next((k for k in range(told.steps) if at in told.skipped[k]), told.steps)
            assert act.given.phase == arrived, f"{where}: {act.given}, expected phase {arrived}"
            for phase in range(arrived):
                assert act.given.result(phase) == 5 + act.number

    def _may_end_early(self, act: Act) -> bool:
        """Whether nothing that is not poisoned may have been left at some step: how many more are made is open."""
        if act.part is None or act.told is None:
            return False
        nodes = act.part.oracle.nodes
        real = {at for at, node in enumerate(nodes) if node.kind not in ("pre", "begin", "end", "post")}
        return any(real <= skipped for skipped in act.told.skipped)

    def _check_events(self, act: Act) -> None:
        run = act.run
        assert run.done()
        run.event.exception()
        assert (run.event.exception() is not None) == act.poisoned, f"run {act.number}: {run.event}"
        for name, poisoned in act.posts.items():
            run.posts[name].exception()
            if act.steps:
                found = run.posts[name].exception() is not None
                assert found == poisoned, f"run {act.number}, {name}: {run.posts[name]}, expected {poisoned}"

    def _check_profile(self, act: Act) -> None:
        part, told = act.part, act.told
        assert part is not None
        assert told is not None
        expected: dict[Any, int] = {}
        for step in range(told.steps):
            for at, node in enumerate(part.oracle.nodes):
                if node.kind == "task":
                    skipped, failed = at in told.skipped[step], at in told.failed[step]
                    status = "poisoned" if skipped else "failed" if failed else "ok"
                    key = node.item.op, told.first + step, status
                    expected[key] = expected.get(key, 0) + 1
        found: dict[Any, int] = {}
        tasks = {node.item.op for node in part.oracle.nodes if node.kind == "task"}
        for record in act.run.profile:
            if record.op in tasks:
                key = record.op, record.step, record.status
                found[key] = found.get(key, 0) + 1
        if not act.run.profile.dropped:
            differ = [(key, found.get(key), expected.get(key)) for key in found.keys() | expected.keys()]
            differ = [each for each in differ if each[1] != each[2]]
            assert not differ, f"run {act.number}: {differ[:3]}"

    def _check_spawned(self, act: Act, end: Any) -> None:
        self.ops += 1
        if any(gate.poisoned for gate in act.gates.values()):
            assert isinstance(end, ost.PoisonError), end
        elif act.nested:
            inner = end.exception(PATIENCE)
            assert isinstance(inner, ost.TaskError) if act.odds else inner is None, inner
        elif act.odds:
            assert isinstance(end, ost.TaskError), end
        else:
            assert end == act.number
        self._check_events(act)

    def _check_stopped(self, acts: list[Act]) -> None:
        """After a failure, the steps begun go on to their end, but for what depends on it, and no other begins."""
        ends = [self._outcome(act) for act in acts]
        for act, end in zip(acts, ends, strict=True):
            part = act.part
            if part is None:
                self._tell([act])
                self._check_spawned(act, end)
                continue
            told = self._become(act)
            act.poisoned = not told.clean
            counts = part.scene.counts[:, told.first : told.first + told.steps]
            reached = int(np.flatnonzero(counts.any(axis=0)).max(initial=-1)) + 1
            if isinstance(end, int):
                assert end == told.steps
                reached = end
            elif told.failure is not None and not (act.ask().poisoned and isinstance(end, ost.PoisonError)):
                reached = max(reached, told.failure[0] + 1 - told.first)
                assert isinstance(end, ost.TaskError), end
                expected = told.failure[0], part.oracle.nodes[told.failure[1]].item.op
                assert (end.step, end.op) == expected, (end, expected)
            else:
                assert isinstance(end, ost.PoisonError), end
            begun = Told(told.first, reached, told.skipped[:reached], told.failed[:reached])
            differs = part.oracle.counts_differ(begun, act.number)
            assert not differs, f"run {act.number}, reached {reached}: {differs}"
            self.ops += part.oracle.ops * reached - sum(map(len, begun.skipped))
            assert not part.scene.violations, part.scene.violations
            act.run.event.exception()
            self._start_again(part)

    def _start_again(self, part: Part) -> None:
        """A clean step, all failures having been told, shows at which step the program is."""
        if part.runs == "once":
            return
        if not part.scene.top.rows:
            self.over = True  # nothing is logged that would show it
            return
        act = self._act(part)
        act.floor = STEPS
        act.gates = {name: Merged([], False) for name in part.conditions()}
        if part.scene.features.given_barrier:
            act.given = ost.Barrier(1, "+", 5)
        self._submit_clean(act)
        end = self._outcome(act)
        assert end == 1, end
        ran = part.scene.counts == act.number + 1
        step = int(np.flatnonzero(ran.any(axis=0)).max())
        assert ran[:, step].all()
        assert ran.sum() == part.scene.top.rows
        part.oracle.told(step + 1)
        part.planned = max(part.planned, part.oracle.steps)

    def _submit_clean(self, act: Act) -> None:
        act.options = {}
        if act.part is not None and act.part.runs == "serial":
            act.gates = {name: gate for name, gate in act.gates.items() if name is not None}
        self._submit(act)

    def _check_ends(self, acts: list[Act]) -> None:
        """All runs end, nothing is done twice, and nothing before what it comes after."""
        for act in acts:
            self._outcome(act)
            if act.run is not None:
                act.run.event.exception()
        for part in self.parts:
            assert not part.scene.violations, part.scene.violations
            self.ops += int((part.scene.counts != 0).sum())
            once = np.isin(part.scene.counts, [0, *(act.number + 1 for act in acts)])
            assert once.all()
            part.scene.counts[:] = 0

    def _outcome(self, act: Act) -> Any:
        """What an act ended with: its result, or an exception."""
        if act.run is None:
            return None
        try:
            return act.run.result(PATIENCE)
        except TimeoutError:
            pytest.fail(f"run {act.number} hangs.\n{self._standing()}")
        except (ost.TaskError, ost.PoisonError, CancelledError) as error:
            return error

    def abandon(self) -> None:
        """Let all end that can, after something went wrong, so that the machine can be closed."""
        for signal in self._signals:
            if not signal.fired:
                signal.fire()
        for act in self._acts:
            if act.run is not None and not isinstance(act.run, _Done):
                act.run.cancel()

    def _standing(self) -> str:
        """What has not ended, and what it waits for."""
        found = []
        for act in self._acts:
            if act.run is not None and not act.run.done():
                part = act.part
                what = "spawned task" if part is None else f"{part.runs} run of {part.program}, {act.steps} steps"
                found.append(f"{act.number}: {what}, after {act.gates}\n{act.run.stuck()}")
        faulthandler.dump_traceback(sys.__stderr__)
        return "\n".join(found)

    def close(self) -> None:
        """Close the programs, in any order; or leave that to the end of the machine."""
        for part in self.random.sample(self.parts, len(self.parts)):
            if self.random.random() < 0.8:
                part.program.close()


@dataclass
class _Done:
    """What stands for the run of a replay."""

    steps: int

    def result(self, timeout: float) -> int:
        return self.steps

    def done(self) -> bool:
        return True


@ost.task
def _alone(machine, number, odds):
    if odds:
        raise ArithmeticError("spawned")
    return number


@ost.task
def _nested(machine, number, odds):
    return machine.spawn(_alone, machine, number, odds)


def _guarded(job: Any, errors: list[BaseException]) -> None:
    try:
        job()
    except BaseException as error:
        errors.append(error)
