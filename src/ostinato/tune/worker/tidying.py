"""What a candidate may have left behind in the worker, and must not reach the next one."""

from __future__ import annotations

import gc
import os
import sys
import time

from ostinato.tune.worker.channel import moved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Tidying"]

_TASKS = "/proc/self/task"
_LOOKS = (0.001, 0.01, 0.1, 0.2)  # seconds: pools of threads may spin for 0.2 s before they sleep
_BUSY = 0.1  # cores

_clock, _used, _sleep = time.perf_counter, time.process_time, time.sleep
_dup2 = os.dup2


class Tidying:
    """Remembers how the worker was, and puts that back after a candidate.

    Attributes
    ----------
    path
        Directories that modules must be found in.
    """

    __slots__ = (
        "_copies",
        "_cores",
        "_directory",
        "_modules",
        "_priority",
        "_streams",
        "_threads",
        "_variables",
        "path",
    )

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)
        self._directory = _directory()
        self._streams = sys.stdout, sys.stderr
        self._copies = [moved(os.dup(number)) for number in range(3)]
        self._threads = _threads()
        self._modules, self._variables = len(sys.modules), len(os.environ)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self.path = frozenset(sys.path)

    def tidy(self) -> str:
        """Put back directory, cores, streams and timers; return why this worker must end, or nothing.

        Threads that a candidate left may wait for work, as those of a pool do, but not run beside the next one.
        """
        # What candidates add here is theirs to add; what they take away others would be blamed for.
        modules, variables = len(sys.modules), len(os.environ)
        if modules < self._modules or variables < self._variables or not self.path.issubset(sys.path):
            return "a candidate took modules, variables or directories of modules away"
        self._modules, self._variables = modules, variables
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            return "a candidate changed the priority of this process"
        try:
            if self._directory is not None and _directory() != self._directory:
                os.chdir(self._directory)
            for number, copy in enumerate(self._copies):
                _dup2(copy, number)
        except OSError as error:
            return f"a candidate left this process without its directory or descriptors: {error.strerror}"
        sys.stdout, sys.stderr = self._streams
        if os.sched_getaffinity(0) != self._cores:
            os.sched_setaffinity(0, self._cores)
        signal: Any = sys.modules.get("signal")  # without it nothing was set
        if signal is not None:
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                signal.setitimer(timer, 0)
        gc.enable()
        threads = _threads()
        if threads > self._threads and all(_busy(look) for look in _LOOKS):
            return "a candidate left a thread that runs"
        self._threads = threads
        return ""


def _directory() -> str | None:
    """Return the current directory; None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _threads() -> int:
    return os.stat(_TASKS).st_nlink


def _busy(seconds: float) -> bool:
    """Whether this process computes while this thread sleeps."""
    begin, used = _clock(), _used()
    _sleep(seconds)
    return _used() - used > _BUSY * (_clock() - begin)
