"""A wave in a basin: the kernel is tuned before the program is compiled, and the program is tried on 64 cores.

One step of a strip is written three ways. The task itself is what everybody writes first; its variants do the same
operations on the same numbers in the same order, piece by piece or in place, so that every bit is the same. `tune`
measures each once on copies of the strip and remembers what it found, `compile` takes the fastest that is right and
places the strips by what they take, `simulate` says what the same step would take on other machines, and `retune`
places them once more, by what they take within the program. A second run of this program finds all in the store.
"""

import argparse
import itertools
import time
from typing import Any

import numpy as np

import ostinato as ost

STRIPS = 64
SPEED = 0.2


@ost.task(releases_gil=True)
def advance(before: ost.Read, now: ost.Read, after: ost.Write, speed: float) -> None:
    """Take one step of one strip; `now` has a frame of one around the others."""
    centre = now[1:-1, 1:-1]
    around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
    after[...] = 2 * centre - before + speed * (around - 4 * centre)


@advance.variant(config={"rows": 1})
@advance.variant(config={"rows": 4})
@advance.variant(config={"rows": 16})
@ost.task(releases_gil=True)
def by_rows(before: ost.Read, now: ost.Read, after: ost.Write, speed: float, rows: int) -> None:
    """The same for some rows after the other: what is computed in between stays in the cache."""
    for top in range(0, len(after), rows):
        part = slice(top, top + rows)
        advance.function(before[part], now[top : top + rows + 2], after[part], speed)


@advance.variant()
@ost.task(releases_gil=True)
def in_place(before: ost.Read, now: ost.Read, after: ost.Write, speed: float) -> None:
    """The same without memory of its own but for one array."""
    centre = now[1:-1, 1:-1]
    around = now[:-2, 1:-1] + now[2:, 1:-1]
    around += now[1:-1, :-2]
    around += now[1:-1, 2:]
    np.multiply(centre, 4, out=after)
    around -= after
    around *= speed
    np.multiply(centre, 2, out=after)
    np.subtract(after, before, out=after)
    after += around


@advance.variant()
@ost.task(releases_gil=True)
def reordered(before: ost.Read, now: ost.Read, after: ost.Write, speed: float) -> None:
    """Fewer operations, but in another order, so that the last bits differ: never chosen, however fast it is."""
    around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
    after[...] = (2 - 4 * speed) * now[1:-1, 1:-1] + speed * around - before


def basin(size: int) -> np.ndarray:
    """Still water with a drop in it; the frame stays still."""
    y, x = np.mgrid[-1 : 1 : (size + 2) * 1j, -1 : 1 : (size + 2) * 1j]
    water: np.ndarray = np.exp(-200 * ((y - 0.2) ** 2 + (x + 0.3) ** 2))
    water[[0, -1]] = water[:, [0, -1]] = 0
    return water


def sweep(size: int, before: Any, now: Any, after: Any) -> None:
    """One step of the basin: runs on arrays, and is recorded inside a capture."""
    ends = np.linspace(1, size + 1, min(STRIPS, size) + 1).astype(int).tolist()
    for top, bottom in itertools.pairwise(ends):
        inner = slice(top, bottom), slice(1, -1)
        advance(before[inner], now[top - 1 : bottom + 1], after[inner], SPEED)


def plain_loop(size: int, steps: int) -> np.ndarray:
    """The whole program as anybody would write it."""
    before, now, after = (basin(size) for _ in range(3))
    for _ in range(steps):
        sweep(size, before, now, after)
        before, now, after = now, after, before
    return now


def main(argv: list[str] | None = None) -> int:
    """Tune, replay, compare, retune and predict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048, help="rows and columns of the basin")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--store", help="where to remember what was measured; by default the user's store")
    options = parser.parse_args(argv)

    water = [basin(options.size) for _ in range(3)]
    with ost.capture() as graph:
        field = ost.ring(*water)
        sweep(options.size, field[-1], field[0], field[1])

    begin = time.perf_counter()
    reports = graph.tune(store=options.store, progress=True)
    print(f"{reports.table()}\ntuned in {time.perf_counter() - begin:.3f} s\n")

    with graph.compile(costs=options.store) as program:
        print(program.explain(), "\n")
        program.replay(options.steps)
        equal = np.array_equal(water[options.steps % 3], plain_loop(options.size, options.steps))
        print(f"after {options.steps} steps equal to the plain loop, bit for bit: {'yes' if equal else 'no'}\n")
        for model in (None, ost.MachineModel(cores=64), ost.MachineModel(cores=8, nodes=8)):
            print(program.simulate(model), "\n")
        print(program.retune(100))
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
