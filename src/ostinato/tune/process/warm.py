"""The parent's side of a warm worker: a Python process that measures one callable after the other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ostinato.tune.outcome import MOST_PRINTED
from ostinato.tune.process.json_line import json_object
from ostinato.tune.process.loop import Loop
from ostinato.tune.process.pipes import ROOM, output_pipe
from ostinato.tune.process.reaper import Exited, Lost, NotStarted, Reaper, Started, Stuck, Swept
from ostinato.tune.process.watch import Watch

__all__ = ["Ended", "WarmWorker"]

Ended = Exited | NotStarted | Stuck | Lost
Message = dict[str, Any]

# By its path: with -m, a file of the package's name in the current folder would be run in its place.
_ENTRY = os.fspath(Path(__file__).parents[1] / "worker" / "__main__.py")
_REQUESTS, _REPORTS = 3, 4
_TAIL = 4096
_encode = json.JSONEncoder(separators=(",", ":")).encode
_PIECE = 1 << 16
_MOST_PIECES = 16  # that a pipe holds
_MOST_LINES = 1000  # of one task, which has two


class WarmWorker:
    """A worker process under a reaper.

    Parameters
    ----------
    loop
        Tells when something arrives.
    reaper
        Runs the worker, and nothing else as long as this object lives.
    environment
        All of the worker's environment.
    heard
        Called with each message of the worker.
    flooded
        Called whenever more is written, once the present task has written more than it may: `MOST_PRINTED` bytes to
        all its descriptors, or 1000 lines to that of its worker.
    ended
        Called once, when the worker and everything it started are gone; every message it sent was heard before.
    """

    def __init__(
        self,
        loop: Loop,
        reaper: Reaper,
        *,
        environment: Mapping[str, str],
        memory: int | None,
        heard: Callable[[Message], None],
        flooded: Callable[[], None],
        ended: Callable[[Ended], None],
    ) -> None:
        self._loop = loop
        self._reaper = reaper
        self._heard = heard
        self._flooded = flooded
        self._ended = ended
        self._waiting = bytearray()
        self._blocked = False
        self._due = False
        self._partial = bytearray()
        self._written = 0
        self._lines = 0
        self.printed = b""
        """The end of what was written to stdout and stderr."""
        self.swept = True
        """Whether nothing is left that was there at the last `sweep`."""
        requests, self._requests = os.pipe()
        self._reports, reports = os.pipe()
        self._output, output = output_pipe()
        for fd in (self._requests, self._reports, self._output):
            os.set_blocking(fd, False)
        try:
            reaper.spawn(
                [sys.executable, _ENTRY],
                env={**environment, "OSTINATO_REPORT_FD": str(_REPORTS)},
                cwd=None,
                fds={1: output, 2: output, _REQUESTS: requests, _REPORTS: reports},
                seconds=None,
                memory=memory,
            )
        except BaseException:
            for fd in (self._requests, self._reports, self._output):
                os.close(fd)
            raise
        finally:
            for fd in (requests, reports, output):
                os.close(fd)
        loop.watch(reaper.fileno(), self._told)
        loop.watch(self._reports, self._read_reports)
        loop.watch(self._output, self._read_output)
        self._watched = {self._reports, self._output}
        self._watch = Watch(loop, reaper)
        self.send(_encode({"type": "hello", "path": sys.path}))

    def send(self, request: str) -> None:
        """Send a request, a line of JSON; what the pipe has no room for waits here."""
        self._waiting += request.encode()
        self._waiting += b"\n"
        if not self._blocked and not self._due:
            self._due = True
            self._loop.before_waiting(self._write)  # what is sent in one go is written in one go

    def kill(self) -> None:
        """Kill the worker and everything it started; `ended` is called when they are gone."""
        self._reaper.kill()
        self._watch.expect(0)

    def sweep(self) -> None:
        """Kill everything that the worker started; `swept` becomes true when it is gone."""
        self.swept = False
        self._reaper.sweep()

    def hear(self) -> None:
        """Read what has arrived, now."""
        for _ in range(_MOST_PIECES):  # a candidate may write faster than this reads
            if not self._take_reports():
                return

    def begin(self) -> None:
        """Count what is written from now on as that of a task which has begun."""
        self._written = self._lines = 0

    def abandon(self) -> None:
        """Close everything without waiting: for the end, when the reaper is closed anyway."""
        self._close()

    def _write(self) -> None:
        self._due = False
        while self._waiting and self._requests >= 0:
            try:
                del self._waiting[: os.write(self._requests, self._waiting)]
            except BlockingIOError:
                if not self._blocked:
                    self._blocked = True
                    self._loop.watch(self._requests, self._write, write=True)
                return
            except BrokenPipeError:  # it is ending, and the reaper will say how
                self._waiting.clear()
        if self._blocked:
            self._blocked = False
            self._loop.forget(self._requests)

    def _read_reports(self) -> None:
        # One piece a turn: who writes without end must not keep the loop from the others.
        self._take_reports()

    def _take_reports(self) -> bool:
        """Read one piece; return whether there may be more."""
        if self._reports not in self._watched:
            return False
        try:
            data = os.read(self._reports, _PIECE)
        except BlockingIOError:
            return False
        if not data:
            self._unwatch(self._reports)
            return False
        self._count(len(data))
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole, self._partial = bytes(self._partial + line), bytearray()
            self._lines += 1
            # A candidate may have found the descriptor and written to it; what it wrote counts for nothing.
            message = json_object(whole)
            if message is not None:
                self._heard(message)
        self._partial += rest
        if self._written > MOST_PRINTED:
            self._partial.clear()
        return len(data) == _PIECE

    def _count(self, size: int) -> None:
        self._written += size
        if self._written > MOST_PRINTED or self._lines > _MOST_LINES:
            self._flooded()

    def _read_output(self) -> None:
        if self._output not in self._watched:
            return
        try:
            data = os.read(self._output, ROOM)
        except BlockingIOError:
            return
        if not data:
            self._unwatch(self._output)
        self.printed = (self.printed + data)[-_TAIL:]
        self._count(len(data))

    def _told(self) -> None:
        for event in self._reaper.read():
            if isinstance(event, Swept):
                self.swept = True
            elif not isinstance(event, Started):
                self.hear()
                self._read_output()
                self._close()
                self._ended(event)
                return

    def _unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        self._loop.forget(fd)

    def _close(self) -> None:
        requests, self._requests = self._requests, -1  # first: nothing is closed twice, whenever an interrupt comes
        if requests < 0:
            return
        self._watch.close()
        for fd in list(self._watched):
            self._unwatch(fd)
        if self._blocked:
            self._loop.forget(requests)
        self._loop.forget(self._reaper.fileno())
        for fd in (requests, self._reports, self._output):
            os.close(fd)
