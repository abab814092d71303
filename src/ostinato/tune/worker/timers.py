"""Timing single calls on the processor."""

from __future__ import annotations

import time
from _collections import deque  # type: ignore[import-not-found]  # collections' own: importing that takes 1 ms
from itertools import repeat, starmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["CpuTimer"]

_now = time.perf_counter_ns  # candidates may replace what they find in the module
_TIMES_OVERHEAD = 20  # of a sample, at least, so that an error in the overhead is a twentieth of it


def _empty() -> None:
    return None


def timed(call: Callable[[], Any]) -> int:
    """Return the ns of one call, with those of the timing itself."""
    begin = _now()
    call()
    return _now() - begin


def timed_batch(call: Callable[[], Any], count: int) -> int:
    """Return the ns of `count` calls, with those of the timing itself.

    The loop is the interpreter's C code: one in Python runs at a speed that depends on what it called before.
    """
    calls = starmap(call, repeat((), count))
    begin = _now()
    deque(calls, 0)
    return _now() - begin


class CpuTimer:
    """Times one callable after the other; made once per worker, as it measures what an empty call takes.

    Attributes
    ----------
    single
        ns of an empty call timed by itself, which is taken off each sample.
    resolution
        ns below which a time says nothing of the candidate: how empty calls of different kinds (functions, methods,
        builtins) differ. Shorter ones are reported as this.
    """

    __slots__ = ("_call", "_count", "_fixed", "_per_call", "overhead", "resolution", "single")

    def __init__(self) -> None:
        self.single = _middle([timed(_empty) for _ in range(101)])
        one = _middle([timed_batch(_empty, 1) for _ in range(51)])
        many = _middle([timed_batch(_empty, 101) for _ in range(21)])
        self._per_call = max((many - one) / 100, 1.0)
        self._fixed = max(one - self._per_call, 0.0)
        self.resolution = max(self.single / 4, 1.0)
        self.overhead = self.single

    def begin(self, call: Callable[[], Any]) -> None:
        """Set what is timed from here on: singly, or in batches if one call is too short for that."""
        self._call = call
        self._count = 1
        self.overhead = self.single
        shortest = _TIMES_OVERHEAD * self.single
        once = timed(call)
        if once < shortest:
            self._count = -int(-shortest // (max(once - self.single, 0.0) + self._per_call))
            self.overhead = self._per_call + self._fixed / self._count
            timed_batch(call, self._count)  # the first is slow: the loop's code comes from memory

    def take(self) -> tuple[float, int]:
        """Return the ns of one call, and those that the sample took."""
        count = self._count
        if count == 1:
            whole = timed(self._call)
            net = whole - self.single
        else:
            whole = timed_batch(self._call, count)
            net = whole / count - self.overhead
        return (net if net > self.resolution else self.resolution), whole


def _middle(values: list[int]) -> float:
    values.sort()
    return float(values[len(values) // 2])
