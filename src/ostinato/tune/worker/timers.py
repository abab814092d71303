"""Timing single calls on the processor."""

from __future__ import annotations

import time
from _collections import deque  # type: ignore[import-not-found]  # the package around it takes 1 ms to import
from itertools import repeat, starmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["CpuTimer", "empty", "middle"]

_now = time.perf_counter_ns  # candidates may replace what they find in the module
_TIMES_OVERHEAD = 20  # of a sample, at least, so that an error in the overhead is a twentieth of it
_TIMES_WARM = 10  # a first call may take so many times as long as the others, without compiling anything


def empty() -> None:
    """What the overhead is measured with."""


def middle(values: list[float]) -> float:
    """Return the median of an odd number of values."""
    values.sort()
    return values[len(values) // 2]


def _timed(call: Callable[[], Any]) -> int:
    begin = _now()
    call()
    return _now() - begin


def _timed_batch(call: Callable[[], Any], count: int) -> int:
    # The loop is the interpreter's C code: one in Python runs at a speed that depends on what it called before.
    arguments = repeat((), count)
    calls = starmap(call, arguments)
    begin = _now()
    deque(calls, 0)
    end = _now()
    if arguments.__length_hint__():
        raise RuntimeError("the callable raised StopIteration")  # which ends such a loop like any other
    return end - begin


class CpuTimer:
    """Times one callable after the other; made once per worker, as it measures what an empty call takes.

    Attributes
    ----------
    overhead
        ns of an empty call, timed as the last sample was, which are taken off.
    resolution
        ns below which a time says nothing of the candidate, since empty calls of different kinds (functions, methods,
        builtins) differ by as much. A shorter time is reported as this.
    """

    __slots__ = ("_call", "_count", "_fixed", "_per_call", "_single", "overhead", "resolution")

    def __init__(self) -> None:
        self._single = middle([_timed(empty) for _ in range(101)])
        one = middle([_timed_batch(empty, 1) for _ in range(51)])
        many = middle([_timed_batch(empty, 101) for _ in range(21)])
        self._per_call = max((many - one) / 100, 1.0)
        self._fixed = max(one - self._per_call, 0.0)
        self.resolution = max(self._single / 4, 1.0)
        self.begin(empty, True)

    def begin(self, call: Callable[[], Any], single: bool) -> None:
        """Set what is timed from here on: singly, or else in batches if one call is too short for that."""
        self._call = call
        self._count = 1 if single else 0  # 0: not known yet
        self.overhead = self._single

    def take(self) -> tuple[float, int]:
        """Return the ns of one call, and those that the sample took."""
        if self._count < 2:
            whole = _timed(self._call)
            shortest = _TIMES_OVERHEAD * self._single
            if self._count or whole >= _TIMES_WARM * shortest or not self._is_batched(shortest):
                self._count = 1
                return max(whole - self._single, self.resolution), whole
        whole = _timed_batch(self._call, self._count)
        return max(whole / self._count - self.overhead, self.resolution), whole

    def end(self) -> None:
        """Forget the callable: what it holds would be in memory beside the next one's."""
        self._call = empty

    def _is_batched(self, shortest: float) -> bool:
        once = min(_timed(self._call), _timed(self._call))  # by now its code is in the cache
        if once >= shortest:
            return False
        self._count = 1 + int(shortest / (max(once - self._single, 0.0) + self._per_call))
        self.overhead = self._per_call + self._fixed / self._count
        _timed_batch(self._call, self._count)  # the first is slow: the loop's code comes from memory
        return True
