"""What a command reports: JSON Lines on a descriptor of its own, or the old protocol's records on stdout."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

from ostinato.tune.outcome import OpOutcome, Status

_DEEPEST = 100
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - set(_STEPS))


def json_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if there is anything else, or it is nested more than 100 deep.

    Examples
    --------
    >>> json_object(b'{"ns": [1, 2]}')
    {'ns': [1, 2]}
    >>> json_object(b"[1]"), json_object(b'{"a": 1} 2'), json_object(b"[" * 5000)
    (None, None, None)
    """
    line = line.strip()
    if not line.startswith(b"{") or _depth(line) > _DEEPEST:
        return None
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):  # whatever the recursion limit is
        return None
    return found if isinstance(found, dict) else None


def _depth(line: bytes) -> int:
    """Return how deep brackets are nested: decoding would recurse as deep, into the end of the stack."""
    if line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return 0
    brackets = _STRING.sub(b"", line).translate(None, _NO_BRACKETS)
    return max(accumulate(_STEPS[bracket] for bracket in brackets), default=0)


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_WHOLE = re.compile(_NUMBER, re.ASCII)
_NOTHING = re.compile(r"\+?(?:0+\.?0*|\.0+)(?:[eE][+-]?\d+)?")
_LONE_TIME = re.compile(rf"(?<!\w)TIME:({_NUMBER})(?![.\d])", re.ASCII)
_LONE_WORKSPACE = re.compile(r"(?<!\w)WS:(\d{1,18})(?![.\d])", re.ASCII)

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9AB])?")  # what colours a terminal
_ESC = "\x1b"
_BEGIN = re.compile(r"(?<!\w)(?:OP?)?OP:", re.ASCII)  # also after the first bytes of a record that is cut there
_NEXT = re.compile(r"(?:OP?)?OP:(?!:(?!:))")  # in the midst of a record, where "ns::OP::k" may be a name
_BYTES_BEGIN = re.compile(rb"(?<!\w)(?:OP?)?OP:(?:[^:]|::)")
_RECORD = re.compile(r"(?:OP?)?OP:(.*?),TIME:(.*?),WS:\x1b*([^\s\x1b]*)", re.DOTALL)
_NAME = re.compile(r"(?:OP?)?OP:(.*?),TIME:", re.DOTALL)
_WORKSPACE = re.compile(r"(\d{1,18})(?![.+-]?\w)", re.ASCII)
_LAST_WORD = re.compile(rb"[\w:.,+-]*\Z")
_LONGEST_WORD = 64
_FORM = "it is not OP:name,TIME:ms,WS:bytes"
_LONGEST = 1 << 20


class OldLine(NamedTuple):
    """What a record says of one op; of no time, if it tells a workspace only."""

    op: str
    milliseconds: float
    workspace: int


class BadLine(NamedTuple):
    """A text that begins as a record, and makes no sense; `op` is empty if not even the name does."""

    text: str
    reason: str
    op: str


def read_lines(text: str) -> tuple[list[OldLine], list[BadLine]]:
    """Return what a text says, good and bad records, each in their order.

    A record stands anywhere in a line: after other text, before other text, between colour codes, next to others. Its
    name ends at the first ``,TIME:``. A letter, digit or underscore before ``OP:`` makes another word of it. A time of
    zero beside a workspace says that only the workspace is known; beside none it says nothing.

    Examples
    --------
    >>> read_lines("[info] OP:ns::k<128>-1,TIME:9.5e-05,WS:0 done\\n")
    ([OldLine(op='ns::k<128>-1', milliseconds=9.5e-05, workspace=0)], [])
    >>> read_lines("OP:a,TIME:0,WS:16\\n")
    ([OldLine(op='a', milliseconds=0.0, workspace=16)], [])
    >>> read_lines("OP:a,TIME:0,WS:0\\n")[1][0].reason
    'the time 0 is not positive and finite'
    """
    found = [record for line in text.split("\n") if "OP:" in line for record in _records(line)]
    good = [record for record in found if isinstance(record, OldLine)]
    return good, [record for record in found if isinstance(record, BadLine)]


def nameless(text: str) -> OldLine | None:
    """Return the least ``TIME:ms`` of a text, and the first ``WS:bytes``, wherever they are; None if there is no time.

    Lines that hold ``OP:`` do not count: whose times theirs are is known, or they are broken.

    Examples
    --------
    >>> nameless("took TIME:3 ms\\nWS:64\\nTIME:1e-2\\n")
    OldLine(op='', milliseconds=0.01, workspace=64)
    >>> nameless("TIME:0\\nWS:64\\n"), nameless("TIME:0\\n")
    (OldLine(op='', milliseconds=0.0, workspace=64), None)
    """
    alone = _Alone()
    for line in text.split("\n"):
        alone.take(line)
    return alone.found()


class OldLines:
    """Finds the protocol's records in what comes from a pipe, however much else comes.

    Examples
    --------
    >>> lines = OldLines()
    >>> lines.feed(b"loading OP:a,TI"), lines.feed(b"ME:1,WS:0\\nO")
    ([], [OldLine(op='a', milliseconds=1.0, workspace=0)])
    """

    __slots__ = ("_alone", "_part")

    def __init__(self) -> None:
        self._part = bytearray()  # of the last line, as far as it has come
        self._alone = _Alone()

    def feed(self, data: bytes) -> list[OldLine | BadLine]:
        """Return the records in the lines that `data` completes."""
        end = data.rfind(b"\n") + 1
        self._part += data[:end]
        found = self._read(len(self._part)) if end else []
        self._part += data[end:]
        if len(self._part) > _LONGEST:
            found += self._read(self._settled())
        return found

    def rest(self) -> list[OldLine | BadLine]:
        """Return the records in the last line, which no newline ended."""
        return self.feed(b"\n")

    def nameless(self, *, whole: bool = False) -> OldLine | None:
        """Return what the function `nameless` does, of all that came; if `whole`, only where there is a workspace."""
        return None if whole and self._alone.workspace is None else self._alone.found()

    def _read(self, end: int) -> list[OldLine | BadLine]:
        text = bytes(self._part[:end])
        del self._part[:end]
        found: list[OldLine | BadLine] = []
        if b"OP:" in text or b"TIME:" in text or b"WS:" in text:
            for line in text.split(b"\n"):
                if b"OP:" in line:
                    found += _records(line.decode("utf-8", "replace"))
                elif b"TIME:" in line or b"WS:" in line:
                    self._alone.take(line.decode("utf-8", "replace"))
        return found

    def _settled(self) -> int:
        """Return up to where a line that is too long can be read: what comes later changes nothing there."""
        begun = 0
        for match in _BYTES_BEGIN.finditer(self._part):
            begun = match.start()
        word = _LAST_WORD.search(self._part[-_LONGEST_WORD:])
        last = len(self._part) - (len(word[0]) if word else 0)
        settled = begun if b",WS:" not in self._part[begun:last] else last
        # A record that is longer than half of it is no record.
        return settled if len(self._part) - settled <= _LONGEST // 2 else last


class _Alone:
    """Collects times and workspaces that belong to no name."""

    __slots__ = ("_least", "_nothing", "workspace")

    def __init__(self) -> None:
        self.workspace: int | None = None
        self._least = math.inf
        self._nothing = False  # whether a time was zero

    def take(self, line: str) -> None:
        if "OP:" in line:
            return
        line = _ESCAPE.sub(_ESC, line)
        for time in _LONE_TIME.findall(line):
            milliseconds = float(time)
            self._nothing = self._nothing or _is_nothing(time)
            if 0 < milliseconds < self._least:
                self._least = milliseconds
        if self.workspace is None and (match := _LONE_WORKSPACE.search(line)):
            self.workspace = int(match[1])

    def found(self) -> OldLine | None:
        if self._least < math.inf:
            return OldLine("", self._least, self.workspace or 0)
        return OldLine("", 0.0, self.workspace) if self._nothing and self.workspace else None


def _records(line: str) -> Iterator[OldLine | BadLine]:
    """Yield the records of a line; of one that is cut, that it is.

    Where one is cut, at any byte, the next may begin in the middle of a word: another process has printed on.
    """
    text = _ESCAPE.sub(_ESC, line.rstrip())
    at, begin = 0, _BEGIN.search(text)
    while True:
        between = text[at : len(text) if begin is None else begin.start()]
        if ",TIME:" in between and "OP:" in between:  # another word, such as STOP:a,TIME:1,WS:2
            yield BadLine(_plain(between), _FORM, "")
        if begin is None:
            return
        following = _NEXT.search(text, begin.end())
        part = text[begin.start() : len(text) if following is None else following.start()]
        record = _RECORD.match(part)
        if record is None:
            name = _NAME.match(part)
            yield BadLine(_plain(part), _FORM, "" if name is None else _plain(name[1]))
            at = begin.start() + len(part)
        else:
            yield _read(_plain(record[0]), _plain(record[1]), _plain(record[2]), record[3])
            at = begin.start() + record.end()
        joined = following is not None and following.start() == at
        begin = following if joined else _BEGIN.search(text, at)


def _read(text: str, op: str, time: str, workspace: str) -> OldLine | BadLine:
    if not op:
        return BadLine(text, _FORM, "")
    if not _WHOLE.fullmatch(time):
        not_finite = time.lower().lstrip("+-").startswith(("nan", "inf"))  # as printf and iostreams write them
        wrong = f"{time[:40]} is not positive and finite" if not_finite else f"{time[:40]!r} is no number"
        return BadLine(text, f"the time {wrong}", op)
    bytes_ = _WORKSPACE.match(workspace)
    milliseconds = float(time)
    only_workspace = bytes_ is not None and int(bytes_[1]) > 0 and _is_nothing(time)
    if not 0 < milliseconds < math.inf and not only_workspace:
        return BadLine(text, f"the time {time[:40]} is not positive and finite", op)
    if bytes_ is None:
        return BadLine(text, f"the workspace {workspace[:40]!r} is no number of bytes", op)
    return OldLine(op, milliseconds, int(bytes_[1]))


def _is_nothing(time: str) -> bool:
    """Return whether a number is zero as it stands, and not because it is too small."""
    return _NOTHING.fullmatch(time) is not None


def _plain(text: str) -> str:
    return text.replace(_ESC, "")


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
        if lines and (self._skipping or len(lines[0]) > _LONGEST):
            del lines[0]
            self._skipping = False
        if len(self._part) > _LONGEST:
            self._part = b""
            self._skipping = True
        return lines


@dataclass(slots=True)
class _Op:
    """What was said of one op so far."""

    samples: list[float] = field(default_factory=list)  # of `sample` messages
    times: list[float] = field(default_factory=list)  # of `result` messages, or of old lines
    status: Status | None = None  # None: it has not ended
    timeless: bool = False  # whether it told a workspace and, in so many words, no time
    workspace: int = 0
    message: str = ""
    problem: str = ""


class Reading:
    """Reads what one run of a command reports, piece by piece, and says in the end what became of each op.

    Old records on stdout count only if nothing came on the report descriptor; and a ``TIME:ms`` and a ``WS:bytes``
    that stand by themselves only if there is no record. What makes no sense costs its op only. Of each way of
    reporting, 200 000 lines are read.

    `op` is the name of what is reported without one; reported times are divided by `iterations`. `problem` is the first
    line that made no sense and belongs to no op; empty if there is none.

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

        `died` says how the command failed, if it did. If ops had started then and not ended, these fail so, and the
        others stand: the culprit is known. Otherwise all fail so.
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
        if self._cut and not self._reported and outcomes:
            more = f", and {self._cut - 1} more" if self._cut > 1 else ""
            said = outcomes[0].message
            lost = f"left out: {self.problem}{more}"
            outcomes[0] = replace(outcomes[0], message=f"{said}; {lost}" if said else lost)
        return tuple(outcomes)

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
        op = self._reported.setdefault(_clean(name), _Op())
        if kind != "start":
            problem = _extend(op.samples, message.get("ns")) if kind == "sample" else _end(op, message)
            op.problem = op.problem or problem

    def _take_old_line(self, line: OldLine | BadLine) -> None:
        if not line.op:
            self._cut += 1
            self._object(line[0].encode(), "is not OP:name,TIME:ms,WS:bytes")
            return
        op = self._printed.setdefault(line.op, _Op())
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
