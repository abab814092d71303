"""What a command reports: JSON Lines on a descriptor of its own, or the old protocol's records on stdout."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ostinato.tune.outcome import OpOutcome
from ostinato.tune.process.json_line import json_object
from ostinato.tune.process.old_lines import BadLine, OldLine, OldLines
from ostinato.tune.status import Status

__all__ = ["Lines", "Reading"]

_LONGEST_LINE = 1 << 20
_MOST_SAMPLES = 100_000  # of one op; what comes after says nothing new
_MOST_LINES = 200_000  # so that a flood of them costs the search half a second, and no minutes
_LONGEST_MESSAGE = 2000


class Lines:
    """Splits what comes from a pipe into lines; one of more than 1 MiB is left out.

    Examples
    --------
    >>> lines = Lines()
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\nthr"), lines.feed(b"ee\\n")
    ([b'one'], [b'two'], [b'three'])
    """

    __slots__ = ("_part", "_skipping")

    def __init__(self) -> None:
        self._part = b""
        self._skipping = False  # the rest of a line that is too long

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        lines = (self._part + data).split(b"\n")
        self._part = lines.pop()
        if lines and (self._skipping or len(lines[0]) > _LONGEST_LINE):
            del lines[0]
            self._skipping = False
        if len(self._part) > _LONGEST_LINE:
            self._part = b""
            self._skipping = True
        return lines


class _Op:
    """What was said of one op so far."""

    __slots__ = ("message", "problem", "samples", "status", "timeless", "times", "workspace")

    def __init__(self) -> None:
        self.samples: list[float] = []  # of `sample` messages
        self.times: list[float] = []  # of `result` messages, or of old lines
        self.status: Status | None = None  # None: it has not ended
        self.timeless = False  # whether it told a workspace and, in so many words, no time
        self.workspace = 0
        self.message = ""
        self.problem = ""


class Reading:
    """Reads what one run of a command reports, piece by piece, and says in the end what became of each op.

    Old records on stdout count only if nothing came on the report descriptor; and a ``TIME:ms`` and a ``WS:bytes``
    that stand by themselves only if there is no record. What makes no sense costs its op only. Of each way of
    reporting, 200 000 lines are read.

    Parameters
    ----------
    op
        The name of what is reported without one.
    iterations
        Reported times are divided by this.

    Attributes
    ----------
    problem
        What the first line was that made no sense and could not be laid at any op's door; empty if there is none.

    Examples
    --------
    >>> reading = Reading()
    >>> reading.reported(b'{"v":1,"type":"start","op":"a"}\\n{"v":1,"type":"result","op":"a","status":"ok","ns":15}\\n')
    >>> reading.reported(b'{"v":1,"type":"start","op":"b"}\\n')
    >>> for outcome in reading.finish((Status.CRASH, "killed by SIGSEGV")):
    ...     print(outcome.op, outcome.status, outcome.samples, repr(outcome.message))
    a ok (15.0,) ''
    b crash () 'killed by SIGSEGV'
    >>> reading = Reading()
    >>> reading.printed(b"OP:k<128>,TIME:0.5,WS:64\\n")
    >>> [(outcome.op, outcome.samples, outcome.workspace) for outcome in reading.finish()]
    [('k<128>', (500000.0,), 64)]
    """

    def __init__(self, op: str = "", *, iterations: int = 1) -> None:
        self.problem = ""
        self._op = op
        self._iterations = iterations
        self._report, self._stdout = Lines(), OldLines()
        self._messages = self._old_lines = 0
        self._cut = 0  # old records that nobody can say whose they are
        self._reported: dict[str, _Op] = {}
        self._printed: dict[str, _Op] = {}

    def reported(self, data: bytes) -> None:
        """Take what came on the report descriptor."""
        if self._messages < _MOST_LINES:
            lines = self._report.feed(data)
            self._messages += len(lines)
            for line in lines:
                self._take_message(line)

    def printed(self, data: bytes) -> None:
        """Take what came on stdout."""
        if self._old_lines < _MOST_LINES:
            lines = self._stdout.feed(data)
            self._old_lines += len(lines)
            for line in lines:
                self._take_old_line(line)

    def finish(self, died: tuple[Status, str] | None = None) -> tuple[OpOutcome, ...]:
        """Return what became of each op, in the order in which they were named.

        Parameters
        ----------
        died
            How the command failed, if it did. If ops had started then and not ended, these fail so, and the others
            stand: the culprit is known. Otherwise all fail so.
        """
        if died is None:  # of one that died, a last line without its end may be cut
            self.reported(b"\n")
            for line in self._stdout.rest():
                self._take_old_line(line)
            if not (self._reported or self._printed or self.problem) and (alone := self._stdout.nameless(whole=True)):
                self._take_old_line(alone._replace(op=self._op))
        ops = self._reported or self._printed
        culprits = {name for name, op in self._reported.items() if op.status is None and not op.problem}
        outcomes = []
        for name, op in ops.items():
            if died is not None and (not culprits or name in culprits):
                outcomes.append(OpOutcome(name, died[0], (), op.workspace, died[1]))
            else:
                outcomes.append(self._outcome(name, op))
        if self._lost and not self._reported and outcomes:
            outcomes[0] = replace(outcomes[0], message="; ".join(filter(None, (outcomes[0].message, self._lost))))
        return tuple(outcomes)

    @property
    def _lost(self) -> str:
        """Say what was lost of what was printed, if anything was."""
        more = f", and {self._cut - 1} more" if self._cut > 1 else ""
        return f"left out: {self.problem}{more}" if self._cut else ""

    def _outcome(self, name: str, op: _Op) -> OpOutcome:
        if op.problem:
            return OpOutcome(name, Status.BAD_OUTPUT, (), op.workspace, op.problem)
        samples = tuple(ns / self._iterations for ns in op.samples or op.times)
        status = op.status or Status.OK
        if status is Status.OK and not samples:
            if op.timeless:
                return OpOutcome(name, Status.OK, (), op.workspace, "it reported a workspace and no time")
            return OpOutcome(name, Status.BAD_OUTPUT, (), op.workspace, op.message or "it reported no time")
        return OpOutcome(name, status, samples, op.workspace, op.message)

    def _take_message(self, line: bytes) -> None:
        message = json_object(line)
        if message is None:
            if line.strip():
                self._object(line, "is no JSON object")
            return
        if message.get("v", 1) != 1:  # only the first line of a program needs to say it
            self._object(line, 'is not of the protocol that is known here, "v": 1')
            return
        kind = message.get("type")
        if kind not in ("start", "sample", "result"):
            return
        name = message.get("op", self._op)
        if not isinstance(name, str) or not name:
            self._object(line, 'has no name as its "op"')
            return
        op = _named(self._reported, _clean(name))
        if kind != "start":
            problem = _extend(op.samples, message.get("ns")) if kind == "sample" else _end(op, message)
            op.problem = op.problem or problem

    def _take_old_line(self, line: OldLine | BadLine) -> None:
        if not line.op:
            self._cut += 1
            self._object(line[0].encode(), "is not OP:name,TIME:ms,WS:bytes")
            return
        op = _named(self._printed, line.op)
        op.status = op.status or Status.OK
        if isinstance(line, BadLine):
            op.problem = op.problem or line.reason
        else:
            op.workspace = max(op.workspace, line.workspace)
            if line.milliseconds:
                op.problem = op.problem or _extend(op.times, line.milliseconds * 1e6)
            else:
                op.timeless = True

    def _object(self, line: bytes, what: str) -> None:
        self.problem = self.problem or f"{_shown(line.decode('utf-8', 'replace'))} {what}"


def _named(ops: dict[str, _Op], name: str) -> _Op:
    op = ops.get(name)
    if op is None:
        op = ops[name] = _Op()
    return op


def _end(op: _Op, message: dict[str, Any]) -> str:
    """Take a `result` message; return what is wrong with it, or nothing."""
    said = message.get("status", "ok")
    try:
        status = Status(said)
    except ValueError:
        return f"the status {_shown(repr(said))} is none of {', '.join(Status)}"
    if op.status in (None, Status.OK):  # a later result does not make a failure good
        op.status = status
    text = message.get("message")
    if text is not None:
        op.message = _clean(str(text)[:_LONGEST_MESSAGE])
    workspace = message.get("workspace", 0)
    if isinstance(workspace, bool) or not isinstance(workspace, int) or not 0 <= workspace < 1 << 63:
        return f"the workspace {_shown(repr(workspace))} is no number of bytes"
    op.workspace = max(op.workspace, workspace)
    if status is not Status.OK or message.get("ns") is None:
        return ""
    return _extend(op.times, message["ns"])


def _extend(times: list[float], reported: object) -> str:
    """Add times in ns; return what is wrong with them, or nothing."""
    for value in reported if isinstance(reported, list) else [reported]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"the time {_shown(repr(value))} is no number"
        try:
            ns = float(value)
        except OverflowError:
            ns = math.inf
        if not 0 < ns < math.inf:
            return f"the time {_shown(repr(value))} is not positive and finite"
        if len(times) < _MOST_SAMPLES:
            times.append(ns)
    return ""


def _clean(text: str) -> str:
    """Without the lone surrogates that JSON can spell, which no file or database takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _shown(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}..."
