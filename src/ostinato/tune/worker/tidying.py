"""What a candidate may have left behind in the worker, and must not reach the next one."""

from __future__ import annotations

import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Tidying"]

_TASKS = "/proc/self/task"
_LOOK = 0.001  # seconds
_BUSY = 0.1  # cores


class Tidying:
    """Remembers how the worker was, and puts that back after a candidate."""

    __slots__ = ("_cores", "_directory", "_streams", "_threads")

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)
        self._directory = os.getcwd()
        self._streams = sys.stdout, sys.stderr
        self._threads = _threads()

    def tidy(self) -> str:
        """Put back the directory, the cores, timers and streams; return why this worker must end, or nothing.

        Threads that a candidate left may wait for work, as those of a pool do, but not run beside the next one.
        """
        try:
            if os.getcwd() != self._directory:
                os.chdir(self._directory)
        except OSError as error:
            return f"the directory {self._directory} is gone: {error.strerror}"
        if os.sched_getaffinity(0) != self._cores:
            os.sched_setaffinity(0, self._cores)
        signal: Any = sys.modules.get("signal")  # without it nothing was set
        if signal is not None:
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                signal.setitimer(timer, 0)
        sys.stdout, sys.stderr = self._streams
        gc.enable()
        threads = _threads()
        if threads > self._threads:
            busy = _busy_cores()
            if busy > _BUSY:
                return f"a candidate left a thread that runs ({busy:.1f} cores)"
        self._threads = threads
        return ""


def _threads() -> int:
    return os.stat(_TASKS).st_nlink


def _busy_cores() -> float:
    begin, used = time.perf_counter(), time.process_time()
    time.sleep(_LOOK)
    return (time.process_time() - used) / (time.perf_counter() - begin)
