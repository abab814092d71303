"""The old protocol: times that profilers print, ``OP:name,TIME:ms,WS:bytes`` on a line of its own."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

__all__ = ["BadLine", "OldLine", "OldLines", "nameless", "read_lines"]

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LINE = re.compile(r"OP:(.*),TIME:(.*),WS:(.*)", re.DOTALL)  # the name ends at the last ",TIME:"
_WHOLE = re.compile(_NUMBER, re.ASCII)
_WORKSPACE = re.compile(r"\d{1,18}", re.ASCII)
_LONE_TIME = re.compile(rf"(?<!\w)TIME:({_NUMBER})(?![.\d])", re.ASCII)
_LONE_WORKSPACE = re.compile(r"(?<!\w)WS:(\d{1,18})(?![.\d])", re.ASCII)
_MARK = b"OP:"
_LONGEST = 1 << 20


class OldLine(NamedTuple):
    """What a line says of one op."""

    op: str
    milliseconds: float
    workspace: int


class BadLine(NamedTuple):
    """A line that begins as one of the protocol, and makes no sense; `op` is empty if not even the name does."""

    text: str
    reason: str
    op: str


def read_lines(text: str) -> tuple[list[OldLine], list[BadLine]]:
    """Return what a text says in lines of their own, good and bad ones, each in their order.

    Examples
    --------
    >>> read_lines("loading\\nOP:ns::k<128>-1,TIME:9.5e-05,WS:0\\nSTOP:a,TIME:1,WS:2\\n")
    ([OldLine(op='ns::k<128>-1', milliseconds=9.5e-05, workspace=0)], [])
    >>> read_lines("OP:a,TIME:0,WS:16")[1][0].reason
    'the time 0 is not positive and finite'
    """
    lines = [_read(line) for line in text.split("\n") if line.startswith("OP:")]
    good = [line for line in lines if isinstance(line, OldLine)]
    return good, [line for line in lines if isinstance(line, BadLine)]


def nameless(text: str) -> OldLine | None:
    """Return the least ``TIME:ms`` of a text, and the first ``WS:bytes``, wherever they are; None if there is no time.

    Lines that hold ``OP:`` do not count: whose times theirs are is known, or they are broken.

    Examples
    --------
    >>> nameless("took TIME:3 ms\\nWS:64\\nTIME:1e-2\\n")
    OldLine(op='', milliseconds=0.01, workspace=64)
    """
    times, workspaces = [], []
    for line in text.split("\n"):
        if "OP:" not in line:
            times += [float(time) for time in _LONE_TIME.findall(line)]
            workspaces += _LONE_WORKSPACE.findall(line)
    least = min((time for time in times if 0 < time < math.inf), default=None)
    return None if least is None else OldLine("", least, int(workspaces[0]) if workspaces else 0)


class OldLines:
    """Finds the protocol's lines in what comes from a pipe, however much else comes.

    Examples
    --------
    >>> lines = OldLines()
    >>> lines.feed(b"loading\\nOP:a,TI"), lines.feed(b"ME:1,WS:0\\nO")
    ([], [OldLine(op='a', milliseconds=1.0, workspace=0)])
    """

    __slots__ = ("_part",)

    def __init__(self) -> None:
        self._part = b""  # of a line that may be one of the protocol, as far as it has come

    def feed(self, data: bytes) -> list[OldLine | BadLine]:
        """Return the lines that `data` completes."""
        data = self._part + data
        end = data.rfind(b"\n") + 1
        part = data[end : end + _LONGEST]
        # Three bytes tell whether a line is of interest; of one that is not, no more is kept.
        self._part = part if part.startswith(_MARK) else part[: len(_MARK)]
        if data.find(_MARK, 0, end) < 0:
            return []
        return [_read(line.decode("utf-8", "replace")) for line in data[:end].split(b"\n") if line.startswith(_MARK)]

    def rest(self) -> list[OldLine | BadLine]:
        """Return the last line, which no newline ended."""
        return self.feed(b"\n")


def _read(line: str) -> OldLine | BadLine:
    line = line.rstrip()
    match = _LINE.fullmatch(line)
    if match is None or not match[1]:
        return BadLine(line, "it is not OP:name,TIME:ms,WS:bytes", "")
    op, time, workspace = match.groups()
    if not _WHOLE.fullmatch(time):
        not_finite = time.lower().lstrip("+-").startswith(("nan", "inf"))  # as printf and iostreams write them
        reason = (
            f"the time {time[:40]} is not positive and finite" if not_finite else f"the time {time[:40]!r} is no number"
        )
        return BadLine(line, reason, op)
    milliseconds = float(time)
    if not 0 < milliseconds < math.inf:
        return BadLine(line, f"the time {time[:40]} is not positive and finite", op)
    if not _WORKSPACE.fullmatch(workspace):
        return BadLine(line, f"the workspace {workspace[:40]!r} is no number of bytes", op)
    return OldLine(op, milliseconds, int(workspace))
