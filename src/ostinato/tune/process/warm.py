"""The parent's side of a warm worker: a Python process that measures one callable after the other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ostinato.tune.outcome import MOST_PRINTED
from ostinato.tune.process.loop import Loop
from ostinato.tune.process.pipes import ROOM, output_pipe
from ostinato.tune.process.reaper import Exited, Lost, NotStarted, Reaper, Started, Stuck, Swept

__all__ = ["Ended", "WarmWorker"]

Ended = Exited | NotStarted | Stuck | Lost
Message = dict[str, Any]

# By its path: with -m, a file of the package's name in the current folder would be run in its place.
_ENTRY = os.fspath(Path(__file__).parents[1] / "worker" / "__main__.py")
_REQUESTS, _REPORTS = 3, 4
_TAIL = 4096
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode
_LONGEST = 1 << 26


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
        Called whenever more is printed, once `printed_bytes` is above `MOST_PRINTED`.
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
        self._partial = ""
        self.printed_bytes = 0
        """How much was written since somebody set this to zero."""
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

    def sweep(self) -> None:
        """Kill everything that the worker started; `swept` becomes true when it is gone."""
        self.swept = False
        self._reaper.sweep()

    def hear(self) -> None:
        """Read what has arrived, now."""
        self._read_reports()

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
        while self._reports in self._watched:
            try:
                data = os.read(self._reports, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._unwatch(self._reports)
                return
            *lines, self._partial = (self._partial + data.decode(errors="replace")).split("\n")
            if len(self._partial) > _LONGEST:
                self._partial = ""
            for line in lines:
                try:
                    message, end = _decode(line)
                except ValueError:
                    continue
                # A candidate may have found the descriptor and written to it; what it wrote counts for nothing.
                if isinstance(message, dict) and end == len(line):
                    self._heard(message)
            if len(data) < 1 << 16:
                return

    def _read_output(self) -> None:
        # One piece a turn: who prints without end must not keep the loop from the others.
        if self._output not in self._watched:
            return
        try:
            data = os.read(self._output, ROOM)
        except BlockingIOError:
            return
        if not data:
            self._unwatch(self._output)
        self.printed = (self.printed + data)[-_TAIL:]
        self.printed_bytes += len(data)
        if self.printed_bytes > MOST_PRINTED:
            self._flooded()

    def _told(self) -> None:
        for event in self._reaper.read():
            if isinstance(event, Swept):
                self.swept = True
            elif not isinstance(event, Started):
                self._read_reports()
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
        for fd in list(self._watched):
            self._unwatch(fd)
        if self._blocked:
            self._loop.forget(requests)
        self._loop.forget(self._reaper.fileno())
        for fd in (requests, self._reports, self._output):
            os.close(fd)
