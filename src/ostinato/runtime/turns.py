"""Schedules of a program take turns in its runs: what a turn is, and how two schedules are compared by theirs."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ostinato.compiler.costs import STEADY
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import schedule_again
from ostinato.runtime.calibrate import level_costs, measure_host

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.ir import Executable
    from ostinato.runtime.engine import Engine, LoadedExecutable
    from ostinato.runtime.sequential_test import ABTest
    from ostinato.view.trace import Trace

_WARM, _AWAKE = 8, 0.1e-3
"""Before its timed steps, a turn runs one step for every `_WARM` of them, and steps for at least `_AWAKE` seconds.

The caches hold data of the other schedule, and threads that it does not use may sleep. A turn of one timed step runs
none of these.
"""

_PATIENCE = 10
"""So often in a row a turn is tried while other threads keep the program busy."""

_TINY = 0.5e-6
"""Ops that take less on average are also scheduled as if each took so much."""


class Turn(NamedTuple):
    """Steps that a schedule is to run."""

    loaded: LoadedExecutable
    steps: int
    timed: bool = False
    traced: bool = False


Result: TypeAlias = "float | Trace | None"
"""The seconds of a timed step, or the trace; None: not asked for, or something came in between."""


class Times:
    """The seconds of a step of two schedules, turn by turn."""

    def __init__(self) -> None:
        self.one: list[float] = []
        self.other: list[float] = []
        self.busy = False  # other threads kept the program busy


def compare(
    candidates: tuple[LoadedExecutable, LoadedExecutable],
    warm: int,
    timed: int,
    most_pairs: int,
    test: ABTest,
    times: Times,
) -> Generator[Turn, Result, None]:
    """Let two schedules take turns until `test` is decided, or cannot be within so many pairs; fill in `times`.

    Of each turn, `warm` steps are run before those that are timed.
    """
    while not test.verdict and test.pairs < most_pairs and test.winnable(most_pairs - test.pairs):
        pair = [0.0, 0.0]
        for number in (1, 0) if test.new_first() else (0, 1):
            seconds: Result = None
            for _ in range(_PATIENCE):
                if warm:
                    yield Turn(candidates[number], warm)
                seconds = yield Turn(candidates[number], timed, timed=True)
                if seconds is not None:
                    break
            if not isinstance(seconds, float):
                times.busy = True
                return
            pair[number] = max(seconds, 1e-9)
        times.one.append(pair[0])
        times.other.append(pair[1])
        test.add(*pair)


def plan_turn(seconds: float, step_seconds: float) -> tuple[int, int]:
    """Return how many steps of a turn are run before the clock is read, and how many are timed, for so long."""
    timed = max(1, math.ceil(seconds / max(step_seconds, 1e-9)))
    awake = math.ceil(timed * min(1.0, _AWAKE / seconds))
    return max(math.ceil(timed / _WARM), awake) if timed > 1 else 0, timed


def schedule_otherwise(
    engine: Engine, costs: Costs, worth: float, known: Iterable[LoadedExecutable] = ()
) -> list[tuple[float, Executable]]:
    """Return other schedules than the present one by what ops take, and the seconds of their steps, least first.

    One schedule assumes that all calls of one kind take the same time in every step. Traced times also contain delays
    that only the traced schedule causes, such as fetching data from the other core's cache, and delays that other
    processes cause in some steps.

    One has several lanes a thread even where ops take the same in every step: a thread that the host stops for a while
    loses only the lane that it runs, and others take the rest. One uses all threads even where ops are so short that a
    trace tells too much of them, and the model too much of what threads lose.

    Those that are `known` are left out, and what should take `worth` times as long as the present one, or longer.
    """
    from ostinato.view.simulation import predict_seconds  # here: short programs never get so far

    processors, present = len(engine.workers.cpus), engine.kept.executable
    model = measure_host(processors)
    longest = worth * predict_seconds(present.with_costs(costs), model)
    tried = [present, *(each.executable for each in known)]
    found: list[tuple[float, Executable]] = []
    plans = [(threads, costs) for threads in sorted({engine.threads, 1}, reverse=True)]
    level = level_costs(present.step.nodes, costs, math.inf)._replace(spread=np.full(len(costs.spread), STEADY / 2))
    if engine.threads > 1 and not (costs.steady and (level.seconds == costs.seconds).all()):
        plans.append((engine.threads, level))
    if engine.threads > 1 and costs.steady:
        plans.append((engine.threads, costs._replace(spread=np.full(len(costs.spread), STEADY))))
    if engine.threads > 1 and costs.seconds.sum() < _TINY * len(costs.seconds):
        plans.append((engine.threads, costs._replace(seconds=np.maximum(costs.seconds, _TINY))))
    for threads, believed in plans:
        other = schedule_again(present, believed, Target(processors, threads, model)).with_costs(costs)
        other = replace(other, target=present.target)  # as the user asked
        seconds = predict_seconds(other, model)
        if seconds <= longest and not any(_same(other, each) for each in tried):
            tried.append(other)
            found.append((seconds, other))
    return sorted(found, key=itemgetter(0))


def _same(one: Executable, other: Executable) -> bool:
    """Whether the same lanes run the same ops in the same order; of a single lane, the order makes no difference."""
    if len(one.lane_ops) != len(other.lane_ops):
        return False
    homes = np.array_equal(one.step.placement.affinity, other.step.placement.affinity)
    return len(one.lane_ops) == 1 or (homes and all(map(np.array_equal, one.lane_ops, other.lane_ops)))
