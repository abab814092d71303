"""One command line under a reaper: what it prints is read as it comes, and how it ended is judged."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ostinato.text import one_line
from ostinato.tune.outcome import MOST_PRINTED, OpOutcome, Outcome, Status, death
from ostinato.tune.workers.loop import ROOM, Loop, Timer, Watch, output_pipe
from ostinato.tune.workers.reaper import Exited, Lost, NotStarted, Reaper, Started, Stuck, Swept

SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ETXTBSY})
"""Errors of a launch that say nothing about the command: it is tried again.

ETXTBSY: a descriptor that writes the program is open, in a process that was forked meanwhile, say.
"""
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before each further attempt."""

_REPORT = 3  # a single digit: a shell that is no bash can write to no other
_END = -1
_KEPT = 1 << 16
_QUOTED = 300
_LONGEST_COMPLAINT = 4000
_ERROR = re.compile(r"\b(error|undefined reference|not found|no such file)\b", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(r"bad_alloc|MemoryError|out of memory|cannot allocate memory", re.IGNORECASE)


class Reading(Protocol):
    """Takes what a command reports: an `ostinato.tune.workers.protocol.Reading`, or the like."""

    @property
    def problem(self) -> str: ...
    def reported(self, data: bytes) -> None: ...
    def printed(self, data: bytes) -> None: ...
    def finish(self, died: tuple[Status, str] | None = None) -> tuple[OpOutcome, ...]: ...


class Kept:
    """The beginning and the end of a long text.

    Examples
    --------
    >>> kept = Kept(5)
    >>> for line in (b"one\\n", b"two\\n", b"three\\n", b"four\\n"):
    ...     kept.add(line)
    >>> kept.text()
    'one\\n[10 bytes are left out]\\nfour\\n'
    """

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._begin = b""
        self._end = b""
        self._left_out = 0

    def add(self, data: bytes) -> None:
        room = self._most - len(self._begin)
        if room:
            self._begin += data[:room]
            data = data[room:]
        if data:
            end = self._end + data
            self._left_out += max(0, len(end) - self._most)
            self._end = end[-self._most :]

    def text(self) -> str:
        """Return what is kept; bytes that are no UTF-8 are replaced."""
        begin, end, left_out = self._begin, self._end, self._left_out
        if not left_out:
            return (begin + end).decode(errors="replace")
        # Whole lines: the half of a number would be another number.
        begin = begin[: begin.rfind(b"\n") + 1] or begin
        end = end[end.find(b"\n") + 1 :] or end
        left_out += len(self._begin) - len(begin) + len(self._end) - len(end)
        if not begin.endswith(b"\n"):
            begin += b"\n"
        return (begin + f"[{left_out} bytes are left out]\n".encode() + end).decode(errors="replace")

    def last_line(self) -> str:
        """Return the last line that is not empty, shortened if it is long."""
        lines = (self._end or self._begin).decode(errors="replace").split("\n")
        line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return one_line(line if len(line) <= _QUOTED else f"...{line[-_QUOTED:]}")


@dataclass(eq=False)
class CommandRun:
    """One run of a command line, by a reaper that runs nothing else meanwhile.

    A launch for which this process lacks resources, or of a program that is being written, is tried again after
    `PAUSES`. ``OSTINATO_REPORT_FD`` is added to `env`. `ended` is called once, in the loop, when all of it is gone;
    `outcome` is what it was called with. `reading` takes what the command reports; None: nothing is expected of it but
    to end well. `event` is what the reaper said of its end.
    """

    loop: Loop
    reaper: Reaper
    words: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    seconds: float | None
    memory: int | None
    ended: Callable[[Outcome], None]
    reading: Reading | None = None

    def __post_init__(self) -> None:
        self.env = {**self.env, "OSTINATO_REPORT_FD": str(_REPORT)}
        self.outcome: Outcome | None = None
        self.event: Exited | NotStarted | Stuck | Lost | None = None
        self.stdout = Kept()
        self.stderr = Kept()
        self._printed = 0
        self._attempts = 0
        self._verdict: tuple[Status, str] | None = None  # why we killed it
        self._pipes: dict[int, Callable[[bytes], None]] = {}
        self._timer: Timer | None = None
        self.loop.watch(self.reaper.fileno(), self._told)
        self._watch = Watch(self.loop, self.reaper)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def kill(self, status: Status, message: str = "") -> None:
        """Kill it; unless it ends by itself before, it ends with this status and message."""
        if self.outcome is None and self._verdict is None:
            self._verdict = (status, message)
            if self.reaper.running:
                self.reaper.kill()
                self._watch.expect(0)

    def close(self) -> None:
        """Forget it: `ended` is not called. What runs is the reaper's."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.ended is not _drop:
            self.ended = _drop
            self.loop.forget(self.reaper.fileno())
            self._watch.close()
            self._close_pipes()

    def _start(self) -> None:
        self._timer = None
        if self._verdict is not None:  # killed between two attempts
            self._fail(*self._verdict)
            return
        self._attempts += 1
        theirs: dict[int, int] = {}
        report = _drop if self.reading is None else self.reading.reported
        try:
            for number, take in ((1, self._take_stdout), (2, self.stderr.add), (_REPORT, report)):
                ours, theirs[number] = output_pipe() if number == 1 else os.pipe()
                self._pipes[ours] = take
                os.set_blocking(ours, False)
                self.loop.watch(ours, partial(self._read, ours))
            self.reaper.spawn(
                self.words, env=self.env, cwd=self.cwd, fds=theirs, seconds=self.seconds, memory=self.memory
            )
            if self.seconds is not None:
                self._watch.expect(self.seconds)
        except OSError as error:
            self._not_started(NotStarted(error.errno or 0, "fork"))
        except ValueError as error:  # such as an environment that no process can have
            self._refuse(Status.INVALID, f": {error}")
        finally:
            for fd in theirs.values():
                os.close(fd)

    def _not_started(self, event: NotStarted) -> None:
        self.event = event
        reason = os.strerror(event.errno)
        if event.errno in SHORTAGES and self._attempts <= len(PAUSES):
            self._close_pipes()
            self._timer = self.loop.at(self.loop.now() + PAUSES[self._attempts - 1], self._start)
        elif event.errno in SHORTAGES:
            self._refuse(Status.CANCELLED, f", after {self._attempts} attempts: {reason}")
        elif event.stage == "chdir":
            self._refuse(Status.INVALID, f" in {self.cwd!r}: {reason}")
        else:
            program = os.path.join(self.cwd or "", self.words[0])
            there = event.errno == errno.ENOENT and "/" in self.words[0] and os.path.exists(program)
            missing = " (it is there, but not the interpreter that it names)" if there else ""
            self._refuse(Status.INVALID, f": {reason}{missing}")

    def _refuse(self, status: Status, why: str) -> None:
        self._close_pipes()
        message = f"{self.words[0]!r} cannot be started{why}"
        # Not at once: who makes a run must know it before it ends.
        self._timer = self.loop.at(self.loop.now(), partial(self._fail, status, message))

    def _read(self, fd: int) -> None:
        # One piece a turn: a command that prints without end must not keep the loop from the others.
        if self._take(fd) == _END:
            self._close_pipe(fd)

    def _take(self, fd: int) -> int:
        """Take what a pipe holds now; return how many bytes, `_END` if there will be no more."""
        try:
            data = os.read(fd, ROOM)
        except BlockingIOError:
            return 0
        self._printed += len(data)
        if self._printed <= MOST_PRINTED:
            self._pipes[fd](data)
        elif self._verdict is None:
            self.kill(Status.BAD_OUTPUT, f"printed more than {MOST_PRINTED >> 20} MiB, and was killed")
        return len(data) or _END

    def _take_stdout(self, data: bytes) -> None:
        self.stdout.add(data)
        if self.reading is not None:
            self.reading.printed(data)

    def _close_pipe(self, fd: int) -> None:
        del self._pipes[fd]
        self.loop.forget(fd)
        os.close(fd)

    def _close_pipes(self) -> None:
        for fd in list(self._pipes):
            self._close_pipe(fd)

    def _told(self) -> None:
        for event in self.reaper.read():
            if isinstance(event, Started | Swept):
                continue
            for fd in self._pipes:
                # Whoever wrote there is gone. If strangers were given the descriptor, they are not waited for.
                while self._printed <= MOST_PRINTED and self._take(fd) > 0:
                    pass
            if isinstance(event, NotStarted):
                self._not_started(event)
            else:
                self.event = event
                self._judge(event)
            return

    def _judge(self, event: Exited | Stuck | Lost) -> None:
        verdict = self._verdict
        if isinstance(event, Stuck):
            pids = ", ".join(map(str, event.pids))
            self._fail(Status.DEVICE_LOST, f"processes that it started cannot be killed: {pids}")
        elif isinstance(event, Lost):
            how = "" if event.status is None else f": {death(event.status)}"
            self._fail(Status.DEVICE_LOST, f"its reaper has ended{how}")
        elif verdict is not None and (event.cause == "killed" or verdict[0] is Status.BAD_OUTPUT):
            self._fail(*verdict)
        elif event.cause == "time" or (self._watch.rescued and event.status == -signal.SIGKILL):
            self._fail(Status.HANG_KILLED, f"still running after {self.seconds:g} s, and was killed")
        elif event.cause == "memory":
            self._fail(Status.OOM, f"took more than {self.memory} bytes, and was killed")
        elif event.status:
            last = self.stderr.last_line() or self.stdout.last_line()
            if self.reading is None:
                last = _complaint(self.stderr.text().strip() or self.stdout.text().strip())
            lacked = self.memory is not None and _OUT_OF_MEMORY.search(self.stderr.text())
            message = f"{death(event.status)}{': ' if last else ''}{last}"
            self._fail(Status.OOM if lacked else Status.CRASH, message)
        else:
            self._succeed()

    def _fail(self, status: Status, message: str) -> None:
        self._end(status, message, () if self.reading is None else self.reading.finish((status, message)))

    def _succeed(self) -> None:
        if self.reading is None:
            self._end(Status.OK, "", ())
            return
        ops = self.reading.finish()
        bad = next((op for op in ops if op.status is not Status.OK), None)
        if not ops:
            self._end(Status.BAD_OUTPUT, f"it reported no time{self._instead()}", ())
        elif bad is None or any(op.status is Status.OK for op in ops):
            self._end(Status.OK, "", ops)
        else:
            self._end(bad.status, bad.message, ops)

    def _instead(self) -> str:
        """Say what there is of a command that reported nothing."""
        assert self.reading is not None
        if self.reading.problem:
            return f": {one_line(self.reading.problem)}"
        printed = self.stdout.last_line() or self.stderr.last_line()
        return f"; the last that it printed is {printed!r}" if printed else " and printed nothing"

    def _end(self, status: Status, message: str, ops: tuple[OpOutcome, ...]) -> None:
        self._timer = None
        self.outcome = Outcome(status, ops, message, self.stdout.text())
        ended = self.ended
        self.close()
        ended(self.outcome)


def _complaint(text: str) -> str:
    """Return what a compiler said, with its first error in the first line; of a long text the beginning and the end."""
    lines = text.split("\n")
    error = next((line for line in lines if _ERROR.search(line)), lines[-1]).strip()
    if len(lines) == 1:
        return one_line(error[:_LONGEST_COMPLAINT])
    if len(text) > _LONGEST_COMPLAINT:
        text = f"{text[: _LONGEST_COMPLAINT // 2]}\n...\n{text[-_LONGEST_COMPLAINT // 2 :]}"
    return f"{one_line(error[:_QUOTED])}\n{text}"


def _drop(told: object) -> None:
    """Take what nobody reads: reports of a command that needs none, or the outcome of a run that is closed."""
