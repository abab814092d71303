"""Measure the cases of `ranks_native.c` with programs of native tasks on ranks.

Arguments: a transport, the number of rounds, then cases such as ``stencil:ROWS:ITERATIONS:STEPS``. Rank 0 prints for
each case the microseconds that a step takes, one number for each round.

The ranks agree on the begin and the end of each replay. So the time of a step is what a long replay takes more than a
short one, divided by the steps that it has more. Each rank has one core, as in C.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import ostinato as ost

COLUMNS = 64
_LONGER = 5  # how many times the steps of the short replay


@ost.kernel
def work(x: ost.Read, y: ost.Write, iterations: int):
    value = x[0, 0]
    for _ in range(iterations):
        value = value * 0.999 + 1e-3
    y[0, :] = x[0, :]
    y[0, 0] = value


def stencil(ranks: ost.Ranks, machine: ost.Machine, rows: int, iterations: int) -> ost.Program:
    """Each row is written by a task that reads the rows beside it."""
    a, b = (ranks.array((rows, COLUMNS), tiles=(rows, 1)) for _ in range(2))

    def step(u: Any) -> None:
        for tile in a.tiles(near=1):
            row = tile.index[0]
            work(u[0][max(row - 1, 0) : row + 2], u[1][row : row + 1], iterations)

    return ost.compile(step, ost.ring(a, b), ranks=ranks, machine=machine)


def pingpong(ranks: ost.Ranks, machine: ost.Machine, nbytes: int, _: int) -> ost.Program:
    """A message to the other rank and back."""
    x = np.zeros(nbytes, np.uint8)

    def step(x: Any) -> None:
        other = 1 - ranks.rank
        if ranks.rank == 0:
            ranks.send(x, to=other)
        ranks.recv(x, source=other)
        if ranks.rank == 1:
            ranks.send(x, to=other)

    return ost.compile(step, x, ranks=ranks, machine=machine)


def exchange(ranks: ost.Ranks, machine: ost.Machine, messages: int, iterations: int) -> ost.Program:
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

    return ost.compile(step, x, y, here, there, ranks=ranks, machine=machine)


def halo(ranks: ost.Ranks, machine: ost.Machine, nbytes: int, iterations: int) -> ost.Program:
    """Both ranks exchange so many bytes beside a task, and send in the next step what they have received."""
    here, there = np.zeros(max(nbytes, 1), np.uint8), np.zeros(max(nbytes, 1), np.uint8)
    x, y = np.zeros((1, COLUMNS)), np.zeros((1, COLUMNS))

    def step(x: Any, y: Any, here: Any, there: Any) -> None:
        other = 1 - ranks.rank if nbytes else None
        ranks.send(here, to=other)
        work(x, y, iterations)
        ranks.recv(there, source=other)
        ost.copy(there, here)

    return ost.compile(step, x, y, here, there, ranks=ranks, machine=machine)


def flood(ranks: ost.Ranks, machine: ost.Machine, messages: int, _: int) -> ost.Program:
    """Rank 0 sends so many messages of 8 bytes to rank 1."""
    here, there = np.zeros((messages, 1)), np.zeros((messages, 1))

    def step(here: Any, there: Any) -> None:
        for i in range(messages):
            if ranks.rank == 0:
                ranks.send(here[i], to=1)
            else:
                ranks.recv(there[i], source=0)

    return ost.compile(step, here, there, ranks=ranks, machine=machine)


def _microseconds(program: ost.Program, steps: int) -> float:
    begin = time.perf_counter()
    program.replay(steps)
    return (time.perf_counter() - begin) * 1e6


def main() -> None:
    """Measure the cases."""
    ranks, machine = ost.Ranks(transport=sys.argv[1]), ost.Machine(cpus=1)  # type: ignore[arg-type]
    for case in sys.argv[3:]:
        kind, first, second, steps = case.split(":")
        with globals()[kind](ranks, machine, int(first), int(second)) as program:
            program.replay(int(steps))  # to warm up
            samples = []
            for _ in range(int(sys.argv[2])):
                short, long = (_microseconds(program, count * int(steps)) for count in (1, _LONGER))
                samples.append((long - short) / ((_LONGER - 1) * int(steps)))
        if ranks.rank == 0:
            print(case, *samples, flush=True)


if __name__ == "__main__":
    main()
