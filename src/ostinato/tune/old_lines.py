"""The old protocol: times that profilers print, ``OP:name,TIME:ms,WS:bytes`` on a line of its own."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

__all__ = ["OldLine", "loose_lines", "strict_line", "time_anywhere", "workspace_anywhere"]

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LINE = re.compile(r"OP:(.*),TIME:([^,]*),WS:([^,]*)", re.ASCII)
_LOOSE = re.compile(rf"(?<!\w)OP:(.*?),TIME:({_NUMBER}|[+-]?[A-Za-z]+),WS:(\d+)(?![\d.])", re.ASCII)
_TIME = re.compile(rf"(?<!\w)TIME:({_NUMBER})(?![\d.])", re.ASCII)
_WORKSPACE = re.compile(r"(?<!\w)WS:(\d+)(?![\d.])", re.ASCII)
_WHOLE = re.compile(_NUMBER, re.ASCII)


class OldLine(NamedTuple):
    """One op's line.

    Attributes
    ----------
    op
        Its name: all up to the last ``,TIME:``.
    ms, workspace
        What it says; 0 if that makes no sense.
    problem
        Why it makes no sense; empty if it does.
    """

    op: str
    ms: float
    workspace: int
    problem: str


def strict_line(line: str) -> OldLine | None:
    """Read a whole line; None if it is not one of the protocol.

    Examples
    --------
    >>> strict_line("OP:ns::k<128>-1,TIME:9.5e-05,WS:0")
    OldLine(op='ns::k<128>-1', ms=9.5e-05, workspace=0, problem='')
    >>> strict_line("OP:a,TIME:0,WS:16").problem
    'the time 0 is not positive and finite'
    >>> strict_line("STOP:a,TIME:1,WS:2") is None
    True
    """
    match = _LINE.fullmatch(line.rstrip())
    return None if match is None else _read(*match.groups())


def loose_lines(line: str) -> list[OldLine]:
    """Read all that a line holds, beside what else is printed on it.

    Examples
    --------
    >>> [old.op for old in loose_lines("[info] OP:a,TIME:1.5,WS:0 OP:b,TIME:2,WS:0 done")]
    ['a', 'b']
    """
    whole = strict_line(line)
    if whole is not None and not whole.problem:
        return [whole]
    found = [_read(*match.groups()) for match in _LOOSE.finditer(line)]
    return found or ([] if whole is None else [whole])


def time_anywhere(line: str) -> float | None:
    """Return the least positive time that a line holds as ``TIME:ms``; None if it holds none."""
    times = [float(text) for text in _TIME.findall(line)]
    return min((ms for ms in times if 0 < ms < math.inf), default=None)


def workspace_anywhere(line: str) -> int | None:
    """Return the first ``WS:bytes`` of a line; None if it holds none."""
    match = _WORKSPACE.search(line)
    return None if match is None else int(match[1][:19])


def _read(op: str, time: str, workspace: str) -> OldLine:
    if not _WHOLE.fullmatch(time):
        try:  # what printf and iostreams write for them
            float(time)
        except ValueError:
            return OldLine(op, 0.0, 0, f"the time {time[:40]!r} is no number")
        return OldLine(op, 0.0, 0, f"the time {time[:40]} is not positive and finite")
    ms = float(time)
    if not 0 < ms < math.inf:
        return OldLine(op, 0.0, 0, f"the time {time[:40]} is not positive and finite")
    if not (workspace.isascii() and workspace.isdigit() and len(workspace) <= 19):
        return OldLine(op, 0.0, 0, f"the workspace {workspace[:40]!r} is no number of bytes")
    return OldLine(op, ms, int(workspace), "")
