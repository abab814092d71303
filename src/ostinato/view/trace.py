"""The picture of a trace: one row a thread or stream of a device, one bar an operation, one colour a step."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ostinato.arguments import integer
from ostinato.text import counted, one_line
from ostinato.view.palette import COPY, INK, MIXED, ON_LIGHT, STEPS
from ostinato.view.svg import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


_INK = ON_LIGHT[INK]
UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


MOST_ROWS = 32
"""Of more, the first ones are drawn."""

LETTER = 0.009
"""How wide a letter of a bar's name is, of the whole width: where there is no room, there is no name."""


class Row(NamedTuple):
    """A thread; or a stream, which is a lane of the program, of a device."""

    thread: int
    lane: int = -1


def draw(traces: Mapping[str, Trace], path: str | os.PathLike[str], steps: int) -> None:
    """Draw the last `steps` steps of traces, each under its title, on one axis of time."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a timeline needs matplotlib: pip install 'ostinato[plot]'") from error
    shown = {title: _last_steps(trace.records, steps) for title, trace in traces.items()}
    rows = {title: _rows(trace, shown[title])[:MOST_ROWS] for title, trace in traces.items()}
    heights = [max(len(each), 1) for each in rows.values()]
    span = max((_span(records) for records in shown.values()), default=0)
    figure = Figure(figsize=(10, len(traces) + 0.5 + 0.5 * sum(heights)), dpi=150, layout="constrained")
    grid = figure.subplots(len(traces), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, trace) in zip(grid, traces.items(), strict=True):
        axes.set_yticks(range(len(rows[title])), _names(trace, rows[title]))
        axes.invert_yaxis()
        axes.tick_params(colors=_INK, left=False)
        axes.spines[["top", "left", "right"]].set_visible(False)
        if len(shown[title]):
            _bars(axes, title, trace, shown[title], rows[title], steps, span)
        else:
            axes.set_title(f"{title + ': ' if title else ''}an empty trace", loc="left", color=_INK)
    with replacing(path) as draft:
        figure.savefig(draft, format=draft.suffix[1:] or "png")


def _rows(trace: Trace, records: NDArray[np.void]) -> list[Row]:
    """Return the rows: threads, also those that did nothing but issue, then devices."""
    on_device = np.isin(records["thread"], list(trace.devices))
    threads = set(records["thread"][~on_device].tolist())
    streams = set(records[on_device][["thread", "lane"]].tolist())
    threads |= {trace.issuer(lane) for _, lane in streams}
    return [Row(thread) for thread in sorted(threads)] + [Row(*stream) for stream in sorted(streams)]


def _row_of(trace: Trace, records: NDArray[np.void], rows: list[Row]) -> NDArray[np.intp]:
    """Return by record the place of its row; -1: it is not drawn."""
    places = {row: place for place, row in enumerate(rows)}
    keys = ((thread, lane if thread in trace.devices else -1) for thread, lane in records[["thread", "lane"]].tolist())
    return np.array([places.get(Row(*key), -1) for key in keys], np.intp)


def _names(trace: Trace, rows: list[Row]) -> list[str]:
    names: list[str] = []
    for row in rows:
        streams = [other for other in rows if other.thread == row.thread]
        number = f", stream {streams.index(row)}" if len(streams) > 1 else ""
        names.append(trace.row_name(row.thread) + number)
    return names


def _span(records: NDArray[np.void]) -> int:
    return int(records["end"].max() - begins(records).min()) if len(records) else 0


def _last_steps(records: NDArray[np.void], steps: int) -> NDArray[np.void]:
    """What ran since the first of the last `steps` steps began, what was left of earlier steps included."""
    if not len(records):
        return records
    begin = begins(records)[np.isin(records["step"], np.unique(records["step"])[-steps:])].min()
    shown: NDArray[np.void] = records[records["end"] > begin]
    shown["start"] = np.maximum(shown["start"], begin)
    shown["issued"] = np.where(shown["issued"] > 0, np.maximum(shown["issued"], begin), 0)
    return np.sort(shown, order="start", kind="stable")


def _bars(
    axes: Axes,
    title: str,
    trace: Trace,
    records: NDArray[np.void],
    rows: list[Row],
    steps: int,
    span: int,
) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    origin, own_span = begins(records).min(), _span(records)
    scale, unit = next((entry for entry in UNITS if span >= entry[0]), UNITS[-1])
    all_rows = len(_rows(trace, records))
    left_out = f", {len(rows)} of {counted(all_rows, 'thread')}" if len(rows) < all_rows else ""
    row = _row_of(trace, records, rows)
    records, row = records[row >= 0], row[row >= 0]
    left = (records["start"] - origin) / scale
    right = (records["end"] - origin) / scale
    corners = np.stack([[left, row - 0.4], [right, row - 0.4], [right, row + 0.4], [left, row + 0.4]])
    numbers = np.unique(records["step"])[-steps:].tolist()
    colours = {number: STEPS[place % len(STEPS)] for place, number in enumerate(numbers)}
    copies = [bool(trace.copies) and trace.copies[op] for op in records["op"].tolist()]
    turns = zip(_turns(records, row), copies, strict=True)
    faces = [to_rgba(COPY if copy else colours.get(step, MIXED), 0.8 + 0.2 * second) for (step, second), copy in turns]
    bars = PolyCollection(list(corners.transpose(2, 0, 1)), facecolors=faces, linewidths=0)
    axes.add_collection(bars)
    inks = ["white" if copy or step in colours else _INK for step, copy in zip(records["step"], copies, strict=True)]
    _write_names(axes, [trace.op_names[op] for op in records["op"]], left, right, row, inks, span / scale)
    issues = _mark_issues(axes, trace, records, rows, (records["issued"] - origin) / scale)
    axes.set_xlim(0, span / scale)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(f"time ({unit})", color=_INK)
    axes.label_outer()
    caption = _caption(dataclasses.replace(trace, records=records), len(rows), float(own_span)) + left_out
    room = "\n" if trace.devices else ""  # for the legend, which is longer
    caption = f"{title + ': ' if title else ''}{caption}{room}"
    axes.set_title(caption, loc="left", fontsize=10, color=_INK, linespacing=1.8)
    patches = [Patch(color=colour, label=f"step {number}") for number, colour in colours.items()]
    patches += [Patch(color=COPY, label="copy")] if any(copies) else []
    axes.legend(
        handles=patches + issues,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(STEPS) + 2,
        frameon=False,
        fontsize=9,
        handlelength=1,
        labelcolor=_INK,
    )


def _write_names(
    axes: Axes,
    names: list[str],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    row: NDArray[np.intp],
    inks: list[str],
    width: float,
) -> None:
    """Write the names of operations into bars that are wide enough."""
    for name, begin, end, place, ink in zip(names, left, right, row, inks, strict=True):
        name = one_line(name)
        if end - begin > (len(name) + 1) * LETTER * width:
            axes.text((begin + end) / 2, place, name, color=ink, fontsize=9, ha="center", va="center")


def _mark_issues(
    axes: Axes, trace: Trace, records: NDArray[np.void], rows: list[Row], at: NDArray[np.float64]
) -> list[Line2D]:
    """Mark where threads issued what devices did; return what the legend is to show for it."""
    issued = [(trace.issuer(records["lane"][place]), at[place]) for place in np.flatnonzero(records["issued"] > 0)]
    marks = [(rows.index(Row(thread)), time) for thread, time in issued if Row(thread) in rows]
    if not marks:
        return []
    places, times = np.array(marks).T
    shown: list[Line2D] = axes.plot(times, places - 0.4, "v", color=_INK, markersize=5, clip_on=False, label="issue")
    return shown


def _turns(records: NDArray[np.void], row: NDArray[np.intp]) -> Iterator[tuple[int, bool]]:
    """The step of each record, and whether it is every second one of its row: neighbours differ in shade."""
    second: dict[int, bool] = {}
    for step, place in zip(records["step"].tolist(), row.tolist(), strict=True):
        second[place] = not second.get(place, False)
        yield step, second[place]


def _caption(trace: Trace, rows: int, span: float) -> str:
    """Say what is shown, and how busy threads were; where there are devices, each on its own."""
    own = [op for op in np.unique(trace.records["op"]).tolist() if not (trace.added and trace.added[op])]
    names = sorted({trace.op_names[op] for op in own})
    what = one_line(", ".join(names)) if len(names) <= 3 else f"{len(names)} kinds of operations"
    busy = {name: 1e9 * seconds / max(span, 1) for name, seconds in trace.busy().items()}
    if not trace.devices:
        return f"{what}: {len(trace.records)} operations, {sum(busy.values()) / max(rows, 1):.0%} busy"
    return f"{what}; busy: " + ", ".join(f"{name} {share:.0%}" for name, share in busy.items())


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
        draw({"": self}, path, integer("steps", steps, 1))


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
