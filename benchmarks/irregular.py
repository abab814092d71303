"""Tasks of irregular durations: how much of two threads' time is work, beside runtimes that share a ready queue."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.native import HAND, LOOP, TITLES, TWO, enter, starters, verify
from benchmarks.patterns import flatten, stencil
from benchmarks.work import WorkTable

QUEUE = TITLES["queue"]
_ONLY = (LOOP, HAND, TWO, QUEUE, TITLES["tbb"], TITLES["taskflow"])
_TILES, _PERIOD = 16, 64


def durations(kind: str, draw: np.random.Generator) -> np.ndarray:
    """Relative durations, of mean 1, by tile and step."""
    shape = (_TILES, _PERIOD)
    if kind == "equal":
        return np.ones(shape)
    if kind == "uniform":
        return draw.uniform(0, 2, shape)
    if kind == "exponential":
        return draw.exponential(1, shape)
    if kind == "10% ten times longer":
        return np.where(draw.random(shape) < 0.1, 10.0, 1.0) / 1.9
    if kind == "hot tile moves":
        tile, step = np.indices(shape)
        return np.where(tile == step % _TILES, 10.0, 1.0) / (1 + 9 / _TILES)
    raise ValueError(kind)


def run(context: Context) -> None:
    """Time a stencil of 16 tiles for each kind of durations and two mean durations."""
    flat = flatten(stencil(_TILES))
    everybody = {name: start for name, start in starters(context).items() if name in _ONLY}
    verify(context, everybody, flat, [1e-5] * _TILES)
    per_iteration = _nanoseconds_per_iteration(context)
    for mean_us in (20,) if context.quick else (10, 50):
        for kind in ("equal", "uniform", "exponential", "10% ten times longer", "hot tile moves"):
            relative = durations(kind, np.random.default_rng(1))
            nanoseconds = relative * mean_us * 1e3
            table = WorkTable(np.rint(nanoseconds / per_iteration))
            with ExitStack() as stack:
                seconds = list(nanoseconds.mean(axis=1) * 1e-9)
                contestants = enter(stack, everybody, flat, context.kernels.work, table.users, seconds)
                context.measure(contestants)
            serial = np.array(next(c.samples for c in contestants if c.name == LOOP))
            for contestant in contestants:
                efficiency = serial / (2 * np.array(contestant.samples))
                if contestant.name != LOOP:
                    case = f"{kind}, mean {mean_us} us"
                    context.rows.append(Row("irregular", case, contestant.name, "efficiency", tuple(efficiency), QUEUE))


def _nanoseconds_per_iteration(context: Context) -> float:
    """How long an iteration of the kernel takes on one thread."""
    flat = flatten(stencil(2))
    table = WorkTable(np.full((2, 1), 10_000))
    with ExitStack() as stack:
        loop = enter(stack, {LOOP: starters(context)[LOOP]}, flat, context.kernels.work, table.users, [1e-5] * 2)
        context.measure(loop)
    return float(np.median(loop[0].samples)) / 10_000
