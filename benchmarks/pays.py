"""When does it pay? Tasks of 1 to 500 us in Python, NumPy, Numba and C, beside the loop that one would write.

``python benchmarks/run.py pays --json R.json`` measures; ``python -m benchmarks.pays R.json`` prints the table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant
from benchmarks.ours import adapt, native_program
from benchmarks.patterns import flatten, stencil
from benchmarks.peers import Absent
from benchmarks.work import WorkTable

BENCHMARK, LOOP, OURS = "pays", "plain loop", "ostinato"
#: Of the row over which a step goes to and fro; a tile needs itself and its neighbours.
TILES = 8
GRAINS = (1, 5, 20, 100, 500)  # us


def _average_in_python(src: ost.Read, dst: ost.Write) -> None:
    total = 0.0
    for value in src.tolist():
        total = 0.5 * (total + value)
    dst[:] = total


def _average_in_numpy(src: ost.Read, dst: ost.Write) -> None:
    np.add(src[:-2], src[2:], out=dst)
    np.multiply(dst, 0.5, out=dst)


def _average(src: ost.Read, dst: ost.Write) -> None:
    for i in range(dst.size):
        dst[i] = 0.25 * src[i] + 0.5 * src[i + 1] + 0.25 * src[i + 2]


class Kind(NamedTuple):
    """What tasks are written in."""

    name: str
    task: Callable[..., Any]  # as users declare it
    alone: Callable[..., Any]  # as users call it in a loop


class Rows:
    """Two arrays in tiles, and the calls of a step: from one array to the other, and back."""

    def __init__(self, size: int) -> None:
        self.arrays = np.zeros((2, TILES * size + 2))
        self.arrays[:, 0] = 1.0
        bounds = [(at * size, (at + 1) * size) for at in range(TILES)]
        self.calls = [
            (src[low : high + 2], dst[low + 1 : high + 1])
            for src, dst in (self.arrays, self.arrays[::-1])
            for low, high in bounds
        ]


def run(context: Context) -> None:
    """Measure each kind of task at each grain."""
    grains = GRAINS[1:4:2] if context.quick else GRAINS
    kinds = [
        Kind("Python", ost.task(_average_in_python), _average_in_python),
        Kind("NumPy", ost.task(releases_gil=True)(_average_in_numpy), _average_in_numpy),
    ]
    if find_spec("numba"):
        import numba

        kinds.append(Kind("Numba", ost.kernel(_average), numba.njit(_average)))
    else:
        context.absent.append(Absent("Numba", "not installed"))
    for kind in kinds:
        for grain in grains:
            if context.wants(f"{kind.name}, {grain} us"):
                _compare(context, kind, grain)
    for grain in grains:
        if context.wants(f"C, {grain} us"):
            _compare_in_c(context, grain)


def _compare(context: Context, kind: Kind, grain: int) -> None:
    size = _find_size(kind.alone, grain * 1e-6)
    looped, replayed = Rows(size), Rows(size)

    def loop(steps: int) -> None:
        for _ in range(steps):
            for src, dst in looped.calls:
                kind.alone(src, dst)

    with ost.capture() as graph:
        for src, dst in replayed.calls:
            kind.task(src, dst)
    with graph.compile(context.machine, costs={}) as program:
        loop(5)
        program.replay(5)
        if not np.allclose(looped.arrays, replayed.arrays, rtol=1e-12):
            raise AssertionError(f"{kind.name}, {grain} us: the results differ from those of the loop")
        adapt(program)
        contestants = [Contestant(LOOP, loop, len(looped.calls)), Contestant(OURS, program.replay, len(looped.calls))]
        context.compare(BENCHMARK, f"{kind.name}, {grain} us", contestants, LOOP)


def _find_size(body: Callable[..., Any], seconds: float) -> int:
    """Return how many numbers a tile has so that a call takes so long."""
    size = 16
    for _ in range(8):
        src, dst = Rows(size).calls[1]
        body(src, dst)  # compiled, where it is
        calls = max(3, int(2e-3 / seconds))
        begin = time.perf_counter()
        for _ in range(calls):
            body(src, dst)
        size = max(1, round(size * min(32.0, seconds * calls / (time.perf_counter() - begin))))
    return size


def _compare_in_c(context: Context, grain: int) -> None:
    """The same pattern of C functions that compute for so long; the loop is in C, too."""
    flat = flatten(stencil(2 * TILES))
    iterations = 1 << 10
    for _ in range(3):
        table = WorkTable(np.full((flat.n_ops, 1), iterations))
        with context.peers["loop"].program(flat, context.kernels.work, table.users) as peer:
            peer.run(64)
            begin = time.perf_counter()
            peer.run(64)
            iterations = max(1, round(iterations * grain * 1e-6 * 64 * flat.n_ops / (time.perf_counter() - begin)))
    table = WorkTable(np.full((flat.n_ops, 1), iterations))
    with ExitStack() as stack:
        loop = stack.enter_context(context.peers["loop"].program(flat, context.kernels.work, table.users))
        program = stack.enter_context(
            native_program(flat, context.machine, context.kernels.work, table.users, [0.0] * flat.n_ops, None)
        )
        contestants = [
            Contestant(LOOP, loop.run, flat.n_ops, multiple=64),
            Contestant(OURS, program.replay, flat.n_ops, multiple=64),
        ]
        context.compare(BENCHMARK, f"C, {grain} us", contestants, LOOP)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return how long a step takes beside the plain loop, by kind and grain, in Markdown."""
    median = {(row["case"], row["contestant"]): row["median"] for row in results if row["benchmark"] == BENCHMARK}
    names = dict.fromkeys(case.split(", ")[0] for case, _ in median)
    lines = ["| a task takes | " + " | ".join(f"{grain} us" for grain in GRAINS) + " |", "|---" * 6 + "|"]
    for name in names:
        cases = [f"{name}, {grain} us" for grain in GRAINS]
        ratios = [f"{median[case, OURS] / median[case, LOOP]:.2f}" for case in cases]
        lines.append(f"| {name} | " + " | ".join(ratios) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())["results"]))
