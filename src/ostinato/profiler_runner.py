"""Running profilers: the names and the behaviour of a well-known runner, for programs that are written to it.

A profiler is a program that measures one or several ops and prints ``OP:name,TIME:ms,WS:bytes`` for each; or it reports
by ``OSTINATO_REPORT_FD``. Each command has a device to itself, which other processes respect,
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
import os
import re
import subprocess
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count, islice
from queue import Queue
from typing import Any, Protocol, TypeVar

from ostinato.errors import TuningError, describe_error
from ostinato.tune.legacy.profile import Backlog, Command, ProfileResult, extract_profile_result, words
from ostinato.tune.workers.command import SHORTAGES

PROF_RUNTIME_PATTERN = re.compile(r"OP:((?:(?!,TIME:).)+),TIME:([\d.]+(?:[eE][+-]?\d+)?),WS:(\d+)")
"""A record, as `extract_profile_result` reads it where all is well: name, time, workspace."""
RUNTIME_PATTERN = re.compile(r"TIME:([\d.]+(?:[eE][+-]?\d+)?)")
WORKSPACE_PATTERN = re.compile(r"WS:(\d+)")
PROFILER_RUN_MAX_ATTEMPTS = 3
PROFILER_RUN_RETRY_DELAY_SECONDS = 5.0
"""Of `run_task`; a `ProfilerRunner` tries again sooner and more often."""

K = TypeVar("K")
V = TypeVar("V")

_logger = logging.getLogger(__name__)


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
        A device is there twice, or `timeout` is not positive.
    DeviceError
        A device is not in this process's mask.
    """

    def __init__(
        self, devices: Sequence[str | int] | None, postprocessing_delegate: Delegate, timeout: float = 500
    ) -> None:
        self._delegate = postprocessing_delegate
        self._backlog = Backlog(devices, timeout)
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
            raise TypeError(f"process_result_callback must be callable, got {process_result_callback!r}")
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
                self._deliver(self._backlog.stop())
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

    def _deliver(self, most: int | None = None) -> None:
        for callback, command, result, reason in islice(self._backlog.ended(), most):
            if result is None:
                self._failures.append((command, reason))
                continue
            try:
                callback(result, self._delegate)
            except BaseException as error:
                self._failures.append((command, f"its callback raised {describe_error(error)}"))
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
        self._backlog = Backlog(devs, timeout)
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
            raise ValueError(f"an index must stand for one command until pull, got {idx!r} again")
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


def optimization_key(result: Sequence[Any]) -> float:
    """Return what results are compared by: the time, which comes second.

    Examples
    --------
    >>> min([("a", "3", "0"), ("b", "2e-1", "0")], key=optimization_key)
    ('b', '2e-1', '0')
    """
    return float(result[1])


def update_inplace(d: dict[K, V], new_d: Mapping[K, V]) -> dict[K, V]:
    """Update a dict, and return it.

    Examples
    --------
    >>> update_inplace({"a": 1}, {"b": 2})
    {'a': 1, 'b': 2}
    """
    d.update(new_d)
    return d


def run_task(cmds: Command, queue: Queue[Any], dev_select_flag: str) -> tuple[str, str]:
    """Run one command on a device of a queue, and return what it printed on stdout and stderr.

    The device goes back to the queue, whatever happens. A launch that fails for want of resources, or because the
    program is being written, is tried `PROFILER_RUN_MAX_ATTEMPTS` times. There is no limit of time, the exit status is
    not looked at, and other processes do not know that the device is in use: `ProfilerRunner` sees to all of that.

    Parameters
    ----------
    cmds
        The path of a program, or a list of a program and its arguments; no shell.
    queue
        Holds the devices that are free. If it is empty, `run_task` waits.
    dev_select_flag
        The environment variable that selects a device, such as ``CUDA_VISIBLE_DEVICES``.

    Raises
    ------
    OSError
        If the program cannot be started.

    Examples
    --------
    >>> devices = Queue()
    >>> devices.put("1")
    >>> run_task(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], devices, "CUDA_VISIBLE_DEVICES")
    ('1\\n', '')
    """
    device = queue.get()
    try:
        env = update_inplace(dict(os.environ), {dev_select_flag: str(device)})
        for attempts in count(1):
            try:
                done = subprocess.run(words(cmds), env=env, capture_output=True, stdin=subprocess.DEVNULL, check=False)
            except OSError as error:
                if error.errno not in SHORTAGES or attempts >= PROFILER_RUN_MAX_ATTEMPTS:
                    raise
                time.sleep(PROFILER_RUN_RETRY_DELAY_SECONDS)
            else:
                break
    finally:
        queue.put(device)
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def process_return(task: Any) -> tuple[Any, Any]:
    """Return a task's index and its result."""
    return task._idx, task._ret
