"""What tasks are given that compute for a number of iterations, and that check what they read."""

from __future__ import annotations

import numpy as np

from benchmarks.patterns import Flat

_LINE = 8  # 64-bit words


def make_buffers(n_ops: int) -> np.ndarray:
    """Two cache lines for each op, a pair: processors fetch lines in pairs."""
    size = n_ops * 2 * _LINE
    room = np.zeros(size + 2 * _LINE, np.int64)
    first = -room.ctypes.data // room.itemsize % (2 * _LINE)
    return room[first : first + size].reshape(n_ops, 2, _LINE)


class ValidationTable:
    """One record per op for the task body that checks what it reads; `users[i]` is the address of op i's."""

    def __init__(self, flat: Flat, iterations: int = 0) -> None:
        self._records = np.zeros((flat.n_ops, _LINE), np.int64)
        self.users = self._records.ctypes.data + np.arange(flat.n_ops, dtype=np.int64) * (_LINE * 8)
        self._kept: list[np.ndarray] = []
        for op, reads in enumerate(flat.reads):
            sources, distances = np.array(reads, np.int64).reshape(-1, 2).T.copy()
            self._kept += [sources, distances]
            self._records[op, :5] = op, iterations, len(reads), sources.ctypes.data, distances.ctypes.data


class WorkTable:
    """Iterations by op and step; the number of columns is a power of two, and steps wrap around."""

    def __init__(self, iterations: np.ndarray) -> None:
        self._iterations = np.ascontiguousarray(iterations, np.int64)
        ops, period = iterations.shape
        self._records = np.empty((ops, 8), np.int64)  # a cache line each
        self._records[:, 0] = period - 1
        self._records[:, 1] = self._iterations.ctypes.data + np.arange(ops) * (period * 8)
        self.users = self._records.ctypes.data + np.arange(ops, dtype=np.int64) * 64
