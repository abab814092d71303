"""Inference: a batch in tiles through dense layers with bias and ReLU, in single precision."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

import ostinato as ost
from benchmarks.applications.application import OURS, PLAIN, Application, Start
from benchmarks.applications.peers import LOOPS, Advance, Here, Stages, fortran, import_jax, import_numba, loops

WIDTHS = (256, 512, 512, 64)
TILE = 128  # rows; with fewer, BLAS packs the weights too often


def dense(x: ost.Read, weights: ost.Read, bias: ost.Read, y: ost.Write) -> None:
    """One layer."""
    np.matmul(x, weights, out=y)
    y += bias
    np.maximum(y, 0, out=y)


dense_task = ost.task(dense, releases_gil=True)


@ost.kernel
def dense_kernel(x: ost.Read, weights: ost.Read, bias: ost.Read, y: ost.Write) -> None:
    """One layer, bias and ReLU in one pass."""
    np.dot(x, weights, y)
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = max(y[i, j] + bias[j], np.float32(0))


class Network:
    """The weights, and an array for what each layer gives."""

    def __init__(self, batch: int) -> None:
        random = np.random.default_rng(2)
        pairs = list(pairwise(WIDTHS))
        self.weights = [random.normal(0, n**-0.5, (n, m)).astype(np.float32) for n, m in pairs]
        self.biases = [random.normal(0, 0.1, m).astype(np.float32) for _, m in pairs]
        self.layers = [random.normal(size=(batch, WIDTHS[0])).astype(np.float32)]
        self.layers += [np.zeros((batch, m), np.float32) for _, m in pairs]

    def calls(self, dense: Any, tile: int) -> Stages:
        """Return the layers, tile by tile."""
        layers = zip(self.layers, self.weights, self.biases, self.layers[1:], strict=False)
        tiles = [slice(i, i + tile) for i in range(0, len(self.layers[0]), tile)]
        return [[(dense, (x[rows], w, b, y[rows])) for rows in tiles] for x, w, b, y in layers]

    def step(self, dense: Any) -> None:
        for stage in self.calls(dense, TILE):
            for task, arguments in stage:
                task(*arguments)


class Inference(Application):
    """A batch of one size."""

    unit = "us/batch"
    tolerance = 1e-5
    blas: ClassVar = {PLAIN: 2}

    def __init__(self, batch: int) -> None:
        self.case, self.batch = f"inference, batch of {batch}", batch

    def contestants(self) -> Mapping[str, Start]:
        return {
            PLAIN: self._plain,
            OURS: partial(self._ours, dense_kernel),
            f"{OURS}, NumPy": partial(self._ours, dense_task),
            "Numba prange": self._numba,
            **{name: partial(self._loops, threading) for name, threading in LOOPS.items()},
            "JAX": self._jax,
            **self.schedulers(),
        }

    def stages(self) -> tuple[Any, Stages]:
        network = Network(self.batch)
        return network.layers[-1], network.calls(dense, TILE)

    def _ours(self, task: Any, here: Here) -> Advance:
        network = Network(self.batch)
        program = here.compile(network.step, task)
        return lambda steps: (program.replay(steps), network.layers[-1])[1]

    def _plain(self, here: Here) -> Advance:
        network = Network(self.batch)
        calls = [stage[0] for stage in network.calls(dense, self.batch)]

        def advance(steps: int) -> Any:
            for _ in range(steps):
                for layer, arguments in calls:
                    layer(*arguments)
            return network.layers[-1]

        return advance

    def _numba(self, here: Here) -> Advance:
        numba = import_numba()

        @numba.njit(parallel=True)
        def layer(x: Any, w: Any, b: Any, y: Any) -> None:
            for tile in numba.prange(len(x) // TILE):
                rows = slice(tile * TILE, (tile + 1) * TILE)
                np.dot(x[rows], w, y[rows])
                for i in range(tile * TILE, (tile + 1) * TILE):
                    for j in range(y.shape[1]):
                        y[i, j] = max(y[i, j] + b[j], np.float32(0))

        n = Network(self.batch)

        def advance(steps: int) -> Any:
            for _ in range(steps):
                for arguments in zip(n.layers, n.weights, n.biases, n.layers[1:], strict=False):
                    layer(*arguments)
            return n.layers[-1]

        return advance

    def _loops(self, threading: str, here: Here) -> Advance:
        n, run, gemm = Network(self.batch), loops(threading).infer, fortran("sgemm")

        def pointers(arrays: list[np.ndarray]) -> Any:
            return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))

        arrays = [pointers(each) for each in (n.layers, n.weights, n.biases)]
        widths = (c_int * len(WIDTHS))(*WIDTHS)

        def advance(steps: int) -> Any:
            for _ in range(steps):
                run(*arrays, widths, c_int(len(WIDTHS) - 1), c_int(self.batch), c_int(TILE), gemm)
            return n.layers[-1]

        return advance

    def _jax(self, here: Here) -> Advance:
        jax = import_jax()
        network = Network(self.batch)
        first = jax.numpy.asarray(network.layers[0])
        weights, biases = (list(map(jax.numpy.asarray, each)) for each in (network.weights, network.biases))

        @jax.jit
        def run(x: Any, weights: Any, biases: Any) -> Any:
            for w, b in zip(weights, biases, strict=True):
                x = jax.numpy.maximum(x @ w + b, 0)
            return x

        def advance(steps: int) -> Any:
            for _ in range(steps):
                result = run(first, weights, biases).block_until_ready()
            return result

        return advance


def cases(quick: bool) -> list[Application]:
    """Return the batches that are measured."""
    return [Inference(128 if quick else 512)]
