"""Heat spreads over a plate that is cut into strips, in a kernel that Numba compiles.

Two arrays take turns: a ring. Each step reads one and writes the other, strip by strip. A strip reads one row of each
of its neighbours. Ostinato finds from the slices which strip waits for which, and steps overlap as far as that allows.
Without Ostinato, one would write the loop over the whole plate, and compile it with `numba.njit`.
"""

import argparse
import itertools
from typing import Any

import numba
import numpy as np
from comparison import Way, compare

import ostinato as ost


@ost.kernel
def spread(old: ost.Read, new: ost.Write, rate: float) -> None:
    """One step of one strip: `old` has a row more than `new` above and below; the ends of a row stay as they are."""
    last = new.shape[1] - 1
    for i in range(new.shape[0]):
        new[i, 0], new[i, last] = old[i + 1, 0], old[i + 1, last]
        for j in range(1, last):
            around = old[i, j] + old[i + 2, j] + old[i + 1, j - 1] + old[i + 1, j + 1]
            new[i, j] = old[i + 1, j] + rate * (around - 4 * old[i + 1, j])


Tile = tuple[slice, slice]


def cut(size: int, count: int) -> list[Tile]:
    """For each strip, the rows that it reads and those that it writes.

    Whole rows are contiguous memory, for which Numba compiles faster code than for a part of each row.
    """
    cuts = np.linspace(0, size, count + 1).astype(int).tolist()
    return [(slice(low, high + 2), slice(low + 1, high + 1)) for low, high in itertools.pairwise(cuts)]


def step(u: Any, strips: list[Tile], rate: Any) -> None:
    """One step of the plate."""
    for halo, inner in strips:
        spread(u[0][halo], u[1][inner], rate)


def plate(size: int) -> np.ndarray:
    """A cold plate in a cold frame, with two hot spots."""
    field = np.zeros((size + 2, size + 2))
    field[size // 4 : size // 2, size // 4 : size // 2] = 100.0
    field[-size // 4 : -size // 8, size // 8 : size // 4] = 50.0
    return field


def whole_plate(old: np.ndarray, new: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """All steps, as anybody would write them for Numba; without `parallel=True`, a prange is a range."""
    for _ in range(steps):
        for i in numba.prange(1, old.shape[0] - 1):
            for j in range(1, old.shape[1] - 1):
                around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
                new[i, j] = old[i, j] + rate * (around - 4 * old[i, j])
        old, new = new, old
    return old


class Replay:
    """The program, compiled once, and the plates that take turns."""

    def __init__(self, size: int, strips: int) -> None:
        self.start, self.fields = plate(size), (plate(size), plate(size))
        self.ring = ost.ring(*self.fields)
        self.program = ost.compile(step, self.ring, cut(size, strips), ost.param("rate"))

    def run(self, steps: int, rate: float) -> np.ndarray:
        for field in self.fields:
            field[...] = self.start
        self.program.reset()
        self.program.replay(steps, rate=rate)
        newest: np.ndarray = self.program.current(self.ring)
        return newest.copy()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=512, help="cells on a side (default: %(default)s)")
    parser.add_argument("--strips", type=int, default=16, help="tasks of a step (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=400, help="any number (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.2, help="at most 0.25 (default: %(default)s)")
    options = parser.parse_args(argv)

    replay = Replay(options.size, options.strips)
    serial, parallel = numba.njit(whole_plate), numba.njit(parallel=True)(whole_plate)

    def numba_way(function: Any) -> Any:
        return lambda: function(plate(options.size), plate(options.size), options.rate, options.steps)

    with replay.program:
        replay.program.verify(2, rate=options.rate)
        print(f"{options.steps} steps of {options.strips} strips, plate of {options.size} x {options.size} cells")
        return compare(
            [
                Way("Ostinato", lambda: replay.run(options.steps, options.rate)),
                Way(
                    "numba.njit",
                    numba_way(serial),
                    why_faster="it needs one core only: with others busy, strips on two cores wait for each other",
                ),
                Way(
                    "numba.njit(parallel=True)",
                    numba_way(parallel),
                    why_faster="all rows cost the same, so a barrier in every step costs little",
                ),
            ]
        )


if __name__ == "__main__":
    raise SystemExit(main())
