"""METG(50): the smallest grain of a compute kernel at which half of the machine's serial rate per thread is kept."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.native import HAND, LOOP, ONE, SPREAD, enter, starters, verify
from benchmarks.patterns import flatten, stencil
from benchmarks.work import WorkTable


def run(context: Context) -> None:
    """Measure the efficiency of a stencil of width 8 over grains, and find where it crosses one half."""
    flat = flatten(stencil(8))
    seconds = [SPREAD] * flat.n_ops
    everybody = starters(context)
    verify(context, everybody, flat, seconds)
    grains = [1 << k for k in range(0, 14, 2 if context.quick else 1)]
    times: dict[str, list[tuple[float, ...]]] = {}
    for iterations in grains:
        table = WorkTable(np.full((flat.n_ops, 1), iterations))
        with ExitStack() as stack:
            contestants = enter(stack, everybody, flat, context.kernels.work, table.users, seconds)
            context.measure(contestants)
            for contestant in contestants:
                times.setdefault(contestant.name, []).append(tuple(contestant.samples))
    # The loop at the longest grain is the serial rate: there the calls weigh nothing.
    per_iteration = float(np.median(times[LOOP][-1])) / grains[-1]
    grain_ns = np.array(grains) * per_iteration
    for name, samples in times.items():
        threads = 1 if name in (LOOP, ONE) else 2
        efficiency = grain_ns[:, None] / (threads * np.array(samples))  # by grain and round
        for grain, at_grain in zip(grain_ns, efficiency, strict=True):
            context.rows.append(Row("metg", f"{grain:.3g} ns", name, "efficiency", tuple(at_grain), None))
        crossings = tuple(crossing(grain_ns, column) for column in efficiency.T)
        context.rows.append(Row("metg", "METG(50)", name, "ns", crossings, HAND))


def crossing(grain: np.ndarray, efficiency: np.ndarray) -> float:
    """Return the grain above which the efficiency stays over one half, between measured grains by their logarithms."""
    below = np.flatnonzero(efficiency < 0.5)
    if len(below) == 0:
        return float(grain[0])
    last = int(below[-1])
    if last + 1 == len(grain):
        return float("inf")
    part = (0.5 - efficiency[last]) / (efficiency[last + 1] - efficiency[last])
    return float(grain[last] * (grain[last + 1] / grain[last]) ** part)
