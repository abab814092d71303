"""Records times of every configuration of a few kernels, for races over the same times again and again.

``python benchmarks/record_spaces.py [NAME ...]`` writes ``tests/unit/tune/recorded/NAME.json``. All configurations are
visited several times over, in an order by chance; a sample that was preempted is taken again, as the tuner does. So the
records have the noise, the drift and the bursts of the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost

VISITS, SAMPLES = 6, 20
HERE = Path(__file__).parent
WHERE = HERE.parent / "tests" / "unit" / "tune" / "recorded"

Kernel = tuple[ost.Space, Callable[..., Callable[[], Any]]]


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def matmul(library: ctypes.CDLL) -> Kernel:
    """160 x 160 floats in tiles: few are good."""
    space = ost.Space(
        {"tile_i": [1, 2, 4, 8, 16, 32, 64, 160], "tile_k": [4, 8, 12, 16, 20, 32, 64, 160], "unroll": [1, 2, 4]}
    )
    a, b, c = (np.random.default_rng(seed).random((160, 160), np.float32) for seed in range(3))

    def make(tile_i: int, tile_k: int, unroll: int) -> Callable[[], Any]:
        def call() -> Any:
            return library.matmul(tile_i, tile_k, unroll, _pointer(a), _pointer(b), _pointer(c))

        call()
        np.testing.assert_allclose(c, a @ b, rtol=1e-3)
        return call

    return space, make


def transpose(library: ctypes.CDLL) -> Kernel:
    """768 x 768 floats in blocks: bound by memory, so noisy."""
    blocks = [4, 6, 8, 12, 16, 24, 32, 48, 64, 128]
    space = ost.Space({"block_i": blocks, "block_j": blocks, "by_columns": [0, 1]})
    a, b = (np.random.default_rng(seed).random((768, 768), np.float32) for seed in range(2))

    def make(block_i: int, block_j: int, by_columns: int) -> Callable[[], Any]:
        def call() -> Any:
            return library.transpose(block_i, block_j, by_columns, _pointer(a), _pointer(b))

        call()
        np.testing.assert_array_equal(b, a.T)
        return call

    return space, make


def sort(library: ctypes.CDLL) -> Kernel:
    """20000 numbers: many configurations are as good as each other."""
    space = ost.Space({"threshold": list(range(1, 65)), "gap": [1, 4], "skip": [0, 1]})
    numbers = np.random.default_rng(0).integers(0, 1 << 30, 20000).astype(np.int32)
    values, spare = np.zeros_like(numbers), np.zeros_like(numbers)

    def make(threshold: int, gap: int, skip: int) -> Callable[[], Any]:
        def call() -> Any:
            return library.sort(threshold, gap, skip, _pointer(numbers), _pointer(values), _pointer(spare))

        call()
        np.testing.assert_array_equal(values, np.sort(numbers))
        return call

    return space, make


def stencil(library: ctypes.CDLL) -> Kernel:
    """A five-point stencil in Numba, in blocks."""
    import numba

    blocks = [4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    space = ost.Space({"block_i": blocks, "block_j": blocks}, where=lambda c: c["block_i"] * c["block_j"] >= 256)

    @numba.njit
    def run(source: Any, target: Any, block_i: int, block_j: int) -> None:
        rows, columns = source.shape
        for first_i in range(1, rows - 1, block_i):
            for first_j in range(1, columns - 1, block_j):
                for i in range(first_i, min(first_i + block_i, rows - 1)):
                    for j in range(first_j, min(first_j + block_j, columns - 1)):
                        target[i, j] = 0.2 * (
                            source[i, j] + source[i - 1, j] + source[i + 1, j] + source[i, j - 1] + source[i, j + 1]
                        )

    a = np.random.default_rng(0).random((514, 514))
    b = np.zeros_like(a)

    def make(block_i: int, block_j: int) -> Callable[[], Any]:
        return partial(run, a, b, block_i, block_j)

    return space, make


SPACES = {"matmul": matmul, "transpose": transpose, "sort": sort, "stencil": stencil}


def _waited() -> int:
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def _sample(call: Callable[[], Any]) -> int:
    """Return the ns of one call; where something else had the core for a hundredth of it, of up to three more."""
    for _ in range(4):
        before = _waited()
        begin = time.perf_counter_ns()
        call()
        took = time.perf_counter_ns() - begin
        if (_waited() - before) * 100 <= took:
            break
    return took


def record(name: str, library: ctypes.CDLL) -> None:
    """Measure every configuration of a space, and write it down."""
    space, make = SPACES[name](library)
    configs = list(space)
    calls = [make(**config) for config in configs]
    visits: list[list[list[int]]] = [[] for _ in configs]
    order = list(range(len(configs)))
    rng = random.Random(0)
    for _ in range(VISITS):
        rng.shuffle(order)
        for index in order:
            calls[index]()
            visits[index].append([_sample(calls[index]) for _ in range(SAMPLES)])
    with open("/proc/cpuinfo") as info:
        processor = next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    least = min(min(visit) for of in visits for visit in of)
    unit = 10 ** max(len(str(least)) - 4, 0)  # four digits say enough
    head = json.dumps({"space": name, "processor": processor, "unit_ns": unit})[1:-1]
    lines = [
        json.dumps(
            {"config": config, "visits": [[round(ns / unit) for ns in visit] for visit in of]}, separators=(",", ":")
        )
        for config, of in zip(configs, visits, strict=True)
    ]
    WHERE.mkdir(exist_ok=True)
    (WHERE / f"{name}.json").write_text("{" + head + ', "entries": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{name}: {len(configs)} configurations")


def main() -> None:
    """Record the spaces that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SPACES)}")
    names = parser.parse_args().names or list(SPACES)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory) / "kernels.so"
        source = HERE / "recorded_kernels.c"
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", built, source], check=True)
        library = ctypes.CDLL(str(built))
        for name in names:
            record(name, library)


if __name__ == "__main__":
    sys.exit(main())
