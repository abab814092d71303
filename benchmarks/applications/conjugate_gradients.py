"""Conjugate gradients for Poisson's equation on a square grid: a solve of a fixed number of iterations."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int
from functools import partial
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.applications.application import OURS, PLAIN, Application, Start
from benchmarks.applications.peers import LOOPS, Advance, Here, Stages, address, import_jax, import_numba, loops

numba = import_numba()
BLOCKS = 8


@numba.njit(fastmath=True, nogil=True)
def apply_matrix(p: Any, q: Any) -> float:
    """q = A p on some rows, and their share of p.q; `p` has one more row and column on each side."""
    total = 0.0
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            centre = p[i + 1, j + 1]
            value = 4 * centre - p[i, j + 1] - p[i + 2, j + 1] - p[i + 1, j] - p[i + 1, j + 2]
            q[i, j] = value
            total += centre * value
    return total


@numba.njit(fastmath=True, nogil=True)
def move(p: Any, q: Any, alpha: float, x: Any, r: Any) -> float:
    """Go along the search direction, and return the share of the new r.r."""
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += alpha * p[i, j]
            r[i, j] -= alpha * q[i, j]
            total += r[i, j] * r[i, j]
    return total


def laplacian(p: ost.Read, q: ost.Write, partial: ost.Write) -> None:
    partial[0] = apply_matrix(p, q)


def step_length(partial: ost.Read, rho: ost.Read, alpha: ost.Write) -> None:
    alpha[0] = rho[0] / partial.sum()


def advance(p: ost.Read, q: ost.Read, alpha: ost.Read, x: ost.ReadWrite, r: ost.ReadWrite, partial: ost.Write) -> None:
    partial[0] = move(p, q, alpha[0], x, r)


def judge(partial: ost.Read, rho: ost.ReadWrite, beta: ost.Write) -> None:
    total = partial.sum()
    beta[0] = total / rho[0]
    rho[0] = total


def turn(r: ost.Read, beta: ost.Read, p: ost.ReadWrite) -> None:
    for i in range(r.shape[0]):
        for j in range(r.shape[1]):
            p[i, j] = r[i, j] + beta[0] * p[i, j]


TASKS = (laplacian, step_length, advance, judge, turn)
KERNELS = tuple(ost.kernel(task) for task in TASKS)
COMPILED = tuple(numba.njit(nogil=True)(task) for task in TASKS)


@numba.njit(parallel=True, fastmath=True)
def solve_parallel(x: Any, r: Any, p: Any, q: Any, iterations: int) -> None:
    """Do all iterations, as anybody would write them for Numba."""
    size = x.shape[0]
    rho = 0.0
    for i in numba.prange(size):
        for j in range(size):
            rho += r[i, j] * r[i, j]
    for _ in range(iterations):
        product = 0.0
        for i in numba.prange(size):
            for j in range(size):
                centre = p[i + 1, j + 1]
                value = 4 * centre - p[i, j + 1] - p[i + 2, j + 1] - p[i + 1, j] - p[i + 1, j + 2]
                q[i, j] = value
                product += centre * value
        alpha = rho / product
        total = 0.0
        for i in numba.prange(size):
            for j in range(size):
                x[i, j] += alpha * p[i + 1, j + 1]
                r[i, j] -= alpha * q[i, j]
                total += r[i, j] * r[i, j]
        beta = total / rho
        rho = total
        for i in numba.prange(size):
            for j in range(size):
                p[i + 1, j + 1] = r[i, j] + beta * p[i + 1, j + 1]


def laplacian_of(p: Any) -> Any:
    """Return A p for a `p` with a frame."""
    return 4 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]


class System:
    """The unknowns, the vectors of the method, and its scalars as arrays of one element."""

    def __init__(self, size: int) -> None:
        y, x = np.meshgrid(*(np.linspace(0, 1, size),) * 2, indexing="ij")
        self.right = np.sin(3 * x) * np.exp(y) - x * y
        self.x, self.r, self.q = (np.zeros((size, size)) for _ in range(3))
        self.p = np.zeros((size + 2, size + 2))
        self.rho, self.alpha, self.beta, self.partial = np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(BLOCKS)
        self.begin()

    def begin(self) -> None:
        """Forget the solution."""
        self.x[...] = 0
        self.r[...] = self.p[1:-1, 1:-1] = self.right
        self.rho[0] = np.vdot(self.right, self.right)

    def calls(self, tasks: Any) -> Stages:
        """Return an iteration as stages of calls of tasks."""
        laplacian, step_length, advance, judge, turn = tasks
        p, q, x, r, partial = self.p, self.q, self.x, self.r, self.partial
        cuts = np.linspace(0, len(x), BLOCKS + 1).astype(int).tolist()
        blocks = [(i, slice(cuts[i], cuts[i + 1]), p[cuts[i] : cuts[i + 1] + 2]) for i in range(BLOCKS)]
        return [
            [(laplacian, (halo, q[rows], partial[i : i + 1])) for i, rows, halo in blocks],
            [(step_length, (partial, self.rho, self.alpha))],
            [
                (advance, (halo[1:-1, 1:-1], q[rows], self.alpha, x[rows], r[rows], partial[i : i + 1]))
                for i, rows, halo in blocks
            ],
            [(judge, (partial, self.rho, self.beta))],
            [(turn, (r[rows], self.beta, halo[1:-1, 1:-1])) for i, rows, halo in blocks],
        ]

    def iterate(self) -> None:
        """One iteration of the program: the arrays are recorded where they are used."""
        for stage in self.calls(KERNELS):
            for task, arguments in stage:
                task(*arguments)


class ConjugateGradients(Application):
    """A grid of one size; a step is an iteration."""

    unit = "us/iteration"
    tolerance = 1e-9

    def __init__(self, size: int, iterations: int) -> None:
        self.case, self.size, self.multiple = f"conjugate gradients, {size} squared", size, iterations

    def contestants(self) -> Mapping[str, Start]:
        return {
            PLAIN: self._plain,
            OURS: self._ours,
            "Numba prange": self._numba,
            **{name: partial(self._loops, threading) for name, threading in LOOPS.items()},
            "JAX": self._jax,
            "SciPy": self._scipy,
            **self.schedulers(("thread pool",)),
        }

    def stages(self) -> tuple[Any, Stages]:
        system = System(self.size)
        return system.x, [[(system.begin, ())], *list(system.calls(COMPILED)) * self.multiple]

    def _solving(self, system: System, solve: Any) -> Advance:
        def advance(steps: int) -> np.ndarray:
            for _ in range(steps // self.multiple):
                system.begin()
                solve()
            return system.x

        return advance

    def _ours(self, here: Here) -> Advance:
        system = System(self.size)
        program = here.compile(system.iterate)
        return self._solving(system, lambda: program.replay(self.multiple))

    def _plain(self, here: Here) -> Advance:
        system = System(self.size)

        def solve() -> None:
            x, r, q, p, inner = system.x, system.r, system.q, system.p, system.p[1:-1, 1:-1]
            rho = np.vdot(r, r)
            for _ in range(self.multiple):
                q[...] = laplacian_of(p)
                alpha = rho / np.vdot(inner, q)
                x[...] += alpha * inner
                r[...] -= alpha * q
                total = np.vdot(r, r)
                inner *= total / rho
                inner += r
                rho = total

        return self._solving(system, solve)

    def _numba(self, here: Here) -> Advance:
        s = System(self.size)
        return self._solving(s, lambda: solve_parallel(s.x, s.r, s.p, s.q, self.multiple))

    def _loops(self, threading: str, here: Here) -> Advance:
        s, run = System(self.size), loops(threading).conjugate_gradients
        arrays = [address(array) for array in (s.x, s.r, s.p, s.q)]
        return self._solving(s, lambda: run(*arrays, c_int(self.size), c_int(self.multiple)))

    def _jax(self, here: Here) -> Advance:
        jax = import_jax()
        right = jax.numpy.asarray(System(self.size).right)

        @jax.jit
        def solve(right: Any) -> Any:
            def iterate(_: int, state: Any) -> Any:
                x, r, p, rho = state
                q = laplacian_of(jax.numpy.pad(p, 1))
                alpha = rho / (p * q).sum()
                x, r = x + alpha * p, r - alpha * q
                total = (r * r).sum()
                return x, r, r + total / rho * p, total

            start = jax.numpy.zeros_like(right), right, right, (right * right).sum()
            return jax.lax.fori_loop(0, self.multiple, iterate, start)[0]

        def advance(steps: int) -> Any:
            for _ in range(steps // self.multiple):
                result = solve(right).block_until_ready()
            return result

        return advance

    def _scipy(self, here: Here) -> Advance:
        from scipy.sparse import diags_array, eye_array, kron
        from scipy.sparse.linalg import cg

        line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(self.size, self.size))
        matrix = (kron(eye_array(self.size), line) + kron(line, eye_array(self.size))).tocsr()
        right = System(self.size).right

        def advance(steps: int) -> Any:
            for _ in range(steps // self.multiple):
                x, _ = cg(matrix, right.ravel(), rtol=0, atol=0, maxiter=self.multiple)
            return x.reshape(right.shape)

        return advance


def cases(quick: bool) -> list[Application]:
    """Return the grids that are measured; so many iterations that the residual is still far from zero."""
    sizes = ((64, 100),) if quick else ((64, 100), (256, 200), (1024, 20))
    return [ConjugateGradients(*size) for size in sizes]
