"""Tiled Cholesky factorisation: copy a matrix tile by tile, and factorise the copy with calls of BLAS and LAPACK."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import CFUNCTYPE, c_int, c_void_p
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import dtrsm

import ostinato as ost
from benchmarks.applications.application import OURS, PLAIN, Application, Start
from benchmarks.applications.peers import (
    LOOPS,
    Advance,
    Here,
    Stages,
    address,
    by_loop,
    fortran,
    import_jax,
    import_numba,
    loops,
)


def load(source: ost.Read, tile: ost.Write) -> None:
    tile[...] = source


def factor(tile: ost.ReadWrite) -> None:
    tile[...] = np.linalg.cholesky(tile)


def solve(diagonal: ost.Read, tile: ost.ReadWrite) -> None:
    """Solve in place; Fortran sees the tiles transposed."""
    dtrsm(1.0, diagonal.T, tile.T, lower=0, trans_a=1, overwrite_b=1)


def update(left: ost.Read, right: ost.Read, tile: ost.ReadWrite) -> None:
    tile -= left @ right.T


PLAIN_CALLS = load, factor, solve, update
TASKS = (
    ost.task(load, releases_gil=True),
    ost.task(factor, releases_gil=True),
    ost.task(solve),  # SciPy keeps the interpreter lock in calls of BLAS
    ost.task(update, releases_gil=True),
)

numba = import_numba()
DGEMM, DTRSM = (
    CFUNCTYPE(None, *[c_void_p] * count)(fortran(name).value) for name, count in (("dgemm", 13), ("dtrsm", 11))
)
L, N, T, U = (np.frombuffer(letter, np.uint8) for letter in (b"L", b"N", b"T", b"U"))
ONE, MINUS = np.ones(1), -np.ones(1)


@ost.kernel
def load_tile(source: ost.Read, tile: ost.Write) -> None:
    tile[:, :] = source


@ost.kernel
def factor_tile(tile: ost.ReadWrite) -> None:
    tile[:, :] = np.linalg.cholesky(tile)


@ost.kernel
def solve_tile(diagonal: ost.Read, tile: ost.ReadWrite) -> None:
    n = np.full(1, len(tile), np.int32).ctypes
    DTRSM(L.ctypes, U.ctypes, T.ctypes, N.ctypes, n, n, ONE.ctypes, diagonal.ctypes, n, tile.ctypes, n)


@ost.kernel
def update_tile(left: ost.Read, right: ost.Read, tile: ost.ReadWrite) -> None:
    n = np.full(1, len(tile), np.int32).ctypes
    DGEMM(T.ctypes, N.ctypes, n, n, n, MINUS.ctypes, right.ctypes, n, left.ctypes, n, ONE.ctypes, tile.ctypes, n)


KERNELS = load_tile, factor_tile, solve_tile, update_tile


class Matrix:
    """A matrix as tiles, each of them contiguous, and the tiles of its factor."""

    def __init__(self, size: int, tile: int) -> None:
        self.whole = np.random.default_rng(1).random((size, size))
        self.whole += self.whole.T + size * np.eye(size)
        count = size // tile
        self.tiles = np.ascontiguousarray(self.whole.reshape(count, tile, count, tile).swapaxes(1, 2))
        self.factor = np.zeros_like(self.tiles)

    def calls(self, tasks: Any) -> Stages:
        """Return a factorisation as stages."""
        load, factor, solve, update = tasks
        a, count = self.factor, len(self.factor)
        stages = [[(load, (self.tiles[i, j], a[i, j])) for i in range(count) for j in range(i + 1)]]
        for k in range(count):
            below = range(k + 1, count)
            stages += [[(factor, (a[k, k],))], [(solve, (a[k, k], a[i, k])) for i in below]]
            stages += [[(update, (a[i, k], a[j, k], a[i, j])) for i in below for j in range(k + 1, i + 1)]]
        return [stage for stage in stages if stage]

    def step(self, tasks: Any) -> None:
        for stage in self.calls(tasks):
            for task, arguments in stage:
                task(*arguments)


def lower(factor: np.ndarray) -> np.ndarray:
    """Return the tiles of a factor as one triangular matrix."""
    size = len(factor) * factor.shape[2]
    return np.tril(factor.swapaxes(1, 2).reshape(size, size))


class Cholesky(Application):
    """A matrix of one size in tiles of one size."""

    unit = "us/factorisation"
    tolerance = 1e-12
    blas: ClassVar = {PLAIN: 2}

    def __init__(self, size: int, tile: int) -> None:
        self.case, self.size, self.tile = f"Cholesky, {size} / {tile}", size, tile

    def contestants(self) -> Mapping[str, Start]:
        return {
            PLAIN: self._plain,
            OURS: partial(self._ours, KERNELS),
            f"{OURS}, NumPy": partial(self._ours, TASKS),
            "loop over tiles": self.by(by_loop),
            **{name: partial(self._loops, threading) for name, threading in LOOPS.items()},
            "JAX": self._jax,
            **self.schedulers(),
        }

    def stages(self) -> tuple[Any, Stages]:
        matrix = Matrix(self.size, self.tile)
        return Lower(matrix.factor), matrix.calls(PLAIN_CALLS)

    def _ours(self, tasks: Any, here: Here) -> Advance:
        matrix = Matrix(self.size, self.tile)
        program = here.compile(matrix.step, tasks)
        return lambda steps: (program.replay(steps), Lower(matrix.factor))[1]

    def _plain(self, here: Here) -> Advance:
        whole = Matrix(self.size, self.tile).whole

        def advance(steps: int) -> Any:
            for _ in range(steps):
                result = np.linalg.cholesky(whole)
            return result

        return advance

    def _loops(self, threading: str, here: Here) -> Advance:
        matrix, run = Matrix(self.size, self.tile), loops(threading).factorise
        routines = [fortran(name) for name in ("dpotrf", "dtrsm", "dgemm")]

        def advance(steps: int) -> Any:
            for _ in range(steps):
                matrix.factor[...] = matrix.tiles
                run(address(matrix.factor), c_int(len(matrix.factor)), c_int(self.tile), *routines)
            return Lower(matrix.factor)

        return advance

    def _jax(self, here: Here) -> Advance:
        jax = import_jax()
        whole = jax.numpy.asarray(Matrix(self.size, self.tile).whole)
        run = jax.jit(jax.numpy.linalg.cholesky)

        def advance(steps: int) -> Any:
            for _ in range(steps):
                result = run(whole).block_until_ready()
            return result

        return advance


class Lower:
    """A factor in tiles that becomes one matrix where it is compared, not where it is timed."""

    def __init__(self, factor: np.ndarray) -> None:
        self._factor = factor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return lower(self._factor)


def cases(quick: bool) -> list[Application]:
    """Return the matrices that are measured."""
    sizes = ((256, 32),) if quick else ((512, 32), (1024, 64), (2048, 128))
    return [Cholesky(*size) for size in sizes]
