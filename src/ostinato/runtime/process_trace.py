"""``OSTINATO_TRACE=path``: the runs of a whole process in one trace file, written when the process ends."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

from ostinato.runtime.record import trace_of

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.runtime.program import Program
    from ostinato.view.trace import Trace

__all__ = ["ProcessTrace", "process_trace", "untraced"]

_MOST_RECORDS = 4_000_000  # of a process: about 150 MB in memory, 700 MB as JSON


class ProcessTrace:
    """Keeps the traces of all runs, program by program, and writes them to one file."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._running: list[tuple[Program, _core.Run]] = []
        self._traces: list[list[Trace]] = []  # program by program, each run by run
        # By the lanes that it had: it may have been retuned.
        self._of_program: weakref.WeakKeyDictionary[Program, dict[tuple[str, ...], list[Trace]]]
        self._of_program = weakref.WeakKeyDictionary()
        self._room = _MOST_RECORDS

    def watch(self, program: Program, run: _core.Run) -> None:
        """Keep the trace of a run, which may still be going on."""
        with self._lock:
            self._running.append((program, run))
            self._collect()

    def save(self) -> None:
        """Write the file, in the process that was traced, not in its forks."""
        if os.getpid() != self._process:
            return
        from ostinato.view import trace

        with self._lock:
            self._collect()
            traces = [_merged(runs) for runs in self._traces]
        if not traces:
            return
        try:
            trace.save(traces, self._path)
        except OSError as error:  # the process is ending: nobody is left to catch it
            print(f"ostinato: OSTINATO_TRACE was not written to {self._path}: {error}", file=sys.stderr)

    def _collect(self) -> None:
        still_running = []
        for program, run in self._running:
            if not run.done:
                still_running.append((program, run))
                continue
            found = _first(trace_of(program, run), self._room)
            by_lanes = self._of_program.setdefault(program, {})
            lanes = tuple(found.lane_processors)
            if lanes not in by_lanes:
                by_lanes[lanes] = []
                self._traces.append(by_lanes[lanes])
            self._room -= len(found)
            by_lanes[lanes].append(found)
        self._running = still_running


def _first(trace: Trace, count: int) -> Trace:
    left_out = max(len(trace) - count, 0)
    return dataclasses.replace(trace, records=trace.records[:count], dropped=trace.dropped + left_out)


def _merged(runs: list[Trace]) -> Trace:
    records = np.concatenate([trace.records for trace in runs])
    return dataclasses.replace(runs[0], records=records, dropped=sum(trace.dropped for trace in runs))


_is_traced = ContextVar("_is_traced", default=True)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Leave out the programs that are made meanwhile: Ostinato measures with them, and the user knows nothing of them.

    Examples
    --------
    >>> with untraced():
    ...     process_trace() is None
    True
    """
    token = _is_traced.set(False)
    try:
        yield
    finally:
        _is_traced.reset(token)


def process_trace() -> ProcessTrace | None:
    """Return what traces the programs that are made now, if the environment of the process asks for it."""
    return _asked_for() if _is_traced.get() else None


@functools.cache
def _asked_for() -> ProcessTrace | None:
    path = os.environ.get("OSTINATO_TRACE")
    if not path:
        return None
    traced = ProcessTrace(path)
    atexit.register(traced.save)
    return traced
