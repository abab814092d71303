"""Particles that attract each other: forces of all pairs, block by block, and one step of time."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_double, c_int
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.applications.application import OURS, PLAIN, Application, Start
from benchmarks.applications.peers import LOOPS, Advance, Here, Stages, address, import_jax, import_numba, loops

numba = import_numba()
SOFTENING, TIME, BLOCK = 0.01, 1e-6, 64


def attract(x: ost.Read, own: ost.Read, force: ost.Write) -> None:
    """The force of all particles on those of one block; the three rows of `x` are coordinates.

    `1.0 / a` raises if `a` is zero, so that Numba cannot use vectors; `np.divide` does not.
    """
    force[:, :] = 0.0
    for j in range(x.shape[1]):
        for i in range(own.shape[1]):
            dx, dy, dz = x[0, j] - own[0, i], x[1, j] - own[1, i], x[2, j] - own[2, i]
            square = dx * dx + dy * dy + dz * dz + SOFTENING
            weight = np.divide(1.0, square * sqrt(square))
            force[0, i] += weight * dx
            force[1, i] += weight * dy
            force[2, i] += weight * dz


def drift(force: ost.Read, x: ost.ReadWrite, v: ost.ReadWrite) -> None:
    for axis in range(3):
        for i in range(x.shape[1]):
            v[axis, i] += TIME * force[axis, i]
            x[axis, i] += TIME * v[axis, i]


KERNELS = ost.kernel(attract), ost.kernel(drift)
COMPILED = numba.njit(nogil=True)(attract), numba.njit(nogil=True)(drift)
ATTRACT, DRIFT = COMPILED


@numba.njit(parallel=True)
def move_parallel(x: Any, v: Any, force: Any, steps: int) -> None:
    """Do all steps, block by block."""
    for _ in range(steps):
        for i in numba.prange(x.shape[1] // BLOCK):
            ATTRACT(x, x[:, i * BLOCK : (i + 1) * BLOCK], force[:, i * BLOCK : (i + 1) * BLOCK])
        for i in numba.prange(x.shape[1] // BLOCK):
            block = slice(i * BLOCK, (i + 1) * BLOCK)
            DRIFT(force[:, block], x[:, block], v[:, block])


def forces(x: Any, xp: Any) -> Any:
    """Return the forces as an expression of arrays, NumPy's or JAX's."""
    d = x[:, :, None] - x[:, None, :]
    square = (d * d).sum(axis=0) + SOFTENING
    return (d / (square * xp.sqrt(square))).sum(axis=1)


class Cloud:
    """The particles.

    The arrays begin at a cache line. NumPy's own begin 16, 32 or 48 bytes later, by chance; then forces take up to 1.27
    times as long, so that chance would decide who is the fastest.
    """

    def __init__(self, count: int) -> None:
        memory = np.zeros(3 * 3 * count + 8)
        at_line = -memory.ctypes.data % 64 // 8
        self.x, self.v, self.force = memory[at_line : at_line + 9 * count].reshape(3, 3, count)
        self.x[...] = np.random.default_rng(5).normal(size=(3, count))

    def calls(self, tasks: Any) -> Stages:
        """Return a step, block by block."""
        attract, drift = tasks
        blocks = [slice(i, i + BLOCK) for i in range(0, self.x.shape[1], BLOCK)]
        return [
            [(attract, (self.x, self.x[:, block], self.force[:, block])) for block in blocks],
            [(drift, (self.force[:, block], self.x[:, block], self.v[:, block])) for block in blocks],
        ]

    def step(self) -> None:
        for stage in self.calls(KERNELS):
            for task, arguments in stage:
                task(*arguments)


class Particles(Application):
    """A cloud of one size."""

    tolerance = 1e-12

    def __init__(self, count: int) -> None:
        self.case, self.count = f"particles, {count:,}", count

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
        cloud = Cloud(self.count)
        return cloud.x, cloud.calls(COMPILED)

    def _ours(self, here: Here) -> Advance:
        cloud = Cloud(self.count)
        program = here.compile(cloud.step)
        return lambda steps: (program.replay(steps), cloud.x)[1]

    def _plain(self, here: Here) -> Advance:
        cloud = Cloud(self.count)

        def advance(steps: int) -> Any:
            for _ in range(steps):
                cloud.v += TIME * forces(cloud.x, np)
                cloud.x += TIME * cloud.v
            return cloud.x

        return advance

    def _numba(self, here: Here) -> Advance:
        c = Cloud(self.count)
        return lambda steps: (move_parallel(c.x, c.v, c.force, steps), c.x)[1]

    def _loops(self, threading: str, here: Here) -> Advance:
        c, run = Cloud(self.count), loops(threading).move_particles
        arrays = [address(array) for array in (c.x, c.v, c.force)]
        rest = c_double(SOFTENING), c_double(TIME)
        return lambda steps: (run(*arrays, c_int(self.count), c_int(BLOCK), c_int(steps), *rest), c.x)[1]

    def _jax(self, here: Here) -> Advance:
        jax = import_jax()
        cloud = Cloud(self.count)
        state = [jax.numpy.asarray(cloud.x), jax.numpy.asarray(cloud.v)]

        @jax.jit
        def run(x: Any, v: Any, steps: int) -> Any:
            def one(_: int, state: Any) -> Any:
                x, v = state
                v = v + TIME * forces(x, jax.numpy)
                return x + TIME * v, v

            return jax.lax.fori_loop(0, steps, one, (x, v))

        def advance(steps: int) -> Any:
            state[:] = jax.block_until_ready(run(*state, steps))
            return state[0]

        return advance


def cases(quick: bool) -> list[Application]:
    """Return the clouds that are measured."""
    return [Particles(256 if quick else 1024)]
