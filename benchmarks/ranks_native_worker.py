"""Measure the cases of `ranks_native.c` with programs of native tasks on ranks.

Arguments: a transport, the number of rounds, then cases such as ``stencil:ROWS:ITERATIONS:STEPS``. Rank 0 prints for
each case the microseconds that a step takes, one number for each round.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import ostinato as ost

COLUMNS = 64


@ost.kernel
def work(x: ost.Read, y: ost.Write, iterations: int):
    value = x[0, 0]
    for _ in range(iterations):
        value = value * 0.999 + 1e-3
    y[0, :] = x[0, :]
    y[0, 0] = value


def stencil(ranks: ost.Ranks, rows: int, iterations: int) -> ost.Program:
    """Each row is written by a task that reads the rows beside it."""
    a, b = (ranks.array((rows, COLUMNS), tiles=(rows, 1)) for _ in range(2))

    def step(u: Any) -> None:
        for tile in a.tiles(near=1):
            row = tile.index[0]
            work(u[0][max(row - 1, 0) : row + 2], u[1][row : row + 1], iterations)

    return ost.compile(step, ost.ring(a, b), ranks=ranks)


def pingpong(ranks: ost.Ranks, nbytes: int, _: int) -> ost.Program:
    """A message to the other rank and back."""
    x = np.zeros(nbytes, np.uint8)

    def step(x: Any) -> None:
        other = 1 - ranks.rank
        if ranks.rank == 0:
            ranks.send(x, to=other)
        ranks.recv(x, source=other)
        if ranks.rank == 1:
            ranks.send(x, to=other)

    return ost.compile(step, x, ranks=ranks)


def exchange(ranks: ost.Ranks, messages: int, iterations: int) -> ost.Program:
    """Both ranks send and receive so many messages of 8 bytes, beside a task that needs none."""
    here, there = np.zeros((messages, 1)), np.zeros((messages, 1))
    x, y = np.zeros((1, COLUMNS)), np.zeros((1, COLUMNS))

    def step(x: Any, y: Any, here: Any, there: Any) -> None:
        other = 1 - ranks.rank
        for i in range(messages):
            ranks.send(here[i], to=other)
        work(x, y, iterations)
        for i in range(messages):
            ranks.recv(there[i], source=other)

    return ost.compile(step, x, y, here, there, ranks=ranks)


def flood(ranks: ost.Ranks, messages: int, _: int) -> ost.Program:
    """Rank 0 sends so many messages of 8 bytes to rank 1."""
    here, there = np.zeros((messages, 1)), np.zeros((messages, 1))

    def step(here: Any, there: Any) -> None:
        for i in range(messages):
            if ranks.rank == 0:
                ranks.send(here[i], to=1)
            else:
                ranks.recv(there[i], source=0)

    return ost.compile(step, here, there, ranks=ranks)


def main() -> None:
    """Measure the cases."""
    ranks = ost.Ranks(transport=sys.argv[1])  # type: ignore[arg-type]
    for case in sys.argv[3:]:
        kind, first, second, steps = case.split(":")
        with globals()[kind](ranks, int(first), int(second)) as program:
            program.replay(int(steps))  # to warm up
            samples = []
            for _ in range(int(sys.argv[2])):
                begin = time.perf_counter()
                program.replay(int(steps))
                samples.append((time.perf_counter() - begin) / int(steps) * 1e6)
        if ranks.rank == 0:
            print(case, *samples, flush=True)


if __name__ == "__main__":
    main()
