"""A trace: which operation ran when, in which step, on which thread."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ostinato.counting import counted
from ostinato.integers import integer
from ostinato.view.files import replacing

RECORD = np.dtype(
    [
        ("op", np.int32),
        ("step", np.uint64),
        ("thread", np.int32),
        ("lane", np.int32),
        ("start", np.int64),  # ns of one monotonic clock
        ("end", np.int64),
        ("issued", np.int64),  # when the host began to issue what a device did from start to end; 0: it is no device's
    ]
)


@dataclass(frozen=True, repr=False, eq=False)
class Trace:
    """What `program.trace` recorded: one record per operation and step.

    Attributes
    ----------
    records
        A structured array with the fields ``op`` (position in the graph), ``step``, ``thread``, ``lane``, and
        ``start`` and ``end`` in nanoseconds of one monotonic clock. Devices come after all threads; what they did has
        ``issued``, too: when the host issued it.
    op_names, op_sites
        The name of each operation, and the file and line that recorded it.
    lane_processors
        The processor each lane belongs to.
    dropped
        How many records found no room.
    op_variants
        The label of the variant that each operation ran; empty where its task has but one. Nothing where that was not
        recorded.
    devices
        Which of the threads are devices, and their names.
    added
        Whether compiling added the operation: copies between memories, waits for devices. Nothing: it added none.
    copies
        Whether the operation does nothing but copy. Nothing: none does.
    """

    records: NDArray[np.void]
    op_names: Sequence[str]
    op_sites: Sequence[str]
    lane_processors: Sequence[str]
    dropped: int = 0
    op_variants: Sequence[str] = ()
    devices: Mapping[int, str] = field(default_factory=dict)
    added: Sequence[bool] = ()
    copies: Sequence[bool] = ()

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        steps, rows = len(np.unique(self.records["step"])), np.unique(self.records["thread"]).tolist()
        devices = [self.devices[row] for row in rows if row in self.devices]
        where = ", ".join([counted(len(rows) - len(devices), "thread"), *devices])
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        return f"<Trace: {counted(len(self), 'record')} of {counted(steps, 'step')} on {where}{dropped}>"

    def busy(self) -> dict[str, float]:
        """Return for how many seconds each thread, and each device, was at work, by its name.

        What a device has begun and not ended is work of it; what several streams do at once counts once.
        """
        busy = {}
        for thread in np.unique(self.records["thread"]).tolist():
            own = self.records[self.records["thread"] == thread]
            own = np.sort(own[["start", "end"]], order="start")
            before = np.maximum.accumulate(np.concatenate([own["start"][:1], own["end"][:-1]]))
            alone = np.maximum(own["end"] - np.maximum(own["start"], before), 0)
            busy[self.row_name(thread)] = float(alone.sum()) / 1e9
        return busy

    def row_name(self, thread: int) -> str:
        """Return what a thread, or a device, is called."""
        return self.devices.get(thread, f"thread {thread}")

    def issuer(self, lane: int) -> int:
        """Return the thread at which a lane is at home, and issues what it has for a device."""
        return int(self.lane_processors[lane].rpartition(":")[2])

    def to_dict(self) -> dict[str, Any]:
        """Return the trace in the Trace Event Format that Perfetto and Chrome read."""
        return {"traceEvents": list(_events([self])), "displayTimeUnit": "ns", "otherData": _summary([self])}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, to be opened at https://ui.perfetto.dev or ``chrome://tracing``.

        Raises
        ------
        OSError
            When `path` cannot be written; no part of a file is left then, and a file that was there stays.
        """
        save([self], path)

    def plot(self, path: str | os.PathLike[str], steps: int = 4) -> None:
        """Draw the last `steps` steps as a timeline, one row a thread and one colour a step.

        Devices have rows, too, one for each stream of the program, and copies have a colour of their own. A mark in a
        thread's row says that it issued something for a device.

        The suffix of `path` chooses the format (``.png``, ``.svg``, ``.pdf``).

        Raises
        ------
        ImportError
            When matplotlib is missing: it comes with the extra ``plot``.
        OSError
            When `path` cannot be written.
        """
        from ostinato.view.timeline import draw

        draw(self, path, integer("steps", steps, 1))


def save(traces: Sequence[Trace], path: str | os.PathLike[str]) -> None:
    """Write several traces, for instance of all programs of a process, as one JSON file."""
    with replacing(path) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write('{"traceEvents":[\n')
        for index, event in enumerate(_events(traces)):  # line by line: a long trace is never held as one text
            file.write(",\n" if index else "")
            file.write(json.dumps(event, separators=(",", ":")))
        file.write(f'\n],"displayTimeUnit":"ns","otherData":{json.dumps(_summary(traces))}}}\n')


def _summary(traces: Sequence[Trace]) -> dict[str, int]:
    return {"start_ns": _origin(traces), "dropped": sum(trace.dropped for trace in traces)}


def _origin(traces: Sequence[Trace]) -> int:
    """The first start, from which the file counts: microseconds since boot would not fit a double to the ns."""
    return min((int(begins(trace.records).min()) for trace in traces if len(trace)), default=0)


def begins(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return when each record began: for what a device did, when it was issued."""
    found: NDArray[np.int64] = np.where(records["issued"] > 0, records["issued"], records["start"])
    return found


def _events(traces: Sequence[Trace]) -> Iterator[dict[str, Any]]:
    origin = _origin(traces)
    for process, trace in enumerate(traces):
        name = "ostinato" if len(traces) == 1 else f"ostinato program {process}"
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        for thread in np.unique(trace.records["thread"]).tolist():
            where = {"ph": "M", "pid": process, "tid": thread}
            yield where | {"name": "thread_name", "args": {"name": trace.row_name(thread)}}
            yield where | {"name": "thread_sort_index", "args": {"sort_index": thread}}
        yield from _slices(trace, process, origin)


def _slices(trace: Trace, process: int, origin: int) -> Iterable[dict[str, Any]]:
    for op, step, thread, lane, start, end, issued in trace.records.tolist():
        name, device = trace.op_names[op], trace.devices.get(thread)
        yield {
            "ph": "X",
            "cat": "copy" if trace.copies and trace.copies[op] else "op",
            "name": name,
            "pid": process,
            "tid": thread,
            "ts": (start - origin) / 1000,
            "dur": (end - start) / 1000,
            "args": {
                "step": step,
                "op": op,
                "lane": lane,
                "processor": device or trace.lane_processors[lane],
                "recorded at": trace.op_sites[op],
            },
        }
        if device:
            yield {
                "ph": "i",
                "s": "t",
                "cat": "issue",
                "name": f"issue {name}",
                "pid": process,
                "tid": trace.issuer(lane),
                "ts": (issued - origin) / 1000,
                "args": {"step": step, "op": op, "on": device},
            }
