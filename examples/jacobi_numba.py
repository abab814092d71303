"""Jacobi's method with kernels that Numba compiles.

The kernels run as native code, without Python's lock and without a Python call: a task costs little more than a call
of a C function, so tiles may be small. The replay looks at the change since the step before in every 20th step, and
stops there when it is small enough. Without Ostinato, one would compile the loop over the whole field with
`numba.njit`.
"""

import argparse
import itertools
from typing import Any

import numba
import numpy as np
from comparison import Way, compare

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


class Poisson:
    """A source, two fields that take turns, and the tiles that all are cut into."""

    def __init__(self, size: int) -> None:
        self.source = np.zeros((size, size))
        self.source[size // 3, size // 3], self.source[2 * size // 3, size // 2] = 1.0, -1.0
        self.fields = np.zeros((size + 2, size + 2)), np.zeros((size + 2, size + 2))
        self.changes, self.flag = np.zeros(ACROSS * ACROSS), np.zeros(1)
        cuts = list(itertools.pairwise(np.linspace(0, size, ACROSS + 1).astype(int).tolist()))
        self.tiles = [(rows, columns) for rows in cuts for columns in cuts]


def step(tiles: Any, u: Any, source: Any, changes: Any, flag: Any, tolerance: float) -> None:
    """One step on all tiles."""
    for index, ((top, bottom), (left, right)) in enumerate(tiles):
        inner = np.s_[top + 1 : bottom + 1, left + 1 : right + 1]
        relax(u[0][top : bottom + 2, left : right + 2], source[top:bottom, left:right], u[1][inner])
        measure(u[0][inner], u[1][inner], changes[index : index + 1])
    judge(changes, flag, tolerance)
    ost.until(flag, every=EVERY)


def replayed(problem: Poisson, tolerance: float, most: int) -> np.ndarray:
    u = ost.ring(*problem.fields)
    with ost.compile(step, problem.tiles, u, problem.source, problem.changes, problem.flag, tolerance) as program:
        steps = program.replay(most)
        return np.append(program.current(u), steps)


@numba.njit
def whole_field(old: np.ndarray, new: np.ndarray, source: np.ndarray, tolerance: float, most: int) -> tuple[Any, int]:
    """The whole method as anybody would write it for Numba."""
    for step in range(1, most + 1):
        for i in range(1, old.shape[0] - 1):
            for j in range(1, old.shape[1] - 1):
                around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
                new[i, j] = 0.25 * (around + source[i - 1, j - 1])
        old, new = new, old
        if step % EVERY == 0:
            largest = 0.0
            for i in range(1, old.shape[0] - 1):
                for j in range(1, old.shape[1] - 1):
                    largest = max(largest, abs(new[i, j] - old[i, j]))
            if largest <= tolerance:
                break
    return old, step


def by_numba(problem: Poisson, tolerance: float, most: int) -> np.ndarray:
    return np.append(*whole_field(*problem.fields, problem.source, tolerance, most))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128, help="unknowns on a side (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest change (default: %(default)s)")
    parser.add_argument("--most", type=int, default=20_000, help="steps at most (default: %(default)s)")
    options = parser.parse_args(argv)

    size, limits = options.size, (options.tolerance, options.most)
    steps = int(replayed(Poisson(size), *limits)[-1])
    print(f"{ACROSS * ACROSS} tiles, stops after {steps} steps")
    return compare(
        [
            Way("Ostinato", lambda: replayed(Poisson(size), *limits)),
            Way(
                "numba.njit",
                lambda: by_numba(Poisson(size), *limits),
                why_faster="it measures the change in every 20th step only, the graph does it in each; and compiling "
                "the graph counts",
            ),
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
