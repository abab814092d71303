"""Retuning: a program is scheduled again by what its ops take, and keeps the better schedule."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import schedule_again
from ostinato.compiler.streams.insert_fences import share_costs
from ostinato.compiler.wording import duration
from ostinato.errors import ContractError
from ostinato.runtime.arguments import After, resolve_barriers, resolve_conditions
from ostinato.runtime.calibrate import measure_host
from ostinato.runtime.sequential_test import ALPHA, ABTest, compare
from ostinato.runtime.trace import durations
from ostinato.text import counted, one_line
from ostinato.view.simulation import predicted

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.ir import Executable
    from ostinato.runtime.engine import Engine, LoadedExecutable
    from ostinato.view.trace import Trace

__all__ = ["CostChange", "Retuning", "StepBudget", "StepTime", "retune"]

_MOST, _TRACED_SHARE, _FIRST_SHARE = 100, 5, 20
"""So many steps at most are run first, one in `_FIRST_SHARE`, which tells how long turns are to be; and so many are
traced, one in `_TRACED_SHARE`."""

_RECORDS = 1_000_000
"""So many records of a trace are enough."""

_CHANGED = 1.5
"""An op's cost has changed if it differs by this factor."""

_WORTH = 1.5
"""A schedule that should take so many times as long is not tried: the model is not as wrong as that."""

_SHOWN = 8

_NO_EVENTS = (None, ())


class StepTime(NamedTuple):
    """What a step takes, in seconds."""

    seconds: float
    """The median."""
    low: float
    high: float
    """Between these the median is, with 95 %; where times are fewer than six, all of them."""

    @classmethod
    def of(cls, times: Sequence[float]) -> StepTime:
        """Return what a step takes by the times of several turns."""
        ordered, count = sorted(times), len(times)
        # Fewer than `rank` times lie below the median with a probability of 2.5 % at most.
        rank, below = 0, 2.0**-count
        while below <= 0.025:
            rank += 1
            below += math.comb(count, rank) * 2.0**-count
        low = max(rank, 1) - 1
        return cls((ordered[(count - 1) // 2] + ordered[count // 2]) / 2, ordered[low], ordered[count - 1 - low])

    def __str__(self) -> str:
        return f"{duration(self.seconds)} ({duration(self.low)} to {duration(self.high)})"


class CostChange(NamedTuple):
    """An op that takes something else than was assumed when the program was compiled."""

    name: str
    """Of the op."""
    call_site: str
    before: float
    """Seconds."""
    after: float
    """Seconds."""


@dataclasses.dataclass(frozen=True)
class Retuning:
    """What `Program.retune` did.

    Attributes
    ----------
    steps
        The number of steps run: fewer than asked for where `until` ended the run.
    kept
        ``"new"`` if the program has another schedule now, ``"old"`` if it has the one that it had.
    before, after
        What a step takes with the schedule that it had, and with the one that it has; None where no step was run.
    pairs
        How many pairs of turns the schedules took.
    changed
        The ops whose measured cost is not the one that they were scheduled by, the greatest difference first.
    why
        Why that schedule was kept.
    """

    steps: int
    kept: str
    before: StepTime | None
    after: StepTime | None
    pairs: int
    changed: tuple[CostChange, ...]
    why: str

    def __repr__(self) -> str:
        return f"<Retuning over {counted(self.steps, 'step')}: kept the {self.kept} schedule>"

    def __str__(self) -> str:
        lines = [f"retuned over {counted(self.steps, 'step')}: kept the {self.kept} schedule; {self.why}"]
        if self.before is not None and self.after is not None:
            lines.append(f"a step took {self.before}")
            if self.kept == "new":
                lines.append(f"and takes    {self.after}, {self.before.seconds / self.after.seconds:.2f} times as fast")
        for change in self.changed[:_SHOWN]:
            lines.append(f"  {change.name}: {duration(change.before)} was assumed, {duration(change.after)} measured")
        if len(self.changed) > _SHOWN:
            lines.append(f"  and {counted(len(self.changed) - _SHOWN, 'more op')}")
        return "\n".join(map(one_line, lines))


def retune(
    engine: Engine,
    steps: int,
    after: After,
    params: Mapping[str, Any],
    *,
    seed: int | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Retuning:
    """Run steps of a program, and let it have the better schedule from then on; see `Program.retune`.

    `seed` is that of the coins, and `clock` returns ns: for tests.
    """
    if engine.runs in ("concurrent", "once"):
        what = "run side by side" if engine.runs == "concurrent" else "are a single one"
        raise ValueError(f"a program of runs={engine.runs!r} cannot be retuned: its runs {what}")
    if _core.serving() or any(core.in_own_task for core in engine.cores):
        raise ContractError("retune inside a task: a task on a lane must not wait, the lane would stand still")
    if engine.workers.prepare_caller is not None:
        engine.workers.prepare_caller()
    with engine.retuning:
        engine.begin_retuning()
        try:
            return _retune(engine, StepBudget(engine, steps, after, params, clock), seed)
        finally:
            engine.settle()


class StepBudget:
    """Steps of a program that are run part by part, as one run would run them; others may submit runs in between.

    Parameters
    ----------
    engine
        Runs the program.
    steps, after, params
        As for `Program.replay`.
    clock
        Returns ns.

    Attributes
    ----------
    candidates
        The executables that `switch` knows by number.
    left, done
        Steps that are left to run, none where `until` ended the run; and steps that were run.
    """

    def __init__(
        self,
        engine: Engine,
        steps: int,
        after: After,
        params: Mapping[str, Any],
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._engine = engine
        self._values = engine.values(params)
        self._barriers = resolve_barriers(engine.lowered, params)
        self._start = resolve_conditions(engine.executable.preconditions, after)  # of the next run
        self._last: _core.Run | None = None
        self._clock = clock
        self.candidates: tuple[LoadedExecutable, ...] = (engine.kept,)
        self.left, self.done = steps, 0

    def switch(self, program: int) -> bool:
        """Have one of the candidates run from now on; False if it cannot, since runs are in flight."""
        return self._engine.switch(self.candidates[program])

    def run(self, steps: int) -> float | None:
        """Run steps, and return the seconds that it took; None if fewer were to be run, or left."""
        if steps > self.left:
            return None
        run, seconds = self._run(steps, False)
        return seconds if run.steps == steps else None

    def trace(self, steps: int) -> Trace | None:
        """Run steps, and return their trace; None where the run ended with them."""
        run, _ = self._run(steps, True)
        return self._engine.trace(run) if self.left else None

    def _run(self, steps: int, traced: bool) -> tuple[_core.Run, float]:
        engine, process_trace = self._engine, self._engine.process_trace
        traced = traced or process_trace is not None
        run: _core.Run | None = None
        while run is None:
            given = None
            if self._barriers or self._start != _NO_EVENTS:
                given = (*self._start, self._barriers, -1, self._last)
            begin = self._clock()
            run = cast("_core.Run | None", engine.core.replay_as_run(steps, 0, True, *self._values, given, traced))
            seconds = (self._clock() - begin) * 1e-9
            if run is None:
                engine.catch_up()
        if process_trace is not None:
            process_trace.watch(engine, run)
        done = engine.deliver(run)
        self._start = None, (None,) * len(self._start[1])
        self._last = run
        self.done += done
        self.left = 0 if run.met or done < steps else self.left - done
        return run, seconds


def _retune(engine: Engine, budget: StepBudget, seed: int | None) -> Retuning:
    """Learn from the first steps what ops take, and test other schedules against the present one on the rest."""
    old = engine.kept
    tested: dict[LoadedExecutable, list[float]] = {}  # what steps took in tests
    untested: dict[LoadedExecutable, list[float]] = {}  # and otherwise
    changed: tuple[CostChange, ...] = ()
    pairs = 0
    step_seconds = _run_kept(engine, budget, min(budget.left // _FIRST_SHARE, _MOST), untested)
    steps = min(budget.left // _TRACED_SHARE, _MOST, 1 + _RECORDS // max(len(old.executable.step.nodes), 1))
    trace = budget.trace(steps) if steps else None
    if trace is None:
        why = "the steps were too few to learn from"
    else:
        costs = durations(trace, old.executable.step.costs, "traced")
        if old.executable.step.uses_devices:
            costs = share_costs(costs, old.executable.step.streams)
        changed = _changes(old.executable, costs)
        why = "by what its ops take, no other one promises to be better"
        rivals = schedule_otherwise(engine, costs)
        for number, executable in enumerate(rivals):
            present, rival = engine.kept, engine.add(executable)
            budget.candidates = present, rival
            test = ABTest(ALPHA / len(rivals), None if seed is None else seed + number)
            found = compare(budget, budget.left // (len(rivals) - number), step_seconds, test)
            pairs += test.pairs
            tested.setdefault(present, []).extend(found.old)
            tested.setdefault(rival, []).extend(found.new)
            if found.won or engine.kept is old:
                why = found.why
            if found.won:
                engine.kept = rival
        if engine.kept is old:
            engine.learn(costs, predicted(old.executable.with_costs(costs), old.executable.target.model))
    engine.switch(engine.kept)  # if that can be: otherwise it will be done later
    _run_kept(engine, budget, budget.left, untested)

    def time_of(executable: LoadedExecutable) -> StepTime | None:
        times = tested.get(executable) or untested.get(executable)
        return StepTime.of(times) if times else None

    kept = "old" if engine.kept is old else "new"
    return Retuning(budget.done, kept, time_of(old), time_of(engine.kept), pairs, changed, why)


def _run_kept(engine: Engine, budget: StepBudget, steps: int, times: dict[LoadedExecutable, list[float]]) -> float:
    """Run steps outside of tests, note what one took, and return it."""
    seconds = budget.run(steps) if steps else None
    if seconds is None:
        return 0.0
    times.setdefault(engine.kept, []).append(seconds / steps)
    return seconds / steps


def schedule_otherwise(engine: Engine, costs: Costs) -> list[Executable]:
    """Return the schedules that costs lead to and that may be better than the present one, the most promising first."""
    processors, present = len(engine.workers.cpus), engine.kept.executable
    model = measure_host(processors)
    found: list[Executable] = []
    for threads in sorted({engine.threads, 1}, reverse=True):
        executable = schedule_again(present, costs, Target(processors, threads, model))
        executable = dataclasses.replace(executable, target=present.target)  # as the user asked
        if not any(_same(executable, known) for known in (present, *found)):
            found.append(executable)
    if not found:
        return []
    most = _WORTH * predicted(present.with_costs(costs), model)
    ranked = sorted((predicted(executable, model), number) for number, executable in enumerate(found))
    return [found[number] for seconds, number in ranked if seconds <= most]


def _same(one: Executable, other: Executable) -> bool:
    """Whether the same lanes run the same ops in the same order; of a single lane, the order makes no difference."""
    lanes = len(one.lane_ops)
    if lanes != len(other.lane_ops):
        return False
    return lanes == 1 or (
        np.array_equal(one.step.placement.affinity, other.step.placement.affinity)
        and all(map(np.array_equal, one.lane_ops, other.lane_ops))
    )


def _changes(executable: Executable, costs: Costs) -> tuple[CostChange, ...]:
    nodes, assumed, found = executable.step.nodes, executable.step.costs.seconds, costs.seconds
    changed = np.flatnonzero(np.maximum(assumed, found) > _CHANGED * np.minimum(assumed, found))
    ranked = changed[np.argsort(-np.abs(found - assumed)[changed], kind="stable")]
    return tuple(
        CostChange(nodes[op].name, str(nodes[op].call_site), float(assumed[op]), float(found[op]))
        for op in ranked.tolist()
    )
