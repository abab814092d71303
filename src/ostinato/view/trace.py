"""The picture of a trace: one row a thread or stream of a device, one bar an operation, one colour a step."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ostinato.arguments import integer
from ostinato.compiler.ir import Edges
from ostinato.text import counted, one_line
from ostinato.view.palette import COPY, INK, MIXED, ON_LIGHT, STEPS
from ostinato.view.svg import replacing
from ostinato.view.trace_summary import Sources, TraceSummary, find_gaps, find_sources, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


_INK = ON_LIGHT[INK]


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
    shown = {title: last_steps(trace.records, steps) for title, trace in traces.items()}
    rows = {title: rows_of(trace, shown[title])[:MOST_ROWS] for title, trace in traces.items()}
    heights = [max(len(each), 1) for each in rows.values()]
    span = max((_span(records) for records in shown.values()), default=0)
    figure = Figure(figsize=(10, len(traces) + 0.5 + 0.5 * sum(heights)), dpi=150, layout="constrained")
    grid = figure.subplots(len(traces), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, trace) in zip(grid, traces.items(), strict=True):
        axes.set_yticks(range(len(rows[title])), name_rows(trace, rows[title]))
        axes.invert_yaxis()
        axes.tick_params(colors=_INK, left=False)
        axes.spines[["top", "left", "right"]].set_visible(False)
        if len(shown[title]):
            _bars(axes, title, trace, shown[title], rows[title], steps, span)
        else:
            axes.set_title(f"{title + ': ' if title else ''}an empty trace", loc="left", color=_INK)
    with replacing(path) as draft:
        figure.savefig(draft, format=draft.suffix[1:] or "png")


def rows_of(trace: Trace, records: NDArray[np.void]) -> list[Row]:
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


def name_rows(trace: Trace, rows: list[Row]) -> list[str]:
    names: list[str] = []
    for row in rows:
        streams = [other for other in rows if other.thread == row.thread]
        number = f", stream {streams.index(row)}" if len(streams) > 1 else ""
        names.append(trace.row_name(row.thread) + number)
    return names


def _span(records: NDArray[np.void]) -> int:
    return int(records["end"].max() - begins(records).min()) if len(records) else 0


def last_steps(records: NDArray[np.void], steps: int) -> NDArray[np.void]:
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
    scale = 1e3  # microseconds, as in all pictures
    all_rows = len(rows_of(trace, records))
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
    axes.set_xlabel("time (µs)", color=_INK)
    axes.label_outer()
    caption = _caption(dataclasses.replace(trace, records=records), len(rows), float(own_span)) + left_out
    room = "\n" if trace.devices else ""  # for the legend, which is longer
    caption = f"{title + ': ' if title else ''}{caption}{room}"
    axes.set_title(caption, loc="left", fontsize=10, color=_INK, linespacing=1.8)
    patches = [Patch(color=colour, label=f"step {number}") for number, colour in colours.items()]
    earlier = any(step not in colours and not copy for step, copy in zip(records["step"], copies, strict=True))
    patches += [Patch(color=MIXED, label="earlier steps")] if earlier else []
    patches += [Patch(color=COPY, label="copy")] if any(copies) else []
    axes.legend(
        handles=patches + issues,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(STEPS) + 3,
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


_NO_EDGES = Edges(*(np.zeros(0, np.int32) for _ in range(3)))

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
    edges
        What comes after what: the columns ``src``, ``dst`` and ``distance``. ``dst`` in a step comes after ``src`` in
        the step that is ``distance`` steps before.
    submitted
        When the run was submitted, in nanoseconds; 0 if that is not known.
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
    edges: Edges = _NO_EDGES
    submitted: int = 0

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        steps, rows = len(np.unique(self.records["step"])), np.unique(self.records["thread"]).tolist()
        devices = [self.devices[row] for row in rows if row in self.devices]
        where = ", ".join([counted(len(rows) - len(devices), "thread"), *devices])
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        return f"<Trace: {counted(len(self), 'record')} of {counted(steps, 'step')} on {where}{dropped}>"

    @property
    def begin(self) -> int:
        """When the run was submitted, or else when its first operation began."""
        first = int(begins(self.records).min()) if len(self) else self.submitted
        return self.submitted if 0 < self.submitted < first else first

    def summary(self) -> TraceSummary:
        """Return where the time went: work, waiting and for whom, publishing, starting; and the critical path.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def double(x: ost.ReadWrite):
        ...     x *= 2
        >>> with ost.capture() as graph:
        ...     op = double(np.ones(4))
        >>> with graph.compile() as program:
        ...     found = program.trace(3).summary()
        >>> [(entry.name, entry.step) for entry in found.critical_path]
        [('double', 0), ('double', 1), ('double', 2)]
        """
        return summarise(self)

    def _repr_html_(self) -> str:
        from ostinato.view.lane_picture import trace_page

        return trace_page(self)

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
    import json  # not with ostinato: most programs need none

    with replacing(path) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write('{"traceEvents":[\n')
        for index, event in enumerate(_events(traces)):  # line by line: a long trace is never held as one text
            file.write(",\n" if index else "")
            file.write(json.dumps(event, separators=(",", ":")))
        file.write(f'\n],"displayTimeUnit":"ns","otherData":{json.dumps(_summary(traces))}}}\n')


def _summary(traces: Sequence[Trace]) -> dict[str, int]:
    return {"start_ns": _origin(traces), "dropped": sum(trace.dropped for trace in traces)}


def _origin(traces: Sequence[Trace]) -> int:
    """The first submission, from which the file counts: microseconds since boot would not fit a double to the ns."""
    return min((trace.begin for trace in traces if len(trace)), default=0)


def begins(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return when each record began: for what a device did, when it was issued."""
    found: NDArray[np.int64] = np.where(records["issued"] > 0, records["issued"], records["start"])
    return found


def _events(traces: Sequence[Trace]) -> Iterator[dict[str, Any]]:
    origin, flows = _origin(traces), count(1)
    for process, trace in enumerate(traces):
        name = "ostinato" if len(traces) == 1 else f"ostinato program {process}"
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        threads = np.unique(trace.records["thread"]).tolist()
        rows = step_rows(trace.records)
        tracks = {thread: trace.row_name(thread) for thread in threads}
        streams = _stream_tracks(trace)
        tracks |= {track: trace.row_name(row.thread) + f", lane {row.lane}" for row, track in streams.items()}
        # Below them, as many tracks as steps overlap: events of one track must not.
        first = max(tracks, default=-1) + 1
        tracks |= {first + row: f"steps {row + 1}" if len(rows) > 1 else "steps" for row in range(len(rows))}
        for thread, title in tracks.items():
            where = {"ph": "M", "pid": process, "tid": thread}
            yield where | {"name": "thread_name", "args": {"name": title}}
            yield where | {"name": "thread_sort_index", "args": {"sort_index": thread}}
        for row, steps in enumerate(rows):
            for step, begin, end in steps:
                yield from _span_events(process, first + row, "step", f"step {step}", begin - origin, end - origin)
        sources = find_sources(trace)
        on = [streams.get(Row(*row), row[0]) for row in trace.records[["thread", "lane"]].tolist()] if streams else []
        on = on or trace.records["thread"].tolist()
        yield from _slices(trace, process, origin, sources, on)
        yield from _flows(trace, process, origin, sources, on, flows)


def _stream_tracks(trace: Trace) -> dict[Row, int]:
    """Return a track of its own for each further stream of a device whose streams work at once."""
    found: dict[Row, int] = {}
    for device in trace.devices:
        own = np.sort(trace.records[trace.records["thread"] == device], order="start")
        if (own["start"][1:] < np.maximum.accumulate(own["end"])[:-1]).any():
            lanes = np.unique(own["lane"]).tolist()
            free = max(*trace.devices, *trace.records["thread"].tolist()) + 1 + len(found)
            found |= {Row(device, lane): free + place for place, lane in enumerate(lanes[1:])}
    return found


def step_rows(records: NDArray[np.void]) -> list[list[tuple[int, int, int]]]:
    """Return number, begin and end of each step, in as few rows as it takes for those of a row not to overlap."""
    steps, place = np.unique(records["step"], return_inverse=True)
    begin, end = np.full(len(steps), np.iinfo(np.int64).max), np.zeros(len(steps), np.int64)
    np.minimum.at(begin, place, begins(records))
    np.maximum.at(end, place, records["end"])
    rows: list[list[tuple[int, int, int]]] = []
    for step, first, last in sorted(zip(steps.tolist(), begin.tolist(), end.tolist(), strict=True), key=itemgetter(1)):
        row = next((each for each in rows if each[-1][2] <= first), None)
        if row is None:
            row = []
            rows.append(row)
        row.append((step, first, last))
    return rows


def _span_events(process: int, thread: int, kind: str, name: str, begin: int, end: int) -> Iterator[dict[str, Any]]:
    where = {"cat": kind, "name": name, "pid": process, "tid": thread}
    yield {"ph": "B", **where, "ts": begin / 1000}
    yield {"ph": "E", **where, "ts": end / 1000}


def _slices(trace: Trace, process: int, origin: int, sources: Sources, on: list[int]) -> Iterator[dict[str, Any]]:
    gaps = find_gaps(trace, sources)
    waits = np.where(gaps.ready > gaps.since, sources.elsewhere, -1)
    waits[np.isin(trace.records["thread"], list(trace.devices))] = -1
    names = trace.records["op"].tolist()
    rows = zip(trace.records.tolist(), on, waits.tolist(), gaps.since.tolist(), gaps.ready.tolist(), strict=True)
    for (op, step, thread, lane, start, end, issued), track, awaited, since, ready in rows:
        name, device = trace.op_names[op], trace.devices.get(thread)
        if awaited >= 0:
            title = f"waits for {trace.op_names[names[awaited]]}"
            yield from _span_events(process, thread, "wait", title, since - origin, ready - origin)
        yield {
            "ph": "X",
            "cat": "copy" if trace.copies and trace.copies[op] else "op",
            "name": name,
            "pid": process,
            "tid": track,
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


def _flows(
    trace: Trace, process: int, origin: int, sources: Sources, on: list[int], numbers: Iterator[int]
) -> Iterator[dict[str, Any]]:
    """Yield an arrow to each operation from the last one elsewhere that it waited for."""
    records = trace.records
    start, end = records["start"].tolist(), records["end"].tolist()
    for number in np.flatnonzero(sources.elsewhere >= 0).tolist():
        source = int(sources.elsewhere[number])
        arrow = {"cat": "dependence", "name": "dependence", "id": next(numbers), "pid": process}
        # An arrow begins at what is under way then.
        at = max(end[source] - 1, start[source]) - origin
        yield {"ph": "s", **arrow, "tid": on[source], "ts": at / 1000}
        yield {"ph": "f", "bp": "e", **arrow, "tid": on[number], "ts": (max(start[number] - origin, at)) / 1000}
