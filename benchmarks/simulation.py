"""What is predicted of the patterns, beside what they take: costs from one op alone, the machine as it is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, measure
from benchmarks.ours import native_program
from benchmarks.patterns import Flat, all_patterns, chain, flatten
from benchmarks.work import WorkTable
from ostinato import _core
from ostinato.environment import usable_cores
from ostinato.runtime.calibrate import measure_host
from ostinato.view.simulation import simulate

GRAINS_US = (1, 4, 16, 64)
LANES = (1, 2)
PREDICTED, MEASURED, ERROR = "predicted", "measured", "predicted to measured"


def run(context: Context) -> None:
    """Predict and time every pattern at every grain, on one lane and on two, in turn."""
    per_iteration = _nanoseconds_per_iteration(context)
    for grain in GRAINS_US:
        iterations = max(round(grain * 1e3 / per_iteration), 1)
        for pattern in all_patterns():
            for lanes in LANES:
                case = f"{pattern.name}, {grain} us, {lanes} lane{'s' * (lanes > 1)}"
                both = np.array(list(_rounds(context, flatten(pattern), iterations, grain * 1e-6, lanes)))
                for name, samples in zip((PREDICTED, MEASURED), both.T * 1e6, strict=True):
                    context.rows.append(Row("simulation", case, name, "us/step", tuple(samples.tolist()), MEASURED))
                error = both[:, 0] / both[:, 1] - 1
                context.rows.append(Row("simulation", case, ERROR, "%", tuple((error * 100).tolist())))


def _rounds(context: Context, flat: Flat, iterations: int, seconds: float, lanes: int) -> Iterator[tuple[float, float]]:
    """Seconds a step, as predicted from what was measured in the same round, and as measured."""
    one, table = (WorkTable(np.full((ops, 1), iterations)) for ops in (1, flat.n_ops))
    task = context.kernels.work
    with ExitStack() as stack:
        alone = stack.enter_context(native_program(flatten(chain()), context.machine, task, one.users, [seconds], 1))
        program = stack.enter_context(
            native_program(flat, context.machine, task, table.users, [seconds] * flat.n_ops, lanes)
        )
        op, step = Contestant("op", alone.replay), Contestant("step", program.replay)
        for _ in range(context.rounds):
            op.samples.clear()
            step.samples.clear()
            measure([op, step, op], rounds=1, seconds=context.seconds)
            cost = float(np.mean(op.samples)) * 1e-9
            yield predicted(program, cost), step.samples[0] * 1e-9


def predicted(program: ost.Program, cost: float) -> float:
    """Return what a step of equal ops takes, by a model of the machine as it is now."""
    names = ("transfer", "poll", "switch", "wake", "notify")
    now = dict(zip(names, _core.measure_machine(program.machine.workers.core, *usable_cores()[:2]), strict=True))
    model = replace(measure_host(2), **{name: value for name, value in now.items() if value >= 0})
    executable = program._engine.executable
    costs = executable.step.costs._replace(seconds=np.full(len(executable.step.nodes), cost))
    return simulate(executable.with_costs(costs), model).step_seconds


def _nanoseconds_per_iteration(context: Context) -> float:
    """How long an iteration of the kernel takes on one thread."""
    table = WorkTable(np.full((1, 1), 10_000))
    with native_program(flatten(chain()), context.machine, context.kernels.work, table.users, [1e-5], 1) as program:
        alone = Contestant("alone", program.replay)
        measure([alone], rounds=context.rounds, seconds=context.seconds)
    return float(np.median(alone.samples)) / 10_000
