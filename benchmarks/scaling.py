"""Measure messages between ranks beside MPI in C, and predict steps on many ranks with LogGP.

Messages are measured on two ranks of this host, each with one core. Steps are measured on two ranks, and on four where
there are as many cores: ranks that share a core wait for a time slice of it, which no model of messages knows of.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.loggp import LogGP, Record, parts_of_grid, record_on, step_seconds
from benchmarks.measure import Row
from benchmarks.metg import crossing
from benchmarks.peers import Absent
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import compile
from ostinato.environment import usable_cores
from ostinato.ranks.launch import find_launcher

MESSAGES, PREDICTED, COMPILE = "messages", "scaling", "compile_ranks"
OURS_MPI, OURS_SHARED, HAND_C = "ostinato, MPI", "ostinato, shared memory", "C by hand, MPI"
ON_HOST, ON_NETWORK = "messages as MPI carries them on one host", "and 2 us, 12.5 GB/s more"
PER_SIDE, DEPENDENCE = "a message of 8 bytes, each side", "a message of 8 bytes, one way"
METG, FOUR = "METG(50), one task a rank", "METG(50), four tasks a rank"
WEAK, STRONG = "weak", "strong"
_ROOT = Path(__file__).parent.parent
_LIMIT = 120.0  # seconds that a job may take
_MANY, _LARGE, _HIDES = 16, 65536, 4000  # messages, bytes, and iterations of a task that runs meanwhile
_SMALL, _SOME = 8, 4096  # bytes
_ROW = 64 * 8  # bytes of a message of the stencil
_GRAINS = (25, 100, 200, 400, 800, 1600, 3200, 6400)
_LONGEST = 20_000  # iterations of a task, beside which nothing else weighs
_FITTED, _CHECKED = 400, (800, 1600, 3200, 6400, 12_800)
NODES = (1, 4, 16, 64, 256, 1024, 4096)
_TASK, _SIDE, _STRONG = 20e-6, 32, 128  # seconds of a tile's task; elements and tiles along an axis


def run(context: Context) -> None:
    """Measure messages, fit LogGP to them, and compare what it predicts with what was measured."""
    _compile(context)
    try:
        launcher = find_launcher()
    except ImportError as error:
        context.absent.append(Absent("MPI", str(error)))
        return
    with TemporaryDirectory() as directory:
        stencil = _build(launcher, directory)
        if stencil is None:
            context.absent.append(Absent(HAND_C, "no mpicc beside mpiexec"))
        python = [sys.executable, "-W", "ignore", "-m", "benchmarks.ranks_native_worker"]
        commands = {OURS_MPI: [*python, "mpi"], OURS_SHARED: [*python, "shared"]}
        if stencil is not None:
            commands[HAND_C] = [stencil]
        grains = _GRAINS[::3] if context.quick else _GRAINS
        cases = [f"exchange:0:{_HIDES}:1000", f"exchange:{_MANY}:{_HIDES}:500", f"pingpong:{_SMALL}:0:3000"]
        cases += [f"pingpong:{_LARGE}:0:300", f"flood:{_MANY}:0:1000"]
        grains = sorted({*grains, _FITTED, *_CHECKED})
        cases += [_stencil(rows, grain) for rows in (2, 8) for grain in (*grains, _LONGEST)]
        beside = [f"halo:{nbytes}:{_HIDES}:1000" for nbytes in (_SMALL, _SOME)]
        checked = [_stencil(8, grain) for grain in (_FITTED, *_CHECKED)]
        sizes = [2, 4] if len(usable_cores()) >= 4 else [2]
        taken: dict[tuple[str, int], dict[str, list[float]]] = {}
        for _ in range(1 if context.quick else 3):
            for who, command in commands.items():
                those = {size: checked for size in (1, *sizes)}
                those[2] = cases if who == HAND_C else [*cases, *beside]
                for size, own in those.items():
                    found = taken.setdefault((who, size), {})
                    for case, samples in _measure([*launcher, "-n", str(size)], command, own).items():
                        found.setdefault(case, []).extend(samples)
    for who in commands:
        context.rows += _messages(who, taken[who, 2], grains)
    for who in (OURS_MPI, OURS_SHARED):
        context.rows += _compare(who, sizes, taken)
    context.rows += _predict(_fit(taken[OURS_MPI, 2], taken[OURS_MPI, 1]))


def _build(launcher: Sequence[str], directory: str) -> str | None:
    mpicc = shutil.which("mpicc", path=Path(launcher[0]).parent)  # of the same library
    if mpicc is None:
        return None
    made, source = f"{directory}/native", _ROOT / "benchmarks" / "peers" / "ranks_native.c"
    subprocess.run([mpicc, "-O2", "-o", made, str(source)], check=True)
    return made


def _stencil(rows: int, grain: int) -> str:
    return f"stencil:{rows}:{grain}:{max(round(5000 / (2 + rows * grain / 1000)), 50)}"  # about 5 ms


def _measure(launcher: list[str], command: list[str], cases: list[str]) -> dict[str, list[float]]:
    oversubscribed = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    ran = subprocess.run(
        [*launcher, *command, "5", *cases],
        capture_output=True,
        text=True,
        check=True,
        cwd=_ROOT,
        timeout=_LIMIT,
        env=os.environ | oversubscribed,
    )
    lines = (line.split() for line in ran.stdout.splitlines())
    return {case: [float(sample) for sample in samples] for case, *samples in lines if case in cases}


def _median(found: Mapping[str, Sequence[float]], start: str) -> float:
    """Return the median of a case, in microseconds."""
    return statistics.median(next(samples for case, samples in found.items() if case.startswith(start)))


def _messages(who: str, found: Mapping[str, list[float]], grains: Sequence[int]) -> Iterator[Row]:
    side = (_median(found, f"exchange:{_MANY}:") - _median(found, "exchange:0:")) / (2 * _MANY)
    yield Row(MESSAGES, PER_SIDE, who, "ns", (side * 1e3,), HAND_C)
    for case, start in ((DEPENDENCE, "pingpong:8:"), ("a message of 64 KiB, one way", f"pingpong:{_LARGE}:")):
        samples = next(each for name, each in found.items() if name.startswith(start))
        yield Row(MESSAGES, case, who, "ns", tuple(sample / 2 * 1e3 for sample in samples), HAND_C)
    for case, rows in ((METG, 2), (FOUR, 8)):
        per_iteration = _median(found, f"stencil:{rows}:{_LONGEST}:") * 1e3 / (rows / 2 * _LONGEST)
        grain_ns = np.array([grain * per_iteration for grain in grains])
        times = np.array([_median(found, f"stencil:{rows}:{grain}:") * 1e3 for grain in grains])
        yield Row(MESSAGES, case, who, "ns", (crossing(grain_ns, grain_ns * rows / 2 / times),), HAND_C)


def _fit(two: Mapping[str, Sequence[float]], one: Mapping[str, Sequence[float]]) -> LogGP:
    """Return the model with the costs of messages, measured on two ranks, and with tasks measured on one.

    The processor's part is what messages add to a step of the stencil, which hides the rest behind tasks (as in Culler,
    Liu, Martin, Yoshikawa 1996). It has what turning from lane to lane costs there.
    """
    start = f"stencil:8:{_FITTED}:"
    small, some = (_median(two, f"halo:{nbytes}:") for nbytes in (_SMALL, _SOME))
    per_byte = max(some - small, 0.0) / 2 / (_SOME - _SMALL)
    o = max((_median(two, start) - _median(one, start) / 2) / 2 - _ROW * per_byte, 0.0)
    way, long_way = (_median(two, f"pingpong:{nbytes}:") / 2 for nbytes in (_SMALL, _LARGE))
    wire = max((long_way - way) / (_LARGE - _SMALL) - 2 * per_byte, 0.0)
    us = (max(way - 2 * o, 0.0), o, _median(two, f"flood:{_MANY}:") / _MANY, wire, per_byte)
    return LogGP(*(each * 1e-6 for each in us))


def rows_of(count: int) -> Record:
    """Return a function that records the stencil of `ranks_native_worker`."""

    @ost.task
    def work(x: ost.Read, y: ost.Write) -> None: ...

    def record(ranks: ost.Ranks) -> None:
        a, b = (ranks.array((count, 64), tiles=(count, 1)) for _ in range(2))
        u = ost.ring(a, b)
        for tile in a.tiles(near=1):
            row = tile.index[0]
            work(u[0][max(row - 1, 0) : row + 2], u[1][row : row + 1])

    return record


def _compare(
    who: str, sizes: Sequence[int], taken: Mapping[tuple[str, int], Mapping[str, list[float]]]
) -> Iterator[Row]:
    """Yield predicted and measured times on some ranks. The prediction uses the time of a task on one rank."""
    model = _fit(taken[who, 2], taken[who, 1])
    for grain in _CHECKED:
        start = f"stencil:8:{grain}:"
        task = _median(taken[who, 1], start) * 1e-6 / 8
        for size in sizes:
            found = step_seconds(parts_of_grid((size, 1), rows_of(8), {"work": task}), model) * 1e6
            case = f"8 tasks of {task * 1e6:.2g} us, {who.removeprefix('ostinato, ')}, {size} ranks"
            samples = next(each for name, each in taken[who, size].items() if name.startswith(start))
            measured = statistics.median(samples)
            yield Row(PREDICTED, case, "predicted", "us a step", (found,), "measured")
            yield Row(PREDICTED, case, "measured", "us a step", tuple(samples), "measured")
            yield Row(PREDICTED, case, "predicted to measured", "%", ((found / measured - 1) * 100,))


def grid_of(tiles: int) -> Record:
    """Return a function that records a stencil of so many tiles along both axes."""

    @ost.task
    def relax(src: ost.Read, dst: ost.Write) -> None: ...

    def record(ranks: ost.Ranks) -> None:
        side = tiles * _SIDE + 2
        a, b = (ranks.array((side, side), tiles=(tiles, tiles)) for _ in range(2))
        u = ost.ring(a, b)
        for tile in a.tiles(margin=1, near=1):
            relax(u[0][tile.halo], u[1][tile.inner])

    return record


def _predict(model: LogGP) -> Iterator[Row]:
    """Yield predicted times of steps on up to 4096 nodes of one core each."""
    network = replace(model, L=model.L + 2e-6, G=model.G + 1 / 12.5e9)
    for nodes in NODES:
        side = round(nodes**0.5)
        for kind, tiles in ((WEAK, 4 * side), (STRONG, _STRONG)):
            parts = parts_of_grid((side, side), grid_of(tiles), {"relax": _TASK})
            for name, each in ((ON_HOST, model), (ON_NETWORK, network)):
                seconds = step_seconds(parts, each)
                yield Row(PREDICTED, f"{kind}, {nodes} nodes", name, "us a step, simulated", (seconds * 1e6,))


def _compile(context: Context) -> None:
    """Measure capture and compile on a rank of many, of 16 tiles each."""
    for nodes in NODES[1:]:
        side = round(nodes**0.5)
        samples: dict[str, list[float]] = {}
        places = {"the first": 0, "in the middle": (side // 2) * side + side // 2, "the last": nodes - 1}
        for _ in range(context.rounds):
            for place, rank in places.items():
                begin = time.perf_counter()
                graph = record_on(rank, nodes, grid_of(4 * side))
                compile(graph, Target(1, 1))
                samples.setdefault(place, []).append((time.perf_counter() - begin) * 1e3)
        rows: dict[str, Any] = {name: tuple(each) for name, each in samples.items()}
        context.rows += [Row(COMPILE, f"{nodes} ranks", name, "ms", each) for name, each in rows.items()]
