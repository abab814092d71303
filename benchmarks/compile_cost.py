"""What it costs to capture and compile: native ops of three arrays each; then many that may block; then devices."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import ostinato as ost
from benchmarks import compile_devices
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.memory import resident_kib
from benchmarks.peers import Kernels

_WIDTH = 1000
DIFFERENT, PROCESS = "every view another one", "process"


def _views(task: Callable[..., object], arrays: np.ndarray, n_ops: int) -> ost.Graph:
    """Record the same calls as `_graph`, with slices that are made for each call."""
    with ost.capture() as graph:
        for row in range(n_ops // _WIDTH):
            source, target = arrays[row % 2], arrays[1 - row % 2]
            for p in range(8, 8 * _WIDTH + 8, 8):
                task(source[p : p + 8], source[p - 8 : p], target[p : p + 8])
    return graph


def _graph(task: Callable[..., object], tiles: list[list[np.ndarray]], n_ops: int) -> ost.Graph:
    """Record rows of tiles: each op reads its tile and its right neighbour's and writes its tile of the other array."""
    with ost.capture() as graph:
        for row in range(n_ops // _WIDTH):
            source, target = tiles[row % 2], tiles[1 - row % 2]
            for p in range(_WIDTH):
                task(source[p], source[p - 1], target[p])
    return graph


def run(context: Context) -> None:
    """Time capture and compile over sizes."""
    task = ost.native(context.kernels.empty, (ost.Read, ost.Read, ost.Write))
    arrays = np.zeros((2, _WIDTH, 8))
    tiles = [list(array) for array in arrays]
    for n_ops in (10**3, 10**4, 10**5) if context.quick else (10**3, 10**4, 10**5, 10**6):
        samples: dict[str, list[float]] = {"capture": [], "compile": [], "capture and compile": []}
        core_bytes = 0.0
        for _ in range(1 if n_ops == 10**6 else 3):
            gc.collect()
            begin = time.perf_counter_ns()
            graph = _graph(task, tiles, n_ops)
            captured = time.perf_counter_ns()
            with graph.compile(context.machine, lanes=2) as program:
                compiled = time.perf_counter_ns()
                core_bytes = program.statistics().core_bytes / n_ops
            for name, taken in zip(samples, (captured - begin, compiled - captured, compiled - begin), strict=True):
                samples[name].append(taken / 1e3 / n_ops)
        case = f"{n_ops:,} ops"
        context.rows += [Row("compile", case, name, "us/op", tuple(taken), None) for name, taken in samples.items()]
        context.rows.append(Row("compile", case, "core", "bytes/op", (core_bytes,), None))
    flat = np.zeros((2, 8 * (_WIDTH + 1)))
    for n_ops in (10**3, 10**4, 10**5):
        samples = {"capture": [], "compile": [], "capture and compile": []}
        for _ in range(3):
            gc.collect()
            begin = time.perf_counter_ns()
            graph = _views(task, flat, n_ops)
            captured = time.perf_counter_ns()
            with graph.compile(context.machine, lanes=2):
                compiled = time.perf_counter_ns()
            del graph
            for name, taken in zip(samples, (captured - begin, compiled - captured, compiled - begin), strict=True):
                samples[name].append(taken / 1e3 / n_ops)
        case = f"{n_ops:,} ops, {DIFFERENT}"
        context.rows += [Row("compile", case, name, "us/op", tuple(taken), None) for name, taken in samples.items()]
    # Each in a process of its own: elsewhere, a graph uses the memory that earlier ones have left.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        grown = tuple(processes.map(_grow, [10**5] * 3))
    context.rows.append(Row("compile", f"{10**5:,} ops, {DIFFERENT}", PROCESS, "bytes/op", grown, None))
    for n_ops in (500, 2000):
        seconds = tuple(_blocking(context.machine, n_ops) * 1e6 / n_ops for _ in range(3))
        context.rows.append(Row("compile", f"{n_ops:,} tasks that may block", "compile", "us of CPU time/op", seconds))
    compile_devices.run(context)


def _grow(n_ops: int) -> float:
    """Return by how many bytes an op this process grows when it captures and compiles a graph."""
    task, flat = ost.native(Kernels().empty, (ost.Read, ost.Read, ost.Write)), np.zeros((2, 8 * (_WIDTH + 1)))
    with ost.Machine(cpus=2) as machine:
        _views(task, flat, _WIDTH).compile(machine, lanes=2).close()  # loads all that is needed
        gc.collect()
        held = resident_kib()
        with _views(task, flat, n_ops).compile(machine, lanes=2):
            return (resident_kib() - held) * 1024 / n_ops


@ost.task(blocking=True)
def _may_block(x: ost.ReadWrite) -> None: ...


def _blocking(machine: ost.Machine, n_ops: int) -> float:
    """Return what it takes to compile tasks that may block: so many, that each has a lane of its own."""
    graph = ost.Graph()
    for row in np.zeros((n_ops, 1)):
        graph.task(_may_block, row)
    gc.collect()
    begin = time.process_time()
    graph.compile(machine).close()
    return time.process_time() - begin
