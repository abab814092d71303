"""Conjugate gradients: solves Poisson's equation and stops at the iteration at which the plain loop stops.

The residual decides when to stop, and it is computed by tasks. `ost.until` names the flag that a task sets; no
later step begins before it is known, so a replay does exactly what a loop with `break` does: the same number of
iterations, and the same residuals bit for bit, because each sum is taken in one fixed order.
"""

import argparse
import time
from typing import Any

import numpy as np

import ostinato as ost

BLOCKS = 8


@ost.task
def laplacian(p: ost.Read, q: ost.Write, partial: ost.Write) -> None:
    """q = A p on one block of rows, and the block's share of p.q; `p` has one more row and column on each side."""
    centre = p[1:-1, 1:-1]
    q[...] = 4 * centre - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]
    partial[0] = np.vdot(centre, q)


@ost.task
def step_length(partial: ost.Read, rho: ost.Read, alpha: ost.Write) -> None:
    alpha[0] = rho[0] / partial.sum()


@ost.task
def advance(p: ost.Read, q: ost.Read, alpha: ost.Read, x: ost.ReadWrite, r: ost.ReadWrite, partial: ost.Write) -> None:
    """Move one block along the search direction, and take its share of the new r.r."""
    x += alpha[0] * p
    r -= alpha[0] * q
    partial[0] = np.vdot(r, r)


@ost.task
def judge(
    partial: ost.Read, rho: ost.ReadWrite, beta: ost.Write, history: ost.ReadWrite, flag: ost.Write, tolerance, k
) -> None:
    """Sum up r.r, write it down as that of iteration k, and say whether it is small enough."""
    total = partial.sum()
    beta[0] = total / rho[0]
    rho[0] = history[k] = total
    flag[0] = np.sqrt(total) <= tolerance


@ost.task
def turn(r: ost.Read, beta: ost.Read, p: ost.ReadWrite) -> None:
    p *= beta[0]
    p += r


class System:
    """The unknowns, the vectors of the method, and its scalars as arrays of one element."""

    def __init__(self, size: int, most: int) -> None:
        y, x = np.meshgrid(*(np.linspace(0, 1, size),) * 2, indexing="ij")
        self.r = np.sin(3 * x) * np.exp(y) - x * y
        self.x, self.q = np.zeros((size, size)), np.zeros((size, size))
        self.p = np.pad(self.r, 1)
        self.rho, self.alpha, self.beta = np.array([np.vdot(self.r, self.r)]), np.zeros(1), np.zeros(1)
        self.partial, self.history, self.flag = np.zeros(BLOCKS), np.zeros(most), np.zeros(1, dtype=bool)

    def iterate(self, tolerance: float, k: Any) -> None:
        """One iteration: runs at once, and is recorded while a step is compiled."""
        cuts = np.linspace(0, len(self.x), BLOCKS + 1).astype(int).tolist()
        blocks = [(i, slice(cuts[i], cuts[i + 1]), slice(cuts[i] + 1, cuts[i + 1] + 1)) for i in range(BLOCKS)]
        for i, rows, _ in blocks:
            laplacian(self.p[rows.start : rows.stop + 2], self.q[rows], self.partial[i : i + 1])
        step_length(self.partial, self.rho, self.alpha)
        for i, rows, inner in blocks:
            advance(self.p[inner, 1:-1], self.q[rows], self.alpha, self.x[rows], self.r[rows], self.partial[i : i + 1])
        judge(self.partial, self.rho, self.beta, self.history, self.flag, tolerance, k)
        for _, rows, inner in blocks:
            turn(self.r[rows], self.beta, self.p[inner, 1:-1])

    def step(self, tolerance: float) -> None:
        """One iteration of the program, which ends with the one in which the flag is set."""
        self.iterate(tolerance, ost.step)
        ost.until(self.flag)


def plain_loop(system: System, tolerance: float) -> int:
    for k in range(len(system.history)):
        system.iterate(tolerance, k)
        if system.flag[0]:
            break
    return k + 1


def replayed(system: System, tolerance: float) -> int:
    with ost.Machine() as machine, ost.compile(system.step, tolerance, machine=machine) as program:
        return program.replay(len(system.history), progress=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, help="unknowns on a side (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-8, help="for the residual (default: %(default)s)")
    parser.add_argument("--most", type=int, default=5000, help="iterations at most (default: %(default)s)")
    options = parser.parse_args(argv)

    plain, replay = System(options.size, options.most), System(options.size, options.most)
    start = time.perf_counter()
    expected = plain_loop(plain, options.tolerance)
    between = time.perf_counter()
    steps = replayed(replay, options.tolerance)
    end = time.perf_counter()

    equal = steps == expected and all(np.array_equal(getattr(plain, v), getattr(replay, v)) for v in ("x", "history"))
    print(f"plain loop {between - start:.2f} s, replay {end - between:.2f} s")
    print(f"plain loop stopped after {expected} iterations, replay after {steps}; residual {replay.rho[0] ** 0.5:.3e}")
    print(f"solution and residuals equal bit for bit: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
