"""Commands that were pushed, until their results are told in the same order."""

from __future__ import annotations

import logging
import math
import os
import shlex
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from ostinato.one_line import one_line
from ostinato.tune.lease.lease import Holder
from ostinato.tune.profiling.command_queue import CommandQueue, Job
from ostinato.tune.profiling.masks import mask
from ostinato.tune.profiling.profile import Found, Profile, left_out
from ostinato.tune.status import Status

__all__ = ["Backlog", "Command", "words"]

Command = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_logger = logging.getLogger("ostinato.profiler_runner")
_LONGEST_COMMAND = 1000
_SECONDS_UNTIL_TOLD = 5.0
_SECONDS_OF_KILLING = 10.0


class _Entry(NamedTuple):
    what: Any
    words: list[str]
    return_ops: Sequence[str] | None
    profile: Profile
    job: Job

    @property
    def command(self) -> str:
        text = one_line(shlex.join(self.words))
        return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."


class Backlog:
    """Commands that run on some devices, and whose results are waited for.

    They are killed when it is garbage.

    Parameters
    ----------
    devices
        Ids of GPUs; see `ostinato.tune.profiling.masks.mask`.
    timeout
        Seconds that each command may run.
    """

    def __init__(self, devices: Sequence[str | int] | None, timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be positive and finite, got {timeout!r}")
        self._timeout = float(timeout)
        self._queue = CommandQueue(mask(None if devices is None else list(devices)))
        self._entries: deque[_Entry] = deque()
        self._environment: dict[str, str] = {}
        self._lock = threading.Lock()
        self._joined_by: int | None = None
        weakref.finalize(self, self._queue.abandon)

    def push(self, command: Command, what: Any, return_ops: Sequence[str] | None = None) -> None:
        argv = words(command)
        if self._environment != os.environ:  # mostly the same for thousands of commands
            self._environment = dict(os.environ)
        here = None
        with suppress(FileNotFoundError):  # removed: then the command is in it like we are
            here = os.getcwd()
        profile = Profile()
        job = Job(argv, profile, env=self._environment, cwd=here, seconds=self._timeout)
        entry = _Entry(what, argv, return_ops, profile, job)
        self._entries.append(entry)
        try:
            self._queue.push(job)
        except BaseException:
            self._entries.remove(entry)
            raise

    @contextmanager
    def joined(self) -> Iterator[None]:
        """For one thread at a time, and once."""
        self._queue.check_process()
        if self._joined_by == threading.get_ident():
            raise RuntimeError("join was called from a callback, which it waits for")
        with self._lock:
            self._joined_by = threading.get_ident()
            try:
                yield
            finally:
                self._joined_by = None

    def ended(self) -> Iterator[tuple[Any, str, Found, str]]:
        """Wait for each command in the order of the pushes; what it was pushed with, its words, result, and reason."""
        while self._entries:
            entry = self._entries[0]
            self._wait(entry.job)
            self._entries.popleft()
            yield entry.what, entry.command, *_judged(entry)

    def stop(self) -> int:
        """Kill what runs and cancel what does not; return for how many `ended` waits no longer."""
        self._queue.cancel()
        entries = list(self._entries)
        for entry in entries:
            entry.job.wait(_SECONDS_OF_KILLING)
        return len(entries)

    def _wait(self, job: Job) -> None:
        told: set[Holder] = set()
        while job.wait(_SECONDS_UNTIL_TOLD) is None:
            for holder in set(self._queue.holders()) - told:
                _logger.warning("waiting for %s, held by %s", holder.identity, holder)
                told.add(holder)


def _judged(entry: _Entry) -> tuple[Found, str]:
    """Return the result of a command that has ended, or None and why there is none."""
    outcome = entry.job.outcome
    assert outcome is not None
    if outcome.status is not Status.OK:
        return None, f"{'timeout: ' if outcome.status is Status.HANG_KILLED else ''}{outcome.message}"
    result = entry.profile.result(entry.return_ops)
    if result is None:
        return None, f"reported {', '.join(entry.profile.ops)}, and nothing of {entry.return_ops!r}"
    if entry.profile.bad:
        _logger.warning("%s: %s", entry.command, left_out(entry.profile.bad))
    return result, ""


def words(command: Command) -> list[str]:
    """Return a command as a list of words, or raise."""
    if isinstance(command, str | os.PathLike):
        command = [command]
    if not isinstance(command, Sequence):
        raise TypeError(f"a command must be the path of a program, or a list of it and its arguments, got {command!r}")
    words = []
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"the words of a command must be str, got {word!r} in {command!r}")
        words.append(os.fspath(word))
    if not words or not words[0]:
        raise ValueError(f"a command must begin with a program, got {command!r}")
    if any("\0" in word for word in words):
        raise ValueError(f"a command must not hold null characters, got {command!r}")
    return words
