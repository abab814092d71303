"""The old protocol: times that profilers print, ``OP:name,TIME:ms,WS:bytes``, wherever in the text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["BadLine", "OldLine", "OldLines", "nameless", "read_lines"]

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
        reason = (
            f"the time {time[:40]} is not positive and finite" if not_finite else f"the time {time[:40]!r} is no number"
        )
        return BadLine(text, reason, op)
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
