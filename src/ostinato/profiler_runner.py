"""Running profilers: the names and the behaviour of a well-known runner, for programs that are written to it.

A profiler is a program that measures one or several ops and prints ``OP:name,TIME:ms,WS:bytes`` for each, on a line of
its own; or it reports by ``OSTINATO_REPORT_FD``. Each command has a device to itself, which other processes respect,
and when it has ended, nothing of it remains. It gets the environment and the working directory of the moment when it
was pushed, and starts as soon as a device is free.

Examples
--------
>>> class Times:
...     def __init__(self):
...         self.times = {}
...
...     def add(self, result, delegate):
...         self.times[result.op_config] = result.duration
...
...     def postprocess_results(self):
...         print(min(self.times, key=self.times.get))
>>> times = Times()
>>> runner = ProfilerRunner(["0"], times)
>>> runner.push(["echo", "OP:tile_32,TIME:0.25,WS:0"], times.add)
>>> runner.push(["echo", "OP:tile_64,TIME:0.125,WS:4096"], times.add)
>>> runner.join()
tile_64
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

from ostinato.errors import TuningError
from ostinato.tune.command_queue import CommandQueue, Job
from ostinato.tune.lease import Holder
from ostinato.tune.masks import mask
from ostinato.tune.profile import Found, Profile, ProfileResult, extract_profile_result
from ostinato.tune.status import Status
from ostinato.tune.wording import one_line

__all__ = [
    "ProfileResult",
    "ProfilerRunner",
    "ProfilingError",
    "Runner",
    "extract_profile_result",
    "process_return",
    "process_task",
]

_logger = logging.getLogger(__name__)
_LONGEST_COMMAND = 1000
_SECONDS_UNTIL_TOLD = 5.0
_SECONDS_OF_KILLING = 10.0

Command = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class ProfilingError(TuningError, RuntimeError):
    """Commands failed.

    Attributes
    ----------
    failures
        Each command that failed, and why.
    """

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        lines = "".join(f"\n  {command}: {reason}" for command, reason in failures)
        super().__init__(f"{len(failures)} {'command' if len(failures) == 1 else 'commands'} failed:{lines}")
        self.failures = tuple(failures)


class Delegate(Protocol):
    """What brings results together."""

    def postprocess_results(self) -> object: ...


class ProfilerRunner:
    """Runs profilers, one at a time on each device, and brings their results to callbacks.

    Parameters
    ----------
    devices
        Indices or UUIDs of GPUs. Each reaches its commands as it stands, in ``CUDA_VISIBLE_DEVICES`` (on ROCm
        ``HIP_VISIBLE_DEVICES``). None or empty: those of this process's mask, or ``"0"``.
    postprocessing_delegate
        Its method ``postprocess_results`` is called at the end of each `join`.
    timeout
        Seconds that each command may run.

    Raises
    ------
    ValueError
        If a device is there twice, or `timeout` is not positive.
    DeviceError
        If a device is not in this process's mask, where it has one.

    Examples
    --------
    See `ostinato.profiler_runner`.
    """

    def __init__(
        self, devices: Sequence[str | int] | None, postprocessing_delegate: Delegate, timeout: float = 500
    ) -> None:
        self._delegate = postprocessing_delegate
        self._backlog = _Backlog(devices, timeout)
        self._failures: list[tuple[str, str]] = []
        self._cause: BaseException | None = None

    def push(self, cmds: Command, process_result_callback: Callable[[ProfileResult, Any], object]) -> None:
        """Run a command.

        Parameters
        ----------
        cmds
            The path of a program, or a list of a program and its arguments; no shell.
        process_result_callback
            `join` calls it with the fastest result of the command, and the delegate.
        """
        if not callable(process_result_callback):
            raise TypeError(f"process_result_callback is called with a result, but is {process_result_callback!r}")
        self._backlog.push(cmds, process_result_callback)

    def join(self) -> None:
        """Wait for all commands, and deliver their results.

        Callbacks run here, in the order of the pushes; they may push more. Then the delegate's ``postprocess_results``
        is called, once, whatever failed.

        Ctrl-C kills what runs and delivers what had ended. Another `join` goes on from there: it calls
        ``postprocess_results``, and tells what was cancelled.

        Raises
        ------
        ProfilingError
            If commands failed: they could not be started, ended with a signal or a nonzero status, took too long, or
            printed nothing that makes sense; or their callback raised. It names each once, with the reason.
        """
        with self._backlog.joined():
            try:
                self._deliver()
            except KeyboardInterrupt:
                self._backlog.stop()
                self._deliver()
                raise
            except BaseException:
                self._backlog.stop()
                raise
            failures, self._failures = self._failures, []
            cause, self._cause = self._cause, None
            error = ProfilingError(failures) if failures else None
            try:
                self._delegate.postprocess_results()
            except BaseException as raised:
                if error is not None:
                    raised.add_note(str(error))
                raise
        if error is not None:
            raise error from cause

    def _deliver(self) -> None:
        for callback, command, result, reason in self._backlog.ended():
            if result is None:
                self._failures.append((command, reason))
                continue
            try:
                callback(result, self._delegate)
            except BaseException as error:
                self._failures.append((command, f"its callback raised {type(error).__name__}: {error}"))
                if not isinstance(error, Exception):
                    raise
                self._cause = self._cause or error


class Runner:
    """Runs profilers, one at a time on each device, and returns their results by index.

    Parameters
    ----------
    devs
        Devices, as `ProfilerRunner` has them, or their number.
    op_name
        What is profiled, for warnings.
    timeout
        Seconds that each command may run.

    Attributes
    ----------
    failures
        Why commands failed, by index: those pushed since the last `pull`. Each is also logged as a warning.

    Raises
    ------
    ValueError
        If there is no device, one is there twice, or `timeout` is not positive.
    DeviceError
        If a device is not in this process's mask, where it has one.

    Examples
    --------
    >>> runner = Runner([0], "gemm")
    >>> runner.push("small", ["echo", "OP:tile_16,TIME:0.5,WS:0"])
    >>> runner.join()
    >>> runner.pull()
    [('small', ProfileResult(op_config='tile_16', duration=0.5, workspace=0))]
    """

    def __init__(self, devs: Sequence[str | int] | int | None, op_name: str, timeout: float = 30) -> None:
        if isinstance(devs, int):
            devs = range(devs)
        if devs is not None and not devs:
            raise ValueError(f"no device to profile {op_name} on")
        self.failures: dict[Hashable, str] = {}
        self._name = op_name
        self._backlog = _Backlog(devs, timeout)
        self._indices: set[Hashable] = set()
        self._results: list[tuple[Hashable, Any]] = []

    def push(self, idx: Hashable, cmd: Command, return_ops: Sequence[str] | None = None) -> None:
        """Run a command.

        Parameters
        ----------
        idx
            Stands for the command in what `pull` returns.
        cmd
            The path of a program, or a list of a program and its arguments; no shell.
        return_ops
            Names of ops: all results of these are returned. By default, the fastest of all.

        Raises
        ------
        ValueError
            If `idx` was pushed before, since the last `pull`.
        """
        if idx in self._indices:
            raise ValueError(f"{idx!r} was pushed before: an index stands for one command until pull")
        self._backlog.push(cmd, idx, return_ops)
        if not self._indices:
            self.failures = {}
        self._indices.add(idx)

    def join(self) -> None:
        """Wait for all commands. Ctrl-C kills what runs."""
        with self._backlog.joined():
            try:
                for idx, command, result, reason in self._backlog.ended():
                    if result is None:
                        self.failures[idx] = reason
                        _logger.warning("%s: %r failed: %s: %s", self._name, idx, command, reason)
                    else:
                        self._results.append((idx, result))
            except BaseException:
                self._backlog.stop()
                raise

    def pull(self) -> list[tuple[Any, Any]]:
        """Wait for all commands, and return index and result of each that succeeded, in the order of the pushes.

        With `return_ops`, a result is a list. What was returned is forgotten.
        """
        self.join()
        results, self._results = self._results, []
        self._indices = set()
        return results


def process_task(task: Any) -> None:
    """Read what a finished task printed: sets its ``_ret`` and ``_failed``.

    Parameters
    ----------
    task
        Has the output as ``_stdout``; and where it has them, ``return_ops`` among ``_kwargs``, and the exit status as
        ``_proc.returncode``.
    """
    returned = getattr(getattr(task, "_proc", None), "returncode", None)
    return_ops = (getattr(task, "_kwargs", None) or {}).get("return_ops")
    task._ret, task._failed = (None, True) if returned else extract_profile_result(task._stdout, return_ops)


def process_return(task: Any) -> tuple[Any, Any]:
    """Return a task's index and its result."""
    return task._idx, task._ret


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


class _Backlog:
    """Commands that were pushed and whose ends were not told."""

    def __init__(self, devices: Sequence[str | int] | None, timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise TypeError(f"timeout is a number of seconds, not {timeout!r}")
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout is positive and finite, not {timeout!r}")
        self._timeout = float(timeout)
        self._queue = CommandQueue(mask(None if devices is None else list(devices)))
        self._entries: deque[_Entry] = deque()
        self._environment: dict[str, str] = {}
        self._lock = threading.Lock()
        self._joined_by: int | None = None
        weakref.finalize(self, self._queue.abandon)

    def push(self, command: Command, what: Any, return_ops: Sequence[str] | None = None) -> None:
        words = _words(command)
        if self._environment != os.environ:  # mostly the same for thousands of commands
            self._environment = dict(os.environ)
        here = None
        with suppress(FileNotFoundError):  # removed: then the command is in it like we are
            here = os.getcwd()
        profile = Profile()
        job = Job(words, profile, env=self._environment, cwd=here, seconds=self._timeout)
        entry = _Entry(what, words, return_ops, profile, job)
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

    def stop(self) -> None:
        """Kill what runs and cancel what does not; `ended` then waits for nothing."""
        self._queue.cancel()
        for entry in self._entries:
            entry.job.wait(_SECONDS_OF_KILLING)

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
    for bad in entry.profile.bad:
        _logger.warning("%s: left out: %s", entry.command, one_line(bad))
    return result, ""


def _words(command: Command) -> list[str]:
    if isinstance(command, str | os.PathLike):
        command = [command]
    if not isinstance(command, Sequence):
        raise TypeError(f"a command is the path of a program, or a list of it and its arguments, not {command!r}")
    words = []
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"the command {command!r} holds {word!r}, which is no str")
        words.append(os.fspath(word))
    if not words or not words[0]:
        raise ValueError(f"the command {command!r} has no program")
    if any("\0" in word for word in words):
        raise ValueError(f"the command {command!r} holds a null character")
    return words
