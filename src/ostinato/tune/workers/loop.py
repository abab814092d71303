"""A loop over descriptors that become readable or writable, and over moments in time."""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import selectors
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ostinato.tune.workers.reaper import Reaper


@dataclass(eq=False, slots=True)
class Timer:
    """A call at a moment in time; `cancel` takes it back."""

    call: Callable[[], None] | None

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

    def watch(self, fd: int, call: Callable[[], object], *, write: bool = False) -> None:
        """Call `call` whenever `fd` is readable, or writable, until `forget`."""
        self._selector.register(fd, selectors.EVENT_WRITE if write else selectors.EVENT_READ, call)

    def forget(self, fd: int) -> None:
        """Stop watching `fd`; Ctrl-C may have come before it was watched."""
        with suppress(KeyError):
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


ROOM = 1 << 18
"""Bytes that fit into such a pipe, unless this user has very many of them already."""


def output_pipe() -> tuple[int, int]:
    """Return a pipe's two ends, to read and to write, with room for more than usual.

    A command that prints much waits, within its limit of time, until the tuner reads.

    Examples
    --------
    >>> reader, writer = output_pipe()
    >>> os.write(writer, b"x" * 65_537)
    65537
    >>> os.close(reader), os.close(writer)
    (None, None)
    """
    reader, writer = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, ROOM)
    return reader, writer


STALL_SECONDS = 1.0
"""A process that looks at a limit of time so much too late was stopped meanwhile."""

MOST_STALLS = 3
"""A command gets its time limit again at most this many times: one that hangs must end even if the machine stalls."""

_INTERVAL = 0.25
_GRACE = 10.0  # a reaper says after 5 s what it cannot kill


@dataclass(eq=False)
class Watch:
    """Lets a reaper run on whenever something has stopped it, and does its work when it does not.

    `rescued` says whether the command was killed from here.

    Examples
    --------
    >>> loop = Loop()
    >>> with Reaper() as reaper:
    ...     watch = Watch(loop, reaper)
    ...     reaper.spawn(["sh", "-c", "kill -STOP $PPID; exit 3"], env={"PATH": "/bin:/usr/bin"}, seconds=60)
    ...     events = []
    ...     loop.watch(reaper.fileno(), lambda: events.extend(reaper.read()))
    ...     while len(events) < 2:
    ...         loop.turn()
    ...     watch.close()
    >>> events[-1].status, events[-1].cause
    (3, 'exit')
    """

    loop: Loop
    reaper: Reaper
    rescued: bool = False

    def __post_init__(self) -> None:
        self._due = float("inf")
        self._seconds = 0.0
        self._stalls = 0
        self._next = self.loop.now() + _INTERVAL
        self._timer = self.loop.at(self._next, self._look)

    def expect(self, seconds: float) -> None:
        """Note that nothing of the command may be there after so many seconds, and a while that the reaper needs."""
        self._seconds, self._stalls = seconds, 0
        self._due = self.loop.now() + seconds + _GRACE

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self.loop.now()
        if now > self._next + STALL_SECONDS and self._stalls < MOST_STALLS:  # so does the reaper
            self._stalls += 1
            self._due = max(self._due, now + self._seconds + _GRACE)
        if now >= self._due:
            self.rescued = True
            self.reaper.rescue()
        elif self.reaper.stopped():
            self.reaper.resume()
        self._next = self.loop.now() + _INTERVAL
        self._timer = self.loop.at(self._next, self._look)
