"""Heat spreads over a plate of 16 tiles.

Two arrays take turns: a ring. Each step reads one and writes the other, tile by tile; a tile reads one row or
column of its neighbours. Nothing says so but the slices: Ostinato finds from them which tile waits for which, and
steps overlap as far as that allows. The plain loop beside it calls the same functions, and gives the same bits.
"""

import argparse
import itertools
import time
from typing import Any

import numpy as np

import ostinato as ost

ACROSS = 4


@ost.task
def spread(old: ost.Read, new: ost.Write, rate: float) -> None:
    """One step of one tile: `old` is larger than `new` by a frame of one."""
    centre = old[1:-1, 1:-1]
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[...] = centre + rate * (around - 4 * centre)


Tile = tuple[tuple[slice, slice], tuple[slice, slice]]


def cut(size: int) -> list[Tile]:
    """For each tile, the slices of what it reads and of what it writes."""
    cuts = np.linspace(0, size, ACROSS + 1).astype(int).tolist()
    spans = [(slice(low, high + 2), slice(low + 1, high + 1)) for low, high in itertools.pairwise(cuts)]
    return [((rows[0], columns[0]), (rows[1], columns[1])) for rows in spans for columns in spans]


def sweep(tiles: list[Tile], old: Any, new: Any, rate: Any) -> None:
    """One step of the plate: runs on arrays, and is recorded inside a capture."""
    for halo, inner in tiles:
        spread(old[halo], new[inner], rate)


def plate(size: int) -> np.ndarray:
    """A cold plate in a cold frame, with two hot spots."""
    field = np.zeros((size + 2, size + 2))
    field[size // 4 : size // 2, size // 4 : size // 2] = 100.0
    field[-size // 4 : -size // 8, size // 8 : size // 4] = 50.0
    return field


def plain_loop(size: int, steps: int, rate: float) -> np.ndarray:
    """The whole program as anybody would write it."""
    old, new, tiles = plate(size), plate(size), cut(size)
    for _ in range(steps):
        sweep(tiles, old, new, rate)
        old, new = new, old
    return old


def replayed(size: int, steps: int, rate: float) -> np.ndarray:
    """One step is captured and compiled; the rest is one call."""
    fields = plate(size), plate(size)
    with ost.capture() as graph:
        field = ost.ring(*fields)
        sweep(cut(size), field[0], field[1], ost.param("rate"))
    with ost.Machine() as machine, graph.compile(machine) as program:
        program.replay(steps, rate=rate, progress=True)
    return fields[steps % 2]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, help="pixels on a side (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="any number (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.2, help="at most 0.25 (default: %(default)s)")
    options = parser.parse_args(argv)

    start = time.perf_counter()
    expected = plain_loop(options.size, options.steps, options.rate)
    between = time.perf_counter()
    result = replayed(options.size, options.steps, options.rate)
    end = time.perf_counter()

    equal = np.array_equal(result, expected)
    print(f"plain loop {between - start:.2f} s, replay {end - between:.2f} s, {options.steps} steps of 16 tiles")
    print(f"hottest point {result.max():.6f}, equal bit for bit: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
