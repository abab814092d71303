"""How long this thread was ready to run, but something else had its core."""

from __future__ import annotations

import os
import resource

from ostinato.tune.worker.channel import moved

__all__ = ["Preemption"]

_SWITCH = 1_000_000  # ns that one involuntary switch is taken for where the kernel does not count them


class Preemption:
    """Counts the time for which the thread that made it waited for a core."""

    __slots__ = ("_close", "_descriptor", "_pread", "_usage")

    def __init__(self) -> None:
        self._pread, self._close, self._usage = os.pread, os.close, resource.getrusage
        self._descriptor = -1
        try:
            self._descriptor = moved(os.open("/proc/thread-self/schedstat", os.O_RDONLY))
            self.waited()
        except (OSError, ValueError, IndexError):
            self._descriptor = -1

    def waited(self) -> int:
        """Return the ns so far."""
        if self._descriptor >= 0:
            try:
                return int(self._pread(self._descriptor, 80, 0).split()[1])
            except OSError:  # a candidate closed it
                self._descriptor = -1
        return self._usage(resource.RUSAGE_THREAD).ru_nivcsw * _SWITCH

    def close(self) -> None:
        """Close what it reads from; a worker need not, which ends."""
        if self._descriptor >= 0:
            self._close(self._descriptor)
            self._descriptor = -1
