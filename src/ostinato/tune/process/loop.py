"""A loop over descriptors that become readable or writable, and over moments in time."""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable

__all__ = ["Loop", "Timer"]


class Timer:
    """A call at a moment in time; `cancel` takes it back."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Calls what waits for a descriptor or a moment; everything in the thread that calls `turn`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = itertools.count()
        self._due: list[Callable[[], None]] = []

    now = staticmethod(time.monotonic)

    def watch(self, fd: int, call: Callable[[], None], *, write: bool = False) -> None:
        """Call `call` whenever `fd` is readable, or writable, until `forget`."""
        self._selector.register(fd, selectors.EVENT_WRITE if write else selectors.EVENT_READ, call)

    def forget(self, fd: int) -> None:
        self._selector.unregister(fd)

    def before_waiting(self, call: Callable[[], None]) -> None:
        """Call `call` once, before the next wait."""
        self._due.append(call)

    def at(self, moment: float, call: Callable[[], None]) -> Timer:
        """Call `call` once, at `moment` of `now` or soon after."""
        timer = Timer(call)
        heapq.heappush(self._timers, (moment, next(self._number), timer))
        return timer

    def turn(self, seconds: float | None = None) -> None:
        """Wait until something is to be done, at most `seconds`, and do it."""
        while self._due:
            self._due.pop()()
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        if timers:
            left = max(0.0, timers[0][0] - self.now())
            seconds = left if seconds is None else min(left, seconds)
        for key, _ in self._selector.select(seconds):
            # Somebody called before in this turn may have stopped watching, and the number may be another's by now.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        now = self.now()
        while timers and timers[0][0] <= now:
            call = heapq.heappop(timers)[2].call
            if call is not None:
                call()

    def clear(self) -> None:
        """Forget everything: also what nobody will, because an interrupt came between a `watch` and what it was for."""
        self.close()
        self._selector = selectors.DefaultSelector()

    def close(self) -> None:
        self._selector.close()
        self._timers.clear()
        self._due.clear()
