"""Retuning: a program is scheduled again by what its operations take, and keeps the faster schedule."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import schedule_again
from ostinato.compiler.streams.insert_fences import share_costs
from ostinato.errors import ContractError
from ostinato.runtime.arguments import After, resolve_barriers, resolve_conditions
from ostinato.runtime.calibrate import measure_host
from ostinato.runtime.results import CostChange, Retuning, StepTime
from ostinato.runtime.sequential_test import ALPHA, ABTest
from ostinato.runtime.trace import durations
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

_WARM = 8
"""One in so many steps of a turn is run before the clock is read: the other schedule left its data in the caches."""

_PATIENCE = 10
"""So often in a row a switch is tried while other threads keep the program busy."""


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
        rivals = _schedule_otherwise(engine, costs)
        for number, executable in enumerate(rivals):
            candidates = engine.kept, engine.add(executable)
            test = ABTest(ALPHA / len(rivals), None if seed is None else seed + number)
            share = budget.left // (len(rivals) - number)
            times, found = compare(budget, candidates, share, (untested[old] or [0.0])[0], test)
            for candidate, taken in zip(candidates, times, strict=True):
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


def compare(
    runner: StepBudget,
    candidates: tuple[LoadedExecutable, LoadedExecutable],
    steps: int,
    step_seconds: float,
    test: ABTest,
) -> tuple[tuple[list[float], list[float]], str]:
    """Let two schedules take turns, for at most so many steps; return the seconds of a step by turn, and why it ended.

    `step_seconds` is about what a step takes.
    """
    times: tuple[list[float], list[float]] = [], []
    warm, timed = plan_turns(steps, step_seconds)
    if not timed:
        return times, f"{steps} more steps are too few to tell which one is faster"
    end = runner.left - steps
    while not test.verdict and test.winnable(
        min((runner.left - end) // (2 * (warm + timed)), _MOST_PAIRS - test.pairs)
    ):
        pair = [0.0, 0.0]
        for number in (1, 0) if test.new_first() else (0, 1):
            tries = 1
            while not runner.switch(candidates[number]):  # steps are run all the same, so that this has an end
                if runner.run(timed) is None or tries == _PATIENCE:
                    return times, "other threads kept the program busy"
                tries += 1
            seconds = None if warm and runner.run(warm) is None else runner.run(timed)
            if seconds is None:
                return times, "the run ended before it was decided"
            pair[number] = max(seconds, 1e-9) / timed
        for taken, step in zip(times, pair, strict=True):
            taken.append(step)
        test.add(*pair)
    found = {"new": "it was faster", "hopeless": "another one was not faster"}
    return times, f"in {test.pairs} pairs of turns, {found.get(test.verdict, 'another one was not found to be faster')}"


def plan_turns(steps: int, step_seconds: float) -> tuple[int, int]:
    """Return how many steps of a turn are run before the clock is read, and how many are timed; 0: too few."""
    step_seconds = max(step_seconds, 1e-9)
    most = steps // (2 * _ENOUGH_PAIRS) * _WARM // (_WARM + 1)
    timed = max(1, min(math.ceil(_LONGEST / step_seconds), most), math.ceil(_SHORTEST / step_seconds))
    warm = math.ceil(timed / _WARM) if timed > 1 else 0
    return (warm, timed) if steps >= 2 * _FEWEST_PAIRS * (warm + timed) else (0, 0)


def _schedule_otherwise(engine: Engine, costs: Costs) -> list[Executable]:
    """Return the schedules by these costs that may be faster than the present one, the most promising first."""
    processors, present = len(engine.workers.cpus), engine.kept.executable
    model = measure_host(processors)
    longest = _WORTH * predict_seconds(present.with_costs(costs), model)
    found: list[tuple[float, Executable]] = []
    for threads in sorted({engine.threads, 1}, reverse=True):
        other = schedule_again(present, costs, Target(processors, threads, model))
        other = replace(other, target=present.target)  # as the user asked
        seconds = predict_seconds(other, model)
        if seconds <= longest and not any(_same(other, known) for known in (present, *(each for _, each in found))):
            found.append((seconds, other))
    return [executable for _, executable in sorted(found, key=itemgetter(0))]


def _same(one: Executable, other: Executable) -> bool:
    """Whether the same lanes run the same ops in the same order; of a single lane, the order makes no difference."""
    if len(one.lane_ops) != len(other.lane_ops):
        return False
    homes = np.array_equal(one.step.placement.affinity, other.step.placement.affinity)
    return len(one.lane_ops) == 1 or (homes and all(map(np.array_equal, one.lane_ops, other.lane_ops)))


def _compare_costs(executable: Executable, costs: Costs) -> tuple[CostChange, ...]:
    nodes, assumed, found = executable.step.nodes, executable.step.costs.seconds, costs.seconds
    changed = np.flatnonzero(np.maximum(assumed, found) > _CHANGED * np.minimum(assumed, found))
    ranked = changed[np.argsort(-np.abs(found - assumed)[changed], kind="stable")].tolist()
    return tuple(
        CostChange(nodes[op].name, str(nodes[op].call_site), float(assumed[op]), float(found[op])) for op in ranked
    )
