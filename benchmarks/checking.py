"""Before anything is timed: does a contestant run every task, once a step, after what it depends on?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.patterns import Flat

_WORDS = 8  # count, errors, number of sources, their addresses, their distances; a cache line each


class Check:
    """One record per op for the task body that counts; `users[i]` is the address of op i's."""

    def __init__(self, flat: Flat) -> None:
        self._records = np.zeros((flat.n_ops, _WORDS), np.int64)
        self.users = self._records.ctypes.data + np.arange(flat.n_ops, dtype=np.int64) * (_WORDS * 8)
        self._kept: list[np.ndarray] = []
        for op in range(flat.n_ops):
            into = flat.target == op
            sources = np.ascontiguousarray(self.users[flat.source[into]])
            distances = flat.distance[into].astype(np.int64)
            self._kept += [sources, distances]
            self._records[op, 2:5] = len(sources), sources.ctypes.data, distances.ctypes.data

    def verify(self, run: Callable[[int], object], name: str, steps: int = 192) -> None:
        """Run some steps, twice, and raise unless each op ran once in each of them and never too early."""
        before = self._records[:, 0].copy()  # of steps in which a program adapted
        run(steps)
        run(steps)
        counts, errors = self._records[:, 0] - before, int(self._records[:, 1].sum())
        if errors or not (counts == 2 * steps).all():
            raise AssertionError(
                f"{name}: {errors} calls came too early; "
                f"ops ran {counts.min()} to {counts.max()} times in {2 * steps} steps"
            )
