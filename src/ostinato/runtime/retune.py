"""Retuning: a program is scheduled again by what its operations take, and keeps the faster schedule."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from ostinato import _core
from ostinato.compiler.streams.insert_fences import share_costs
from ostinato.errors import ContractError
from ostinato.runtime.arguments import After, resolve_barriers, resolve_conditions
from ostinato.runtime.outcome import MUST_NOT_WAIT
from ostinato.runtime.results import CostChange, Retuning, StepTime
from ostinato.runtime.sequential_test import ALPHA, ABTest
from ostinato.runtime.trace import durations
from ostinato.runtime.turns import Times, compare, plan_turn, schedule_otherwise
from ostinato.view.simulation import predict_seconds

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.ir import Executable
    from ostinato.runtime.engine import Engine, LoadedExecutable

Clock: TypeAlias = Callable[[], int]  # returns nanoseconds

_MOST, _FIRST_SHARE, _TRACED_SHARE, _RECORDS = 100, 20, 5, 1_000_000
"""One step in `_FIRST_SHARE` is timed first, one in `_TRACED_SHARE` traced, at most so many, and so many records."""

_CHANGED, _WORTH = 1.5, 1.5
"""A cost has changed if it differs by this factor; a schedule is tried unless it should take so many times as long."""

_LONGEST, _SHORTEST = 10e-3, 1e-3
"""Seconds of a turn. In a shorter one, threads that have to be woken would decide."""

_FEWEST_PAIRS, _ENOUGH_PAIRS, _MOST_PAIRS = 12, 60, 150
"""So many decide only a clear case; turns are short enough for so many; more would cost too much slower steps."""


def retune(
    engine: Engine,
    steps: int,
    after: After,
    params: Mapping[str, Any],
    *,
    seed: int | None = None,
    clock: Clock = time.perf_counter_ns,
) -> Retuning:
    """Run steps, and let the program keep a faster schedule; see `Program.retune`. For tests: `seed` of the coins."""
    if engine.runs in ("concurrent", "once"):
        what = "run side by side" if engine.runs == "concurrent" else "are a single one"
        raise ValueError(f"a program of runs={engine.runs!r} cannot be retuned: its runs {what}")
    if _core.serving() or any(core.in_own_task for core in engine.cores):
        raise ContractError(f"retune inside a task: {MUST_NOT_WAIT}")
    if engine.workers.prepare_caller is not None:
        engine.workers.prepare_caller()
    with engine.retuning:
        engine.begin_retuning()
        try:
            return _retune(engine, StepBudget(engine, steps, after, params, clock), seed)
        finally:
            engine.settle()


class StepBudget:
    """Steps that are run part by part, as one run would run them; other threads may submit runs in between."""

    def __init__(self, engine: Engine, steps: int, after: After, params: Mapping[str, Any], clock: Clock) -> None:
        self._values, self._barriers = engine.values(params), resolve_barriers(engine.lowered, params)
        self._start = resolve_conditions(engine.executable.preconditions, after)  # of the next run
        self._engine, self._clock = engine, clock
        self.switch = engine.switch
        self.last: _core.Run | None = None
        self.left, self.done = steps, 0  # none are left where `until` ended the run

    def run(self, steps: int, traced: bool = False) -> float | None:
        """Run steps, and return the seconds that it took; None if fewer were to be run, or left."""
        if steps > self.left:
            return None
        engine, process_trace = self._engine, self._engine.process_trace
        traced = traced or process_trace is not None
        run: _core.Run | None = None
        while run is None:
            bound = bool(self._barriers or self._start != (None, ()))
            given = (*self._start, self._barriers, -1, self.last) if bound else None
            begin = self._clock()
            run = cast("_core.Run | None", engine.core.replay_as_run(steps, 0, True, *self._values, given, traced))
            seconds = (self._clock() - begin) * 1e-9
            if run is None:
                engine.catch_up()
        if process_trace is not None:
            process_trace.watch(engine, run)
        done = engine.deliver(run)
        self._start, self.last = (None, (None,) * len(self._start[1])), run
        self.done += done
        self.left = 0 if run.met or done < steps else self.left - done
        return seconds if done == steps else None


def _retune(engine: Engine, budget: StepBudget, seed: int | None) -> Retuning:
    """Learn from the first steps what operations take; test other schedules against the present one on the rest."""
    old = engine.kept
    tested: dict[LoadedExecutable, list[float]] = defaultdict(list)  # what steps took in tests
    untested: dict[LoadedExecutable, list[float]] = defaultdict(list)
    changed: tuple[CostChange, ...] = ()
    pairs, why = 0, "the steps were too few to learn from"

    def run_kept(steps: int) -> None:
        if steps and (seconds := budget.run(steps)) is not None:
            untested[engine.kept].append(seconds / steps)

    run_kept(min(budget.left // _FIRST_SHARE, _MOST))
    steps = min(budget.left // _TRACED_SHARE, _MOST, 1 + _RECORDS // max(len(old.executable.step.nodes), 1))
    if steps:
        budget.run(steps, traced=True)
    if steps and budget.left:
        costs = durations(engine.trace(cast("_core.Run", budget.last)), old.executable.step.costs, "traced")
        if old.executable.step.uses_devices:
            costs = share_costs(costs, old.executable.step.streams)
        changed = _compare_costs(old.executable, costs)
        why = "by what its ops take, no other one promises to be better"
        rivals = schedule_otherwise(engine, costs, _WORTH)
        for number, (_, executable) in enumerate(rivals):
            candidates = engine.kept, engine.add(executable)
            test = ABTest(ALPHA / len(rivals), None if seed is None else seed + number)
            share = budget.left // (len(rivals) - number)
            times, found = compare_within(budget, candidates, share, (untested[old] or [0.0])[0], test)
            for candidate, taken in zip(candidates, (times.one, times.other), strict=True):
                tested[candidate] += taken
            pairs += test.pairs
            if test.verdict == "new" or engine.kept is old:
                why = found
            if test.verdict == "new":
                engine.kept = candidates[1]
        if engine.kept is old:
            engine.learn(costs, predict_seconds(old.executable.with_costs(costs), old.executable.target.model))
    engine.switch(engine.kept)  # if that is possible now; otherwise a later run does it
    run_kept(budget.left)
    before, after = (StepTime.of(tested[each] or untested[each]) for each in (old, engine.kept))
    return Retuning(budget.done, "old" if engine.kept is old else "new", before, after, pairs, changed, why)


def compare_within(
    budget: StepBudget,
    candidates: tuple[LoadedExecutable, LoadedExecutable],
    steps: int,
    step_seconds: float,
    test: ABTest,
) -> tuple[Times, str]:
    """Let two schedules take turns, for at most so many steps; return what steps took by turn, and why it ended.

    `step_seconds` is about what a step takes.
    """
    warm, timed = plan_turns(steps, step_seconds)
    times, end = Times(), budget.left - steps
    if not timed:
        return times, f"{steps} more steps are too few to tell which one is faster"
    turns = compare(candidates, warm, timed, min(steps // (2 * (warm + timed)), _MOST_PAIRS), test, times)
    turn = next(turns, None)
    while turn is not None:
        switched = budget.switch(turn.loaded)  # steps are run all the same, so that this has an end
        seconds = budget.run(turn.steps) if budget.left - turn.steps >= end else None
        if seconds is None:
            return times, "the run ended before it was decided"
        try:
            turn = turns.send(seconds / turn.steps if switched else None)
        except StopIteration:
            turn = None
    if times.busy:
        return times, "other threads kept the program busy"
    found = {"new": "it was faster", "hopeless": "another one was not faster"}
    return times, f"in {test.pairs} pairs of turns, {found.get(test.verdict, 'another one was not found to be faster')}"


def plan_turns(steps: int, step_seconds: float) -> tuple[int, int]:
    """Return how many steps of a turn are run before the clock is read, and how many are timed; 0: too few."""
    most = steps // (2 * _ENOUGH_PAIRS) * 8 // 9
    warm, timed = plan_turn(max(min(_LONGEST, most * step_seconds), _SHORTEST), step_seconds)
    return (warm, timed) if steps >= 2 * _FEWEST_PAIRS * (warm + timed) else (0, 0)


def _compare_costs(executable: Executable, costs: Costs) -> tuple[CostChange, ...]:
    nodes, assumed, found = executable.step.nodes, executable.step.costs.seconds, costs.seconds
    changed = np.flatnonzero(np.maximum(assumed, found) > _CHANGED * np.minimum(assumed, found))
    ranked = changed[np.argsort(-np.abs(found - assumed)[changed], kind="stable")].tolist()
    return tuple(
        CostChange(nodes[op].name, str(nodes[op].call_site), float(assumed[op]), float(found[op])) for op in ranked
    )
