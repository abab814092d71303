"""Independent tasks of pure Python, about 20 us each: free-threaded Pythons run them side by side."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import repeat
from timeit import timeit

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, measure
from benchmarks.ours import adapt

LOOP, OURS, POOL, HAND = "plain loop", "ostinato", "ThreadPoolExecutor", "two threads"
_TASKS = 16
_SECONDS = 20e-6
_LONGER = 10  # samples than others': a new thread takes milliseconds to get memory of its own


def _work(cells: np.ndarray, rounds: int) -> None:
    # Numbers of this call. A module that has no bytecode file shares its constants between threads: free-threaded
    # Pythons 3.13 count references to them, and the threads would wait for each other at each count.
    x, half, one = float("0"), float("0.5"), float("1")
    for _ in repeat(None, rounds):
        x = half * x + one
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


def _by_hand(cells: np.ndarray, rounds: int, steps: int) -> None:
    """Two threads that never wait for each other: the most that two cores can do."""
    half = _TASKS // 2
    other = threading.Thread(target=_in_loop, args=(cells[half:], rounds, steps))
    other.start()
    _in_loop(cells[:half], rounds, steps)
    other.join()


def run(context: Context) -> None:
    """Time steps of sixteen tasks, each with cells of its own, on two threads."""
    rounds = _rounds()
    ours, looped, pooled, by_hand = (np.zeros((_TASKS, 16)) for _ in range(4))
    work = ost.task(_work, access={"cells": ost.ReadWrite})

    def step() -> None:
        for cell in ours:
            work(cell, rounds)

    with ost.compile(step, machine=context.machine) as program, ThreadPoolExecutor(2) as pool:
        adapt(program)
        ours[:] = 0
        runs = {
            OURS: program.replay,
            HAND: partial(_by_hand, by_hand, rounds),
            LOOP: partial(_in_loop, looped, rounds),
            POOL: partial(_in_pool, pool, list(pooled), rounds),
        }
        for start in runs.values():
            start(3)
        if not all((cells == looped).all() for cells in (ours, by_hand, pooled)):
            raise AssertionError("three steps do not give the same cells")
        contestants = [Contestant(name, start, _TASKS) for name, start in runs.items()]
        locked = getattr(sys, "_is_gil_enabled", lambda: True)()
        measure(contestants, rounds=context.rounds, seconds=_LONGER * context.seconds)
        case = f"16 tasks of 20 us, {'with' if locked else 'without'} a lock"
        context.rows += [Row("pure", case, each.name, "ns/task", tuple(each.samples), LOOP) for each in contestants]
