"""The picture of a trace: one row a thread or stream of a device, one bar an operation, one colour a step."""

from __future__ import annotations

import dataclasses
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter, itemgetter
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
    _draw_messages(axes, dataclasses.replace(trace, records=records), left, right, row)
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


def _draw_messages(
    axes: Axes, trace: Trace, left: NDArray[np.float64], right: NDArray[np.float64], row: NDArray[np.intp]
) -> None:
    """Draw an arrow for each message, from the end of its send to the beginning of its receive."""
    for number, source in find_messages(trace).items():
        to, by = left[number], min(right[source], left[number])
        up = 0.4 if row[number] < row[source] else -0.4
        axes.annotate(
            "",
            (to, row[number] + up),
            (by, row[source] - up),
            arrowprops={"arrowstyle": "->", "color": _INK, "lw": 0.8, "shrinkA": 0, "shrinkB": 0},
        )


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


class RankOfTrace(NamedTuple):
    """Where in a trace of several ranks that of one begins."""

    thread: int
    op: int
    lane: int
    clock_error: int = 0
    """By how many nanoseconds at most its times may be off those of rank 0, whose clock it does not share; -1: that is
    not known."""


_NO_MESSAGES = np.zeros((0, 2), np.int32)


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
    ranks
        Of a trace of several ranks: where those of each begin among threads, operations and lanes. Times are those of
        the clock of rank 0. Empty: there is one rank.
    messages
        The operations between ranks: pairs of the one that sends and the one that receives.
    rank
        The rank of this process.
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
    ranks: Sequence[RankOfTrace] = ()
    messages: NDArray[np.int32] = field(default_factory=_NO_MESSAGES.copy)
    rank: int = 0

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        steps, rows = len(np.unique(self.records["step"])), np.unique(self.records["thread"]).tolist()
        devices = [self.devices[row] for row in rows if row in self.devices]
        of_ranks = [counted(len(self.ranks), "rank")] if self.ranks else []
        where = ", ".join([*of_ranks, counted(len(rows) - len(devices), "thread"), *devices])
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
        rank = self.rank_of(thread)
        if not self.ranks:
            return self.devices.get(thread, f"thread {thread}")
        return f"rank {rank}, " + self.devices.get(thread, f"thread {thread - self.ranks[rank].thread}")

    def rank_of(self, thread: int) -> int:
        """Return the rank that a thread, or a device, belongs to."""
        return max(bisect_right(self.ranks, thread, key=attrgetter("thread")) - 1, 0)

    def issuer(self, lane: int) -> int:
        """Return the thread at which a lane is at home, and issues what it has for a device."""
        home = int(self.lane_processors[lane].rpartition(":")[2])
        if not self.ranks:
            return home
        return home + self.ranks[bisect_right(self.ranks, lane, key=attrgetter("lane")) - 1].thread

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


def _summary(traces: Sequence[Trace]) -> dict[str, Any]:
    clocks = {
        f"rank {rank}": f"within {found.clock_error} ns of rank 0" if found.clock_error >= 0 else "not compared"
        for trace in traces
        for rank, found in enumerate(trace.ranks)
        if found.clock_error
    }
    told = {"start_ns": _origin(traces), "dropped": sum(trace.dropped for trace in traces)}
    return told | ({"clocks": clocks} if clocks else {})


def _origin(traces: Sequence[Trace]) -> int:
    """The first submission, from which the file counts: microseconds since boot would not fit a double to the ns."""
    return min((trace.begin for trace in traces if len(trace)), default=0)


def begins(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return when each record began: for what a device did, when it was issued."""
    found: NDArray[np.int64] = np.where(records["issued"] > 0, records["issued"], records["start"])
    return found


def _events(traces: Sequence[Trace]) -> Iterator[dict[str, Any]]:
    origin, flows, process = _origin(traces), count(1), 0
    for number, trace in enumerate(traces):
        name = "ostinato" if len(traces) == 1 else f"ostinato program {number}"
        yield from _events_of(trace, name, process, origin, flows)
        process += max(len(trace.ranks), 1)


def _events_of(trace: Trace, name: str, process: int, origin: int, flows: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace: a process for each rank, from a number on."""
    streams = _stream_tracks(trace)
    first = max([*trace.records["thread"].tolist(), *streams.values()], default=-1) + 1
    ranks = [trace.rank_of(thread) for thread in trace.records["thread"].tolist()]
    for rank in range(max(len(trace.ranks), 1)):
        pid = process + rank
        title = f"{name}, rank {rank}" if trace.ranks else name
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": title}}
        if trace.ranks:
            yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
        records = trace.records[np.array(ranks, np.intp) == rank] if trace.ranks else trace.records
        rows = step_rows(records)
        tracks = {thread: trace.row_name(thread) for thread in np.unique(records["thread"]).tolist()}
        own = {row: track for row, track in streams.items() if trace.rank_of(row.thread) == rank}
        tracks |= {track: trace.row_name(row.thread) + f", lane {row.lane}" for row, track in own.items()}
        # Below them, as many tracks as steps overlap: events of one track must not.
        tracks |= {first + row: f"steps {row + 1}" if len(rows) > 1 else "steps" for row in range(len(rows))}
        for thread, label in tracks.items():
            where = {"ph": "M", "pid": pid, "tid": thread}
            yield where | {"name": "thread_name", "args": {"name": label}}
            yield where | {"name": "thread_sort_index", "args": {"sort_index": thread}}
        for row, steps in enumerate(rows):
            for step, begin, end in steps:
                yield from _span_events(pid, first + row, "step", f"step {step}", begin - origin, end - origin)
        first += len(rows)
    sources = find_sources(trace)
    tracks_of = [streams.get(Row(*row), row[0]) for row in trace.records[["thread", "lane"]].tolist()]
    on = [(process + rank, track) for rank, track in zip(ranks, tracks_of, strict=True)]
    yield from _slices(trace, origin, sources, on)
    yield from _flows(trace, origin, sources, on, flows)


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


def _slices(trace: Trace, origin: int, sources: Sources, on: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    gaps = find_gaps(trace, sources)
    waits = np.where(gaps.ready > gaps.since, sources.elsewhere, -1)
    waits[np.isin(trace.records["thread"], list(trace.devices))] = -1
    names = trace.records["op"].tolist()
    rows = zip(trace.records.tolist(), on, waits.tolist(), gaps.since.tolist(), gaps.ready.tolist(), strict=True)
    for (op, step, thread, lane, start, end, issued), (process, track), awaited, since, ready in rows:
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
    trace: Trace, origin: int, sources: Sources, on: list[tuple[int, int]], numbers: Iterator[int]
) -> Iterator[dict[str, Any]]:
    """Yield an arrow for each message, and one to each operation from the last one elsewhere that it waited for."""
    records = trace.records
    start, end = records["start"].tolist(), records["end"].tolist()
    sent = find_messages(trace)
    arrows = [(source, number, "message") for number, source in sent.items()]
    for number in np.flatnonzero(sources.elsewhere >= 0).tolist():
        source = int(sources.elsewhere[number])
        if sent.get(number) != source:
            arrows.append((source, number, "dependence"))
    for source, number, kind in arrows:
        # An arrow begins at what is under way then. Shared memory has a message before the sender's record ends.
        at = max(min(end[source] - 1, end[number] - 1), start[source])
        to = max(start[number], at)
        if to > end[number]:
            continue  # clocks of hosts differ by more than that
        arrow = {"cat": kind, "name": kind, "id": next(numbers)}
        for phase, (process, track), ns in (({"ph": "s"}, on[source], at), ({"ph": "f", "bp": "e"}, on[number], to)):
            yield phase | arrow | {"pid": process, "tid": track, "ts": (ns - origin) / 1000}


def find_messages(trace: Trace) -> dict[int, int]:
    """Return by record of an operation that receives the record of the one that sent, in the same step."""
    if not len(trace.messages):
        return {}
    from_op = dict(zip(trace.messages[:, 1].tolist(), trace.messages[:, 0].tolist(), strict=True))
    keys = list(zip(trace.records["op"].tolist(), trace.records["step"].tolist(), strict=True))
    of_sends = set(from_op.values())
    places = {key: place for place, key in enumerate(keys) if key[0] in of_sends}
    pairs = ((place, places.get((from_op.get(op, -1), step))) for place, (op, step) in enumerate(keys))
    return {place: source for place, source in pairs if source is not None}
