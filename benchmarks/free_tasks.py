"""Independent tasks of pure Python, about 20 us each: free-threaded Pythons run them side by side."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import repeat
from timeit import timeit

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant
from benchmarks.ours import adapt

LOOP, OURS, POOL = "plain loop", "ostinato", "ThreadPoolExecutor"
_TASKS = 16
_SECONDS = 20e-6


def _work(cells: np.ndarray, rounds: int) -> None:
    x = 0.0
    for _ in repeat(None, rounds):
        x = 0.5 * x + 1.0
    cells[0] += x


def _rounds() -> int:
    """How many rounds take 20 us here."""
    cells, rounds = np.zeros(1), 1000
    return int(rounds * _SECONDS / min(timeit(partial(_work, cells, rounds), number=100) / 100 for _ in range(20)))


def _in_pool(pool: ThreadPoolExecutor, cells: np.ndarray, rounds: int, steps: int) -> None:
    for _ in repeat(None, steps):
        wait([pool.submit(_work, cell, rounds) for cell in cells])


def _in_loop(cells: np.ndarray, rounds: int, steps: int) -> None:
    rows = list(cells)
    for _ in repeat(None, steps):
        for cell in rows:
            _work(cell, rounds)


def run(context: Context) -> None:
    """Time steps of sixteen tasks, each with cells of its own, on two threads."""
    rounds = _rounds()
    ours, looped, pooled = (np.zeros((_TASKS, 16)) for _ in range(3))
    work = ost.task(_work, access={"cells": ost.ReadWrite})

    def step() -> None:
        for cell in ours:
            work(cell, rounds)

    with ost.compile(step, machine=context.machine) as program, ThreadPoolExecutor(2) as pool:
        adapt(program)
        ours[:] = 0
        for start in (program.replay, partial(_in_loop, looped, rounds), partial(_in_pool, pool, list(pooled), rounds)):
            start(3)
        if not ((ours == looped).all() and (pooled == looped).all()):
            raise AssertionError("three steps do not give the same cells")
        contestants = [
            Contestant(OURS, program.replay, _TASKS),
            Contestant(LOOP, partial(_in_loop, looped, rounds), _TASKS),
            Contestant(POOL, partial(_in_pool, pool, list(pooled), rounds), _TASKS),
        ]
        locked = getattr(sys, "_is_gil_enabled", lambda: True)()
        context.compare("pure", f"16 tasks of 20 us, {'with' if locked else 'without'} a lock", contestants, LOOP)
