"""Traced runs: from the core's records to a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compile.coherent_ops import Transferred
from ostinato.compile.completions import Carried, Completion
from ostinato.graph.body import Copy, Inserted

if TYPE_CHECKING:
    from ostinato.runtime.program import Program
    from ostinato.view.trace import Trace

__all__ = ["records_of", "trace_of"]

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
)  # as in core/trace.h


_SKIPPED = 2  # the least status of what was not run


def records_of(run: _core.Run, ops: int) -> Iterator[tuple[int, np.ndarray[Any, Any], int]]:
    """Yield the records of each lane of a traced run that has ended, and how many did not fit."""
    for lane, (data, lost) in enumerate(run.trace_records()):
        found = np.frombuffer(data, _CORE_RECORD)
        yield lane, found[found["op"] < ops], lost  # not the barrier between steps


def trace_of(program: Program, run: _core.Run) -> Trace:
    """Return the trace of a traced run that has ended."""
    from ostinato.view.trace import RECORD, Trace

    scheduled = program._scheduled
    waits = np.array([isinstance(op.body, Completion | Carried) for op in scheduled.ops], bool)
    processors = enumerate(program._machine.processors) if scheduled.staged is not None else ()
    parts = []
    dropped = 0
    for lane, found, lost in records_of(run, len(scheduled.ops)):
        found = found[(found["status"] < _SKIPPED) & ~waits[found["op"]]]
        part = np.empty(len(found), RECORD)
        for field in ("op", "step", "start", "end", "issued"):
            part[field] = found[field]
        part["thread"] = found["seat"]
        part["lane"] = lane
        parts.append(part)
        dropped += lost
    records = np.concatenate(parts) if parts else np.empty(0, RECORD)
    return Trace(
        records[np.argsort(records["start"], kind="stable")],
        [op.name for op in scheduled.ops],
        [str(op.call_site) for op in scheduled.ops],
        [f"cpu:{home}" for home in run.homes],
        dropped,
        [op.variant.label if op.variant else "" for op in scheduled.ops],
        {number: processor.name for number, processor in processors if processor.device is not None},
        [isinstance(op.body, Inserted) for op in scheduled.ops],
        [isinstance(op.body, Copy | Transferred) for op in scheduled.ops],
    )
