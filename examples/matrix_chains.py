"""Chains of small matrix products: where the ends of robot arms are, while all their joints turn.

In each step, every joint of every arm turns a little, and the product of its joints says where an arm ends. A product
waits for the one before it in its chain; chains are independent. One product takes less than a microsecond, far less
than the call of a thread pool. Without Ostinato, one would let NumPy multiply the matrices of all arms at once, or
compile the loops with Numba.
"""

import argparse
from typing import Any

import numba
import numpy as np
from comparison import Way, compare

import ostinato as ost


def product(a: ost.Read, b: ost.Read, c: ost.Write) -> None:
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = 0.0
        for k in range(b.shape[0]):
            for j in range(c.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


multiply = ost.kernel(product)
compiled = numba.njit(product)


def step(joints: Any, turns: Any, ends: Any) -> None:
    """Turn all joints; then `ends[arm, j]` is the product of the joints 0 to j."""
    arms, length = joints[0].shape[:2]
    for arm in range(arms):
        for j in range(length):
            multiply(joints[0][arm, j], turns[j], joints[1][arm, j])
        multiply(joints[1][arm, 0], joints[1][arm, 1], ends[arm, 1])
        for j in range(2, length):
            multiply(ends[arm, j - 1], joints[1][arm, j], ends[arm, j])


@numba.njit
def all_steps(old: np.ndarray, new: np.ndarray, turns: np.ndarray, ends: np.ndarray, steps: int) -> None:
    """The same in one compiled function."""
    arms, length = old.shape[:2]
    for _ in range(steps):
        for arm in range(arms):
            for j in range(length):
                compiled(old[arm, j], turns[j], new[arm, j])
            compiled(new[arm, 0], new[arm, 1], ends[arm, 1])
            for j in range(2, length):
                compiled(ends[arm, j - 1], new[arm, j], ends[arm, j])
        old, new = new, old


def vectorised(joints: np.ndarray, turns: np.ndarray, ends: np.ndarray, steps: int) -> None:
    """The same for all arms at once."""
    for _ in range(steps):
        joints = joints @ turns
        ends[:, 1] = joints[:, 0] @ joints[:, 1]
        for j in range(2, joints.shape[1]):
            np.matmul(ends[:, j - 1], joints[:, j], out=ends[:, j])


def rotations(*shape: int) -> np.ndarray:
    """Random matrices that keep lengths."""
    found: np.ndarray = np.linalg.qr(np.random.default_rng(4).normal(size=shape))[0]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, default=8, help="chains (default: %(default)s)")
    parser.add_argument("--length", type=int, default=12, help="joints of an arm, at least 2 (default: %(default)s)")
    parser.add_argument("--size", type=int, default=8, help="rows of a matrix (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="default: %(default)s")
    options = parser.parse_args(argv)

    start = rotations(options.arms, options.length, options.size, options.size)
    turns = rotations(options.length, options.size, options.size)
    a, b, ends = np.empty_like(start), np.empty_like(start), np.zeros_like(start)

    def by_numpy() -> np.ndarray:
        vectorised(start, turns, ends, options.steps)
        return ends[:, -1].copy()

    def by_numba() -> np.ndarray:
        all_steps(start.copy(), np.empty_like(start), turns, ends, options.steps)
        return ends[:, -1].copy()

    with ost.compile(step, ost.ring(a, b), turns, ends) as program:

        def replayed() -> np.ndarray:
            a[...] = start
            program.reset()
            program.replay(options.steps)
            return ends[:, -1].copy()

        print(f"{options.steps} steps of {len(program.graph)} products, matrices of {options.size} rows")
        return compare(
            [
                Way("Ostinato", replayed),
                Way(
                    "numba.njit",
                    by_numba,
                    why_faster="it inlines the products, and needs one core only",
                ),
                Way(
                    "NumPy, all arms at once",
                    by_numpy,
                    tolerance=1e-9,  # BLAS adds in another order
                    why_faster="BLAS multiplies faster than these loops, and few calls do it for many arms",
                ),
            ]
        )


if __name__ == "__main__":
    raise SystemExit(main())
