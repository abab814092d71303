"""The heat equation on a plate that is spread over the ranks of an MPI job.

Run it alone, or start ranks:

    python examples/heat_on_ranks.py
    mpiexec -n 4 python examples/heat_on_ranks.py

Each rank holds the tiles that it owns, and works on them. The compiler finds out which rows and columns ranks must send
each other. The digest that is printed is the same on any number of ranks.
"""

import argparse
import hashlib

import numpy as np

import ostinato as ost

SIDE = 256  # inner points along each side of the plate
TILES = 8  # along each side


@ost.task
def relax(source: ost.Read, target: ost.Write, rate):
    middle = source[1:-1, 1:-1]
    around = source[:-2, 1:-1] + source[2:, 1:-1] + source[1:-1, :-2] + source[1:-1, 2:]
    target[...] = middle + rate * (around - 4 * middle)


@ost.task
def hottest(inside: ost.Read, out: ost.Write):
    out[...] = inside.max()


def initial(box):
    """Return the temperatures in a box of the plate: one side is hot."""
    rows, columns = (np.arange(part.start, part.stop) for part in box)
    return np.where(columns == 0, 100.0, 0.0) + 0.01 * np.sin(rows)[:, np.newaxis]


def simulate(ranks, steps):
    """Return the plate after some steps, on rank 0, and the highest temperature inside, on every rank."""
    a, b = (ranks.array((SIDE + 2, SIDE + 2), tiles=(TILES, TILES)) for _ in range(2))
    peaks, peak = ranks.array((TILES, TILES)), np.zeros(1)
    a.set(initial)
    b.set(initial)
    u = ost.ring(a, b)

    def step(u, peaks, peak):
        for tile in a.tiles(margin=1, near=1):  # this rank's tiles and those beside them
            relax(u[0][tile.halo], u[1][tile.inner], 0.2)
            hottest(u[1][tile.inner], peaks[tile.index])
        ranks.fold(peaks, peak, "max")

    with ost.compile(step, u, peaks, peak, ranks=ranks) as program:
        program.replay(steps)
        return program.current(u).get(root=0), peak[0]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args(arguments).steps
    ranks = ost.Ranks()
    plate, peak = simulate(ranks, steps)
    if ranks.rank == 0:
        digest = hashlib.sha256(plate.tobytes()).hexdigest()[:16]
        print(f"after {steps} steps: at most {peak:.6f} degrees inside, digest {digest}")


if __name__ == "__main__":
    main()
