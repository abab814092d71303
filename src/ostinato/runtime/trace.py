"""Traces of runs, and of the whole process: ``OSTINATO_TRACE=path``."""

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
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compiler.coherence.coherent_ops import Transferred
from ostinato.compiler.streams.fences import completions_of
from ostinato.graph.body import Copy, Inserted

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable
    from ostinato.runtime.program import Program
    from ostinato.view.trace import Trace

__all__ = ["ProcessTrace", "process_trace", "ready", "records_of", "start_when_ready", "trace_of", "untraced"]

_CORE_RECORD = np.dtype(
    [
        ("op", np.uint32),
        ("seat", np.uint32),
        ("step", np.uint64),
        ("start", np.int64),
        ("end", np.int64),
        ("status", np.uint64),
        ("issued", np.int64),
    ]
)  # as in core/program/trace.h


_SKIPPED = 2  # the least status of what was not run


def records_of(run: _core.Run, ops: int) -> Iterator[tuple[int, np.ndarray[Any, Any], int]]:
    """Yield the records of each lane of a traced run that has ended, and how many did not fit."""
    for lane, (data, lost) in enumerate(run.trace_records()):
        found = np.frombuffer(data, _CORE_RECORD)
        yield lane, found[found["op"] < ops], lost  # not the barrier between steps


def trace_of(program: Program, run: _core.Run) -> Trace:
    """Return the trace of a traced run that has ended."""
    from ostinato.view.trace import RECORD, Trace

    executable = program._executable
    waits = np.zeros(len(executable.step.nodes), bool)
    waits[[index for index, _ in completions_of(executable.step.nodes)]] = True
    processors = enumerate(program._machine.processors) if executable.step.staged is not None else ()
    parts = list(records_of(run, len(executable.step.nodes)))
    found = np.concatenate([np.empty(0, _CORE_RECORD), *(part for _, part, _ in parts)])
    lanes = np.repeat([lane for lane, _, _ in parts], [len(part) for _, part, _ in parts])
    order = np.lexsort((found["op"], found["step"]))
    found, lanes = found[order], lanes[order]
    if executable.step.staged is not None:
        start_when_ready(found, ready(found, executable, run.submitted))
    shown = (found["status"] < _SKIPPED) & ~waits[found["op"]]
    records = np.empty(np.count_nonzero(shown), RECORD)
    for field in ("op", "step", "start", "end", "issued"):
        records[field] = found[field][shown]
    records["thread"] = found["seat"][shown]
    records["lane"] = lanes[shown]
    return Trace(
        records[np.argsort(records["start"], kind="stable")],
        [op.name for op in executable.step.nodes],
        [str(op.call_site) for op in executable.step.nodes],
        [f"cpu:{home}" for home in run.homes],
        sum(lost for _, _, lost in parts),
        [op.variant.label if op.variant else "" for op in executable.step.nodes],
        {number: processor.name for number, processor in processors if processor.device is not None},
        [isinstance(op.body, Inserted) for op in executable.step.nodes],
        [isinstance(op.body, Copy | Transferred) for op in executable.step.nodes],
    )


def start_when_ready(found: np.ndarray[Any, Any], ready: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    """Have the work of devices start when all is done that it waits for there: its stream did nothing before."""
    on_device = found["issued"] > 0
    later = np.maximum(found["start"], np.minimum(ready, found["end"]))
    found["start"] = np.where(on_device, later, found["start"])


def ready(found: np.ndarray[Any, Any], executable: Executable, submitted: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """When all was done that each record's op comes after: of these records, sorted by step and op."""
    ready = np.full(len(found), submitted)
    if not len(found):
        return ready
    edges, n_ops = executable.step.edges, len(executable.step.nodes)
    first = int(found["step"][0])
    keys = (found["step"] - first).astype(np.int64) * n_ops + found["op"]
    begin = np.searchsorted(edges.dst, np.arange(n_ops + 1))
    most = np.diff(begin).max(initial=0)
    for place in range(most):  # the first predecessor of every op, then the second, ...
        edge = begin[found["op"]] + place
        has = edge < begin[found["op"] + 1]
        back = edges.distance[edge[has]].astype(np.int64) * n_ops
        before = keys[has] - found["op"][has] + edges.src[edge[has]] - back
        at = np.minimum(np.searchsorted(keys, before), len(keys) - 1)
        ended = np.where(keys[at] == before, found["end"][at], submitted)
        ready[has] = np.maximum(ready[has], ended)
    # A device's work may be given to it before.
    latest = np.where(found["issued"] > 0, found["end"], found["start"])
    earliest: np.ndarray[Any, np.dtype[np.int64]] = np.minimum(ready, latest)
    return earliest


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
