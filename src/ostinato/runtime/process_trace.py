"""The trace of a whole process, which the environment variable OSTINATO_TRACE asks for."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np

from ostinato.view.activity import is_observed

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.runtime.engine import Engine
    from ostinato.view.trace import Trace

_MOST_RECORDS = 4_000_000  # of a process: about 150 MB in memory, 700 MB as JSON


class ProcessTrace:
    """Keeps the traces of all runs, program by program, and writes them to one file."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._running: list[tuple[Engine, _core.Run]] = []
        self._traces: list[list[Trace]] = []  # program by program, each run by run
        # By the lanes that it had: it may have been retuned.
        self._of_program: weakref.WeakKeyDictionary[Engine, dict[tuple[str, ...], list[Trace]]]
        self._of_program = weakref.WeakKeyDictionary()
        self._room = _MOST_RECORDS

    def watch(self, engine: Engine, run: _core.Run) -> None:
        """Keep the trace of a run, which may still be going on."""
        with self._lock:
            self._running.append((engine, run))
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
        for engine, run in self._running:
            if not run.done:
                still_running.append((engine, run))
                continue
            found = engine.trace(run)
            left_out = max(len(found) - self._room, 0)
            found = dataclasses.replace(found, records=found.records[: self._room], dropped=found.dropped + left_out)
            by_lanes = self._of_program.setdefault(engine, {})
            lanes = tuple(found.lane_processors)
            if lanes not in by_lanes:
                by_lanes[lanes] = []
                self._traces.append(by_lanes[lanes])
            self._room -= len(found)
            by_lanes[lanes].append(found)
        self._running = still_running


def _merged(runs: list[Trace]) -> Trace:
    records = np.concatenate([trace.records for trace in runs])
    return dataclasses.replace(runs[0], records=records, dropped=sum(trace.dropped for trace in runs))


def process_trace() -> ProcessTrace | None:
    """Return what traces the programs that are made now, if the environment of the process asks for it."""
    return _asked_for() if is_observed() else None


@functools.cache
def _asked_for() -> ProcessTrace | None:
    path = os.environ.get("OSTINATO_TRACE")
    if not path:
        return None
    traced = ProcessTrace(path)
    atexit.register(traced.save)
    return traced
