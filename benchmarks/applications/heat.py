"""Heat spreads over a plate: a five-point stencil, two arrays that take turns."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_double, c_int
from functools import partial
from typing import Any, ClassVar

import numpy as np

import ostinato as ost
from benchmarks.applications.application import OURS, PLAIN, Application, Start
from benchmarks.applications.peers import LOOPS, Advance, Here, Stages, address, import_jax, import_numba, loops

numba = import_numba()
RATE, STRIPS, STRIP_BYTES = 0.2, 16, 1 << 19


def spread(old: ost.Read, new: ost.Write, rate: float) -> None:
    """One step of some rows; `old` has a row and a column more on each side."""
    for i in range(new.shape[0]):
        for j in range(new.shape[1]):
            around = old[i, j + 1] + old[i + 2, j + 1] + old[i + 1, j] + old[i + 1, j + 2]
            new[i, j] = old[i + 1, j + 1] + rate * (around - 4 * old[i + 1, j + 1])


spread_strip = ost.kernel(spread)
spread_compiled = numba.njit(nogil=True)(spread)


def step(u: Any, rows: int) -> None:
    """One step of the plate, strip by strip."""
    for i in range(0, u[0].shape[0] - 2, rows):
        spread_strip(u[0][i : i + rows + 2], u[1][i + 1 : i + rows + 1, 1:-1], RATE)


@numba.njit(parallel=True)
def spread_parallel(old: Any, new: Any, steps: int) -> None:
    """Do all steps, as anybody would write them for Numba."""
    for _ in range(steps):
        for i in numba.prange(1, old.shape[0] - 1):
            for j in range(1, old.shape[1] - 1):
                around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
                new[i, j] = old[i, j] + RATE * (around - 4 * old[i, j])
        old, new = new, old


def spread_plate(u: Any) -> Any:
    """Return the new inner cells as an expression of arrays, NumPy's or JAX's."""
    centre = u[1:-1, 1:-1]
    return centre + RATE * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * centre)


class Heat(Application):
    """A plate of one size; the number of steps is even, so that the newest plate is always the first array."""

    loose: ClassVar = {"JAX": 1e-12}

    def __init__(self, size: int) -> None:
        self.case, self.size = f"heat, {size} squared", size
        self.rows = min(size // STRIPS, STRIP_BYTES // (8 * size))
        self.multiple = 16 if size > 2000 else 2

    def contestants(self) -> Mapping[str, Start]:
        return {
            PLAIN: self._plain,
            OURS: self._ours,
            "Numba prange": self._numba,
            **{name: partial(self._loops, threading) for name, threading in LOOPS.items()},
            "JAX": self._jax,
            **self.schedulers(),
        }

    def stages(self) -> tuple[Any, Stages]:
        a, b = self._plates()
        rows = self.rows
        starts = range(0, self.size, rows)
        return a, [
            [(spread_compiled, (u[i : i + rows + 2], v[i + 1 : i + rows + 1, 1:-1], RATE)) for i in starts]
            for u, v in ((a, b), (b, a)) * (self.multiple // 2)
        ]

    def _plates(self) -> tuple[np.ndarray, np.ndarray]:
        plate = np.random.default_rng(7).random((self.size + 2, self.size + 2))
        return plate, plate.copy()

    def _ours(self, here: Here) -> Advance:
        a, b = self._plates()
        program = here.compile(step, ost.ring(a, b), self.rows)
        return lambda steps: (program.replay(steps), a)[1]

    def _plain(self, here: Here) -> Advance:
        a, b = self._plates()

        def advance(steps: int) -> np.ndarray:
            for _ in range(steps // 2):
                b[1:-1, 1:-1] = spread_plate(a)
                a[1:-1, 1:-1] = spread_plate(b)
            return a

        return advance

    def _numba(self, here: Here) -> Advance:
        a, b = self._plates()
        return lambda steps: (spread_parallel(a, b, steps), a)[1]

    def _loops(self, threading: str, here: Here) -> Advance:
        a, b = self._plates()
        run = loops(threading).heat
        return lambda steps: (run(address(a), address(b), c_int(self.size), c_int(steps), c_double(RATE)), a)[1]

    def _jax(self, here: Here) -> Advance:
        jax = import_jax()
        plate = [jax.numpy.asarray(self._plates()[0])]

        @partial(jax.jit, donate_argnums=0)
        def run(u: Any, steps: int) -> Any:
            return jax.lax.fori_loop(0, steps, lambda _, u: u.at[1:-1, 1:-1].set(spread_plate(u)), u)

        def advance(steps: int) -> Any:
            plate[0] = run(plate[0], steps).block_until_ready()
            return plate[0]

        return advance


def cases(quick: bool) -> list[Application]:
    """Return the plates that are measured."""
    return [Heat(size) for size in ((256,) if quick else (256, 1024, 4096))]
