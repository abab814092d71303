"""What it costs to compile a function, beside a capture of the same calls that is compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

import ostinato as ost
from benchmarks import rounds
from benchmarks.context import Context

BENCHMARK = "function"
CAPTURE, FUNCTION = "capture, then graph.compile", "ost.compile"
_WIDTH = 100

Step = Callable[..., None]


@ost.task
def _relax(source: ost.Read, beside: ost.Read, target: ost.Write) -> None:
    np.add(source, beside, out=target)


def _tiles(task: Callable[..., object], n_ops: int) -> Step:
    """Calls with arrays of a list: each reads its tile and its neighbour's and writes its tile of the other array."""

    def step(tiles: Sequence[Sequence[np.ndarray]]) -> None:
        for row in range(n_ops // _WIDTH):
            source, target = tiles[row % 2], tiles[1 - row % 2]
            for p in range(_WIDTH):
                task(source[p], source[p - 1], target[p])

    return step


def _slices(task: Callable[..., object], n_ops: int) -> Step:
    """The same calls, for which the step takes the slices."""

    def step(u: Sequence[np.ndarray]) -> None:
        for row in range(n_ops // _WIDTH):
            source, target = u[row % 2], u[1 - row % 2]
            for p in range(1, _WIDTH + 1):
                task(source[8 * p : 8 * p + 8], source[8 * p - 8 : 8 * p], target[8 * p : 8 * p + 8])

    return step


def run(context: Context) -> None:
    """Time both, interleaved, over sizes, kinds of tasks, and ways to pass arrays."""
    native = ost.native(context.kernels.empty, (ost.Read, ost.Read, ost.Write))
    for n_ops in (100, 1000, 10_000):
        for kind, task in (("native", native), ("Python", _relax)):
            arrays = np.zeros((2, 8 * (_WIDTH + 1)))
            tiles = [list(array[: 8 * _WIDTH].reshape(_WIDTH, 8)) for array in arrays]
            for name, step, given in (
                ("tiles", _tiles(task, n_ops), tiles),
                ("slices", _slices(task, n_ops), list(arrays)),
                ("slices of a ring", _slices(task, n_ops), ost.ring(*arrays)),
            ):
                _compare(context, f"{n_ops:,} {kind} tasks, {name}", step, given, n_ops)


def _compare(context: Context, case: str, step: Step, given: object, n_ops: int) -> None:
    again = max(1, 2000 // n_ops)

    def captured() -> ost.Program:
        with ost.capture() as graph:
            step(given)
        return graph.compile(context.machine, lanes=2)

    def compiled() -> ost.Program:
        return ost.compile(step, given, machine=context.machine, lanes=2)

    def timed(make: Callable[[], ost.Program]) -> float:
        taken = 0
        for _ in range(again):
            begin = time.perf_counter_ns()
            program = make()
            taken += time.perf_counter_ns() - begin
            assert len(program.graph) == n_ops
            program.close()
        return taken / 1e3 / again / n_ops

    with captured() as one, compiled() as other:
        assert _indices(one.graph) == _indices(other.graph)
    contestants = {CAPTURE: lambda: timed(captured), FUNCTION: lambda: timed(compiled)}
    count = 7 if context.quick else 21
    context.rows += rounds.take(BENCHMARK, case, "us/op", contestants, rounds=count, reference=CAPTURE)


def _indices(graph: ost.Graph) -> set[tuple[int, int, int]]:
    return {(before.index, after.index, distance) for before, after, distance in graph.edges}
