"""What a profiler reports: JSON Lines on a descriptor of its own, or the old protocol's lines on stdout."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from ostinato.tune.old_lines import loose_lines, strict_line, time_anywhere, workspace_anywhere
from ostinato.tune.status import Status

__all__ = ["Lines", "OpOutcome", "Reading"]

_LONGEST_LINE = 1 << 20
_MOST_SAMPLES = 100_000  # of one op; what comes after says nothing new
_MOST_OPS = 100_000
_LONGEST_MESSAGE = 2000


class Lines:
    """Splits what comes from a pipe into lines.

    A line of more than 1 MiB is left out: `too_long` counts them.

    Examples
    --------
    >>> lines = Lines()
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\nthr")
    (['one'], ['two'])
    >>> lines.rest()
    'thr'
    """

    __slots__ = ("_part", "_skipping", "too_long")

    def __init__(self) -> None:
        self._part = bytearray()
        self._skipping = False
        self.too_long = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes; bytes that are no UTF-8 become U+FFFD."""
        *complete, rest = data.split(b"\n")
        lines = []
        for piece in complete:
            self._extend(piece)
            if not self._skipping:
                lines.append(self._part.decode("utf-8", "replace"))
            self._part.clear()
            self._skipping = False
        self._extend(rest)
        return lines

    def rest(self) -> str:
        """Return the last line, which no newline ended."""
        return self._part.decode("utf-8", "replace")

    def _extend(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._part) + len(piece) > _LONGEST_LINE:
            self._skipping = True
            self.too_long += 1
            self._part.clear()
        else:
            self._part += piece


class OpOutcome(NamedTuple):
    """What became of one op of a command.

    Attributes
    ----------
    op
        Its name.
    status
        How it ended.
    samples_ns
        Times of single calls in ns, in the order of the reports.
    workspace
        Bytes that it said it needs.
    message
        What went wrong, or what it said.
    """

    op: str
    status: Status
    samples_ns: tuple[float, ...]
    workspace: int
    message: str


class _Op:
    __slots__ = ("message", "problem", "samples", "status", "times", "workspace")

    def __init__(self) -> None:
        self.samples: list[float] = []  # of `sample` messages
        self.times: list[float] = []  # of `result` messages, and of old lines
        self.status: Status | None = None
        self.workspace = 0
        self.message = ""
        self.problem = ""


class Reading:
    """Reads what one run of a command reports, piece by piece, and says in the end what became of each op.

    Old lines on stdout count only if nothing came on the report descriptor. What makes no sense costs its op only.

    Parameters
    ----------
    op
        The name of what reports without one.
    iterations
        Reported times are divided by this.
    lenient
        Whether old lines may have other text around them, and ``TIME:ms`` and ``WS:bytes`` anywhere do where there
        are none: the least time counts.

    Examples
    --------
    >>> reading = Reading("matmul")
    >>> reading.report(b'{"v":1,"type":"start","op":"a"}\\n{"v":1,"type":"result","op":"a","status":"ok","ns":15}\\n')
    >>> reading.report(b'{"v":1,"type":"start","op":"b"}\\n')
    >>> for outcome in reading.finish(Status.CRASH, "killed by SIGSEGV"):
    ...     print(outcome.op, outcome.status, outcome.samples_ns, repr(outcome.message))
    a ok (15.0,) ''
    b crash () 'killed by SIGSEGV'
    >>> reading = Reading("matmul")
    >>> reading.stdout(b"OP:k<128>,TIME:0.5,WS:64\\n")
    >>> reading.finish()
    [OpOutcome(op='k<128>', status=<Status.OK: 'ok'>, samples_ns=(500000.0,), workspace=64, message='')]
    """

    def __init__(self, op: str, *, iterations: int = 1, lenient: bool = False) -> None:
        self._op = op
        self._iterations = iterations
        self._lenient = lenient
        self._report, self._stdout = Lines(), Lines()
        self._reported: dict[str, _Op] = {}
        self._printed: dict[str, _Op] = {}
        self._problem = ""  # the first line that could not be laid at any op's door
        self._least: float | None = None
        self._workspace: int | None = None

    def report(self, data: bytes) -> None:
        """Take what came on the report descriptor."""
        for line in self._report.feed(data):
            self._message(line)

    def stdout(self, data: bytes) -> None:
        """Take what came on stdout."""
        for line in self._stdout.feed(data):
            self._print(line)

    def finish(self, failure: Status | None = None, why: str = "", *, cut: bool = False) -> list[OpOutcome]:
        """Return what became of each op, in the order in which they were named; of `op` if none was.

        Parameters
        ----------
        failure, why
            How the command failed, if it did. Then the ops that had started and not ended fail so, and the others
            stand: the culprit is known. If no op is the culprit all fail so.
        cut
            Whether the command was killed: a last line without its newline may be a part of one.
        """
        if not cut:
            self._message(self._report.rest())
            self._print(self._stdout.rest())
        if self._reported:
            return self._reported_outcomes(failure, why)
        if not self._printed and self._least is not None:
            op = self._printed[""] = _Op()
            op.times.append(self._least * 1e6)
            op.workspace = self._workspace or 0
        if not self._printed:
            return [OpOutcome(self._op, *self._nothing(failure, why))]
        if failure is not None:
            return [OpOutcome(name, failure, (), 0, why) for name in self._printed]
        return [self._outcome(name, op) for name, op in self._printed.items()]

    def _reported_outcomes(self, failure: Status | None, why: str) -> list[OpOutcome]:
        outcomes = []
        culprits = [name for name, op in self._reported.items() if op.status is None and not op.problem]
        for name, op in self._reported.items():
            if failure is not None and (not culprits or name in culprits):
                outcomes.append(OpOutcome(name, failure, (), op.workspace, why))
            else:
                outcomes.append(self._outcome(name, op))
        return outcomes

    def _outcome(self, name: str, op: _Op) -> OpOutcome:
        if op.problem:
            return OpOutcome(name, Status.BAD_OUTPUT, (), 0, op.problem)
        samples = tuple(ns / self._iterations for ns in op.samples or op.times)
        status = op.status or Status.OK
        if status is Status.OK and not samples:
            return OpOutcome(name, Status.BAD_OUTPUT, (), op.workspace, op.message or "it reported no time")
        return OpOutcome(name, status, samples, op.workspace, op.message)

    def _nothing(self, failure: Status | None, why: str) -> tuple[Status, tuple[float, ...], int, str]:
        if failure is not None:
            return failure, (), 0, why
        too_long = self._report.too_long + self._stdout.too_long
        problem = self._problem or (f"{too_long} lines of more than {_LONGEST_LINE} bytes" if too_long else "")
        return Status.BAD_OUTPUT, (), 0, f"it reported no time{': ' + problem if problem else ''}"

    def _message(self, line: str) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._problem = self._problem or f"{_shown(line)} is no JSON"
            return
        if not isinstance(message, dict) or message.get("v") != 1:
            self._problem = self._problem or f'{_shown(line)} is no object with "v": 1'
            return
        kind = message.get("type")
        if kind not in ("start", "sample", "result"):
            return
        name = message.get("op", self._op)
        if not isinstance(name, str):
            self._problem = self._problem or f'{_shown(line)}: "op" is no string'
            return
        op = self._named(self._reported, _clean(name))
        if op is None or kind == "start":
            return
        problem = self._sample(op, message) if kind == "sample" else self._result(op, message)
        op.problem = op.problem or problem

    def _sample(self, op: _Op, message: dict[str, Any]) -> str:
        return _extend(op.samples, message.get("ns"))

    def _result(self, op: _Op, message: dict[str, Any]) -> str:
        said = message.get("status", "ok")
        try:
            status = Status(said)
        except ValueError:
            return f"its status {_shown(repr(said))} is none of {', '.join(Status)}"
        if op.status in (None, Status.OK):  # a failure is not made good by a later result
            op.status = status
        workspace = message.get("workspace", 0)
        if isinstance(workspace, bool) or not isinstance(workspace, int) or not 0 <= workspace < 1 << 63:
            return f"its workspace {_shown(repr(workspace))} is no number of bytes"
        op.workspace = max(op.workspace, workspace)
        text = message.get("message")
        if text is not None:
            op.message = _clean(str(text))[:_LONGEST_MESSAGE]
        if message.get("ns") is None:
            return ""
        if status is Status.OK:
            return _extend(op.times, message["ns"])
        return ""

    def _print(self, line: str) -> None:
        if self._lenient:
            found = loose_lines(line)
            time, workspace = time_anywhere(line), workspace_anywhere(line)
            if time is not None and (self._least is None or time < self._least):
                self._least = time
            if self._workspace is None:
                self._workspace = workspace
        else:
            old = strict_line(line)
            found = [] if old is None else [old]
        for old in found:
            op = self._named(self._printed, _clean(old.op))
            if op is None:
                return
            op.problem = op.problem or old.problem
            op.workspace = max(op.workspace, old.workspace)
            if not old.problem and len(op.times) < _MOST_SAMPLES:
                op.times.append(old.ms * 1e6)
        if not found and line.startswith("OP:"):
            self._problem = self._problem or f"{_shown(line)} is not OP:name,TIME:ms,WS:bytes"

    def _named(self, ops: dict[str, _Op], name: str) -> _Op | None:
        op = ops.get(name)
        if op is None and len(ops) < _MOST_OPS:
            op = ops[name] = _Op()
        return op


def _extend(times: list[float], ns: object) -> str:
    """Add reported times; return what is wrong with them, or nothing."""
    for value in ns if isinstance(ns, list) else [ns]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"its time {_shown(repr(value))} is no number"
        try:
            time = float(value)
        except OverflowError:
            time = math.inf
        if not 0 < time < math.inf:
            return f"its time {_shown(repr(value))} is not positive and finite"
        if len(times) < _MOST_SAMPLES:
            times.append(time)
    return ""


def _clean(text: str) -> str:
    """Without the surrogates that JSON can spell, which no file or database takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _shown(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}..."
