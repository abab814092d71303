"""Tasks that compute for a number of iterations, given by op and step."""

from __future__ import annotations

import numpy as np


class WorkTable:
    """Iterations by op and step; the number of columns is a power of two, and steps wrap around."""

    def __init__(self, iterations: np.ndarray) -> None:
        self._iterations = np.ascontiguousarray(iterations, np.int64)
        ops, period = iterations.shape
        self._records = np.empty((ops, 8), np.int64)  # a cache line each
        self._records[:, 0] = period - 1
        self._records[:, 1] = self._iterations.ctypes.data + np.arange(ops) * (period * 8)
        self.users = self._records.ctypes.data + np.arange(ops, dtype=np.int64) * 64
