"""The pipes between the tuner and a worker: requests in, reports out, a line of JSON each."""

from __future__ import annotations

import os
from _json import make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_getpid = os.getpid
_worker = _getpid()


def measure_here() -> None:
    """Take this process for the one that measures: it may itself be the child of one that imported this."""
    global _worker
    _worker = _getpid()


def end_if_forked() -> None:
    """End this process if it is not the one that measures; called whenever a candidate's code returns."""
    if _getpid() != _worker:
        _exit(1)


class _Context:
    """What `json.JSONDecoder` is to the scanner that it uses."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    array_hook = None  # of Pythons to come


_scan = make_scanner(_Context)  # type: ignore[arg-type]  # typeshed has the scanner's type for the context's


def loads(text: str) -> Any:
    """Return the value that a text is the JSON of, without spaces around it."""
    return _scan(text, 0)[0]


# Candidates may replace what they find in modules; the worker keeps what it began with.
_read, _write, _exit = os.read, os.write, os._exit

_HIGH = 900
"""Descriptors from here on survive a candidate that closes all small ones."""


class Channel:
    """Reads requests, which may be many at once, and writes reports.

    A report is held back until the next request starts, or none is waiting: one write, and one wake-up of the tuner,
    for two lines.
    """

    __slots__ = ("_held", "_lines", "_reports", "_requests", "_rest")

    def __init__(self, requests: int, reports: int) -> None:
        self._requests = moved(requests)
        self._reports = moved(reports)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        if null != 0:
            os.close(null)
        self._lines: list[bytes] = []
        self._rest = b""
        self._held = ""

    def request(self) -> Any:
        """Return the next request; end this process when the tuner is gone."""
        lines = self._lines
        if not lines:
            self._flush()
            while not lines:
                try:
                    piece = _read(self._requests, 1 << 16)
                except OSError:  # a candidate closed the descriptor
                    _exit(1)
                if not piece:
                    _exit(0)
                *lines, self._rest = (self._rest + piece).split(b"\n")
            lines.reverse()
            self._lines = lines
        return loads(lines.pop().decode())

    def start(self, line: str) -> None:
        """Write at once, with what was held back, that a candidate starts."""
        self._held += line
        self._flush()

    def answer(self, line: str) -> None:
        """Write a report before the next start, or before waiting for a request."""
        self._held += line

    def leave(self) -> None:
        """Write what was held back, and end this process."""
        self._flush()
        _exit(0)

    def _flush(self) -> None:
        if not self._held:
            return
        end_if_forked()
        rest = self._held.encode("ascii")
        self._held = ""
        try:
            while rest:
                rest = rest[_write(self._reports, rest) :]
        except OSError:
            _exit(1)


def moved(descriptor: int) -> int:
    """Return the same file under a high number, closed on exec."""
    import fcntl
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    high = min(_HIGH, limit - 32) if limit > 0 else _HIGH  # negative: no limit
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(high, 3))
    os.close(descriptor)
    return copy
