"""Keeping a reaper at work: what it runs has the same user, and may stop it."""

from __future__ import annotations

from ostinato.tune.process.loop import Loop, Timer
from ostinato.tune.process.reaper import Reaper

__all__ = ["Watch"]

_INTERVAL = 0.25
_GRACE = 10.0  # a reaper says after 5 s what it cannot kill


class Watch:
    """Lets a reaper run on whenever something has stopped it, and does its work when it does not.

    Attributes
    ----------
    rescued
        Whether the command was killed from here.

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

    def __init__(self, loop: Loop, reaper: Reaper) -> None:
        self.rescued = False
        self._loop = loop
        self._reaper = reaper
        self._due = float("inf")
        self._timer: Timer = loop.at(loop.now() + _INTERVAL, self._look)

    def expect(self, seconds: float) -> None:
        """Note that nothing of the command may be there after so many seconds, and a while that the reaper needs."""
        self._due = self._loop.now() + seconds + _GRACE

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._loop.now() >= self._due:
            self.rescued = True
            self._reaper.rescue()
        elif self._reaper.stopped():
            self._reaper.resume()
        self._timer = self._loop.at(self._loop.now() + _INTERVAL, self._look)
