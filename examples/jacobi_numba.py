"""Jacobi's method with kernels that Numba compiles.

The kernels run as native code, without Python's lock and without a Python call: a task costs little more than a call
of a C function, so tiles may be small. Every 20th step the change since the step before is measured, and when it is
small enough, the replay stops there.
"""

import argparse
import itertools
import time
from typing import Any

import numpy as np

import ostinato as ost

ACROSS = 8
EVERY = 20


@ost.kernel
def relax(old: ost.Read, source: ost.Read, new: ost.Write) -> None:
    """One step of one tile: `old` is larger than `new` by a frame of one."""
    for i in range(new.shape[0]):
        for j in range(new.shape[1]):
            around = old[i, j + 1] + old[i + 2, j + 1] + old[i + 1, j] + old[i + 1, j + 2]
            new[i, j] = 0.25 * (around + source[i, j])


@ost.kernel
def measure(old: ost.Read, new: ost.Read, change: ost.Write) -> None:
    """The largest change in one tile."""
    largest = 0.0
    for i in range(new.shape[0]):
        for j in range(new.shape[1]):
            largest = max(largest, abs(new[i, j] - old[i, j]))
    change[0] = largest


@ost.kernel
def judge(changes: ost.Read, flag: ost.Write, tolerance: float) -> None:
    flag[0] = 1.0 if changes.max() <= tolerance else 0.0


Tile = tuple[slice, slice]


class Poisson:
    """A source, two fields that take turns, and the tiles that all are cut into."""

    def __init__(self, size: int) -> None:
        self.source = np.zeros((size, size))
        self.source[size // 3, size // 3], self.source[2 * size // 3, size // 2] = 1.0, -1.0
        self.fields = np.zeros((size + 2, size + 2)), np.zeros((size + 2, size + 2))
        self.changes, self.flag = np.zeros(ACROSS * ACROSS), np.zeros(1)
        cuts = list(itertools.pairwise(np.linspace(0, size, ACROSS + 1).astype(int).tolist()))
        self.tiles = [(rows, columns) for rows in cuts for columns in cuts]

    def iterate(self, old: Any, new: Any, tolerance: float) -> None:
        """One step: runs on arrays, and is recorded inside a capture."""
        for index, ((top, bottom), (left, right)) in enumerate(self.tiles):
            inner = np.s_[top + 1 : bottom + 1, left + 1 : right + 1]
            relax(old[top : bottom + 2, left : right + 2], self.source[top:bottom, left:right], new[inner])
            measure(old[inner], new[inner], self.changes[index : index + 1])
        judge(self.changes, self.flag, tolerance)


def plain_loop(problem: Poisson, tolerance: float, most: int) -> int:
    old, new = problem.fields
    for step in range(1, most + 1):
        problem.iterate(old, new, tolerance)
        old, new = new, old
        if step % EVERY == 0 and problem.flag[0]:
            break
    return step


def replayed(problem: Poisson, tolerance: float, most: int) -> int:
    with ost.capture() as graph:
        field = ost.ring(*problem.fields)
        problem.iterate(field[0], field[1], tolerance)
        ost.until(problem.flag, every=EVERY)
    with ost.Machine() as machine, graph.compile(machine) as program:
        return program.replay(most, progress=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128, help="unknowns on a side (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest change (default: %(default)s)")
    parser.add_argument("--most", type=int, default=20_000, help="steps at most (default: %(default)s)")
    options = parser.parse_args(argv)

    Poisson(ACROSS).iterate(*Poisson(ACROSS).fields, 0.0)  # compiles the kernels
    plain, replay = Poisson(options.size), Poisson(options.size)
    start = time.perf_counter()
    expected = plain_loop(plain, options.tolerance, options.most)
    between = time.perf_counter()
    steps = replayed(replay, options.tolerance, options.most)
    end = time.perf_counter()

    equal = steps == expected and all(map(np.array_equal, plain.fields, replay.fields))
    print(f"plain loop {between - start:.2f} s, replay {end - between:.2f} s, {len(plain.tiles)} tiles")
    print(f"plain loop stopped after {expected} steps, replay after {steps}; fields equal: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
