"""Four photograph-like frames through four filters: blur across, blur down, sharpen, tone curve to bytes."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int
from functools import partial
from math import sqrt
from typing import Any, ClassVar

import numpy as np

import ostinato as ost
from benchmarks.applications.application import OURS, PLAIN, Application, Start
from benchmarks.applications.peers import LOOPS, Advance, Here, Stages, address, import_jax, import_numba, loops

numba = import_numba()
ROWS = 96  # of a tile
FOUR, SIX, SIXTEENTH, AMOUNT, ONE, ZERO, WHITE = (np.float32(v) for v in (4, 6, 1 / 16, 0.75, 1, 0, 255))


def blur_across(source: ost.Read, out: ost.Write) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            near = source[i, j + 1] + source[i, j + 3]
            out[i, j] = (source[i, j] + source[i, j + 4] + FOUR * near + SIX * source[i, j + 2]) * SIXTEENTH


def blur_down(source: ost.Read, out: ost.Write) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            near = source[i + 1, j] + source[i + 3, j]
            out[i, j] = (source[i, j] + source[i + 4, j] + FOUR * near + SIX * source[i + 2, j]) * SIXTEENTH


def sharpen(source: ost.Read, soft: ost.Read, out: ost.Write) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = source[i, j] + AMOUNT * (source[i, j] - soft[i, j])


def to_bytes(crisp: ost.Read, out: ost.Write) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.uint8(WHITE * sqrt(min(max(crisp[i, j], ZERO), ONE)))


FILTERS = (blur_across, blur_down, sharpen, to_bytes)
KERNELS = tuple(ost.kernel(each) for each in FILTERS)
COMPILED = tuple(numba.njit(nogil=True)(each) for each in FILTERS)
ACROSS, DOWN, SHARPEN, TO_BYTES = COMPILED


@numba.njit(parallel=True)
def filter_parallel(sources: Any, across: Any, soft: Any, crisp: Any, result: Any) -> None:
    """All frames, a strip of rows of each at a time: within a strip, filters share what lies in the cache."""
    for k in range(len(sources)):
        count = result.shape[1]
        for i in numba.prange((count + 4 + ROWS - 1) // ROWS):
            ACROSS(sources[k, i * ROWS : (i + 1) * ROWS], across[k, i * ROWS : (i + 1) * ROWS])
        for i in numba.prange((count + ROWS - 1) // ROWS):
            low, high = i * ROWS, min((i + 1) * ROWS, count)
            DOWN(across[k, low : high + 4], soft[k, low:high])
            SHARPEN(sources[k, low + 2 : high + 2, 2:-2], soft[k, low:high], crisp[k, low:high])
            TO_BYTES(crisp[k, low:high], result[k, low:high])


def blur(u: Any) -> Any:
    """Return the frames blurred down: an expression of arrays, NumPy's or JAX's."""
    return (u[:, :-4] + u[:, 4:] + FOUR * (u[:, 1:-3] + u[:, 3:-1]) + SIX * u[:, 2:-2]) * SIXTEENTH


def tone(source: Any, soft: Any, xp: Any) -> Any:
    """Return the sharpened frames as bytes."""
    centre = source[:, 2:-2, 2:-2]
    crisp = centre + AMOUNT * (centre - soft)
    return (WHITE * xp.sqrt(xp.clip(crisp, ZERO, ONE))).astype(xp.uint8)


class Frames:
    """The frames, padded by two pixels on each side, and what the filters write."""

    def __init__(self, count: int, height: int, width: int) -> None:
        y, x = np.mgrid[0:height, 0:width] / 60.0
        waves = np.stack([0.5 + 0.4 * np.sin(x + k) * np.cos(y - k) for k in range(count)])
        noise = np.random.default_rng(3).normal(0, 0.03, waves.shape)
        self.sources = np.pad((waves + noise).astype(np.float32), ((0, 0), (2, 2), (2, 2)), mode="edge")
        self.across = np.zeros((count, height + 4, width), np.float32)
        self.soft, self.crisp = (np.zeros((count, height, width), np.float32) for _ in range(2))
        self.result = np.zeros((count, height, width), np.uint8)

    def calls(self, filters: Any) -> Stages:
        """Return the filters of all frames, tile by tile."""
        across, down, sharpen, to_bytes = filters
        height = self.result.shape[1]
        frames = list(zip(self.sources, self.across, self.soft, self.crisp, self.result, strict=True))
        tiles = [(i, min(i + ROWS, height)) for i in range(0, height, ROWS)]
        padded = [(i, min(i + ROWS, height + 4)) for i in range(0, height + 4, ROWS)]
        return [
            [(across, (s[i:end], a[i:end])) for s, a, *_ in frames for i, end in padded],
            [(down, (a[i : end + 4], b[i:end])) for _, a, b, *_ in frames for i, end in tiles],
            [(sharpen, (s[i + 2 : end + 2, 2:-2], b[i:end], c[i:end])) for s, _, b, c, _ in frames for i, end in tiles],
            [(to_bytes, (c[i:end], r[i:end])) for *_, c, r in frames for i, end in tiles],
        ]

    def step(self) -> None:
        """All frames once."""
        for stage in self.calls(KERNELS):
            for task, arguments in stage:
                task(*arguments)


class Images(Application):
    """Four frames of one size; a step filters all of them. Bytes may differ by one where sums are contracted."""

    loose: ClassVar = {name: 1 / 200 for name in ("JAX", "SciPy")}

    def __init__(self, height: int, width: int) -> None:
        self.case, self.shape = f"images, 4 of {width} x {height}", (4, height, width)

    def contestants(self) -> Mapping[str, Start]:
        return {
            PLAIN: self._plain,
            OURS: self._ours,
            "Numba prange": self._numba,
            **{name: partial(self._loops, threading) for name, threading in LOOPS.items()},
            "JAX": self._jax,
            "SciPy": self._scipy,
            **self.schedulers(),
        }

    def stages(self) -> tuple[Any, Stages]:
        frames = Frames(*self.shape)
        return frames.result, frames.calls(COMPILED)

    def _ours(self, here: Here) -> Advance:
        frames = Frames(*self.shape)
        program = here.compile(frames.step)
        return lambda steps: (program.replay(steps), frames.result)[1]

    def _plain(self, here: Here) -> Advance:
        sources = Frames(*self.shape).sources

        def advance(steps: int) -> Any:
            for _ in range(steps):
                across = blur(sources.swapaxes(1, 2)).swapaxes(1, 2)
                result = tone(sources, blur(across), np)
            return result

        return advance

    def _numba(self, here: Here) -> Advance:
        f = Frames(*self.shape)

        def advance(steps: int) -> Any:
            for _ in range(steps):
                filter_parallel(f.sources, f.across, f.soft, f.crisp, f.result)
            return f.result

        return advance

    def _loops(self, threading: str, here: Here) -> Advance:
        f, run = Frames(*self.shape), loops(threading).filter_images
        arrays = [address(array) for array in (f.sources, f.across, f.soft, f.crisp, f.result)]

        def advance(steps: int) -> Any:
            for _ in range(steps):
                run(*arrays, *map(c_int, self.shape))
            return f.result

        return advance

    def _jax(self, here: Here) -> Advance:
        jax = import_jax()
        sources = jax.numpy.asarray(Frames(*self.shape).sources)

        @jax.jit
        def run(sources: Any) -> Any:
            across = blur(sources.swapaxes(1, 2)).swapaxes(1, 2)
            return tone(sources, blur(across), jax.numpy)

        def advance(steps: int) -> Any:
            for _ in range(steps):
                result = run(sources).block_until_ready()
            return result

        return advance

    def _scipy(self, here: Here) -> Advance:
        from scipy.ndimage import correlate1d

        sources = Frames(*self.shape).sources
        weights = np.array([1, 4, 6, 4, 1], np.float32) / 16

        def advance(steps: int) -> Any:
            for _ in range(steps):
                soft = correlate1d(correlate1d(sources, weights, axis=2), weights, axis=1)[:, 2:-2, 2:-2]
                result = tone(sources, soft, np)
            return result

        return advance


def cases(quick: bool) -> list[Application]:
    """Return the sizes that are measured."""
    return [Images(96, 128)] if quick else [Images(768, 1024)]
