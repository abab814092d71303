"""Jacobi's method with kernels that Numba compiles.

The kernels run as native code, without Python's lock and without a Python call: a task costs little more than a call
of a C function, so strips may be small. The replay looks at the change since the last step in every 20th step, and
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

STRIPS = 8
EVERY = 20


@ost.kernel
def relax(old: ost.Read, source: ost.Read, new: ost.Write, change: ost.Write) -> None:
    """One step of one strip, and the largest change in it; `old` has a row more than `new` above and below."""
    last, largest = new.shape[1] - 1, 0.0
    for i in range(new.shape[0]):
        new[i, 0], new[i, last] = old[i + 1, 0], old[i + 1, last]
        for j in range(1, last):
            around = old[i, j] + old[i + 2, j] + old[i + 1, j - 1] + old[i + 1, j + 1]
            new[i, j] = 0.25 * (around + source[i, j - 1])
        for j in range(1, last):
            largest = max(largest, abs(new[i, j] - old[i + 1, j]))
    change[0] = largest


@ost.kernel
def judge(changes: ost.Read, flag: ost.Write, tolerance: float) -> None:
    flag[0] = 1.0 if changes.max() <= tolerance else 0.0


def step(u: Any, source: Any, changes: Any, flag: Any, tolerance: Any) -> None:
    """One step on all strips."""
    ends = np.linspace(0, len(source), STRIPS + 1).astype(int).tolist()
    for index, (top, bottom) in enumerate(itertools.pairwise(ends)):
        inner = u[1][top + 1 : bottom + 1]
        relax(u[0][top : bottom + 2], source[top:bottom], inner, changes[index : index + 1])
    judge(changes, flag, tolerance)
    ost.until(flag, every=EVERY)


def problem(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A source, and two fields that take turns."""
    source = np.zeros((size, size))
    source[size // 3, size // 3], source[2 * size // 3, size // 2] = 1.0, -1.0
    return source, np.zeros((size + 2, size + 2)), np.zeros((size + 2, size + 2))


class Replay:
    """The program, compiled once."""

    def __init__(self, size: int) -> None:
        source, *self.fields = problem(size)
        self.ring = ost.ring(*self.fields)
        self.program = ost.compile(step, self.ring, source, np.zeros(STRIPS), np.zeros(1), ost.param("tolerance"))

    def run(self, tolerance: float, most: int) -> np.ndarray:
        """Return the field, and as its last element the number of steps."""
        for field in self.fields:
            field[...] = 0.0
        self.program.reset()
        steps = self.program.replay(most, tolerance=tolerance)
        return np.append(self.program.current(self.ring), steps)


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


def by_numba(size: int, tolerance: float, most: int) -> np.ndarray:
    source, old, new = problem(size)
    return np.append(*whole_field(old, new, source, tolerance, most))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, help="unknowns on a side (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest change (default: %(default)s)")
    parser.add_argument("--most", type=int, default=20_000, help="steps at most (default: %(default)s)")
    options = parser.parse_args(argv)

    replay, limits = Replay(options.size), (options.tolerance, options.most)
    with replay.program:
        print(f"{STRIPS} strips, stops after {int(replay.run(*limits)[-1])} steps")
        return compare(
            [
                Way("Ostinato", lambda: replay.run(*limits)),
                Way(
                    "numba.njit",
                    lambda: by_numba(options.size, *limits),
                    why_faster=f"it measures the change in every {EVERY}th step only, and the program in all steps",
                ),
            ]
        )


if __name__ == "__main__":
    raise SystemExit(main())
