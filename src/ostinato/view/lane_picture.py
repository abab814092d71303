"""Bars along an axis of time, in rows: the lanes of a program as they are planned, or what a trace recorded."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostinato.compiler.inserted import Fence, InstanceCopy
from ostinato.graph.body import Copy
from ostinato.text import counted, micros, one_line
from ostinato.view.explain import format_names
from ostinato.view.graph_picture import ArrayNames, tell_op
from ostinato.view.page import disclosed, page, picture, table
from ostinato.view.palette import COPY, DIM, GRID, MIXED, STEP, WAIT, task_colour
from ostinato.view.svg import Box, Line, Scene, Words, label_box, width_of
from ostinato.view.trace import Row, Trace, begins, find_messages, last_steps, name_rows, rows_of, step_rows
from ostinato.view.trace_summary import ThreadTime, TraceSummary, find_gaps, find_sources, format_seconds, summarise

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable

_WIDTH, _HEIGHT, _PITCH, _MARGIN = 960.0, 26.0, 36.0, 14.0
_NARROWEST = 2.0  # bars that are narrower are joined with their neighbours
_NAMED = 2.0  # times as wide are bars of one task only, where others are beside it
_MOST_ROWS, _MOST_ARROWS, _MOST_TOLD = 32, 80, 2000


class Bar(NamedTuple):
    """Something that takes time: in ns from the begin of the picture."""

    begin: float
    end: float
    name: str
    """What its task is called; the colour goes by it."""
    colour: str
    label: str
    """What is written on it."""
    title: str
    """What is shown to whoever points at it."""


class Link(NamedTuple):
    """An arrow from the end of what one row does to the begin of what another one does."""

    row: int
    time: float
    to_row: int
    to_time: float
    title: str


def draw_rows(
    described: str, rows: Sequence[tuple[str, Sequence[Bar]]], links: Sequence[Link], what: str = "time"
) -> Scene:
    """Return a picture of rows, each with its label; bars in the order of their begins."""
    scene = Scene(described)
    shown = rows[:_MOST_ROWS]
    span = max((bar.end for _, bars in shown for bar in bars), default=0.0) or 1.0
    left = _MARGIN + max((width_of(label, 11) for label, _ in shown), default=0.0) + 12
    y = _MARGIN

    def place(time: float) -> float:
        return left + time / span * _WIDTH

    foot = y + _PITCH * len(shown)
    for tick in _ticks(span):
        x = place(tick)
        scene.add(Line(((x, y - 4), (x, y), (x, foot), (x, foot)), GRID, width=1))
        scene.add(Words(micros(tick), x, foot + 12, 10, "middle", DIM))
    scene.add(Words(f"{what} (µs)", left + _WIDTH, foot + 26, 10, "end", DIM))
    colours: dict[str, str] = {}
    for number, (label, bars) in enumerate(shown):
        top = y + number * _PITCH
        scene.add(Words(label, left - 10, top + 17, 11, "end"))
        for bar in _joined(bars, _NARROWEST * span / _WIDTH):
            colours.setdefault(bar.name, bar.colour)
            x = place(bar.begin)
            wide = place(bar.end) - x
            box = Box(x, top, max(wide - 0.8 * (wide > 4), 0.8), _HEIGHT, bar.colour, round=2)
            scene.add(*label_box(box, bar.label), title=bar.title)
    for link in links if len(links) <= _MOST_ARROWS else ():
        if max(link.row, link.to_row) < len(shown):
            down = link.to_row > link.row
            begin = place(link.time), y + link.row * _PITCH + (_HEIGHT if down else 0)
            end = place(link.to_time), y + link.to_row * _PITCH + (0 if down else _HEIGHT)
            bend = (begin[1] + end[1]) / 2
            scene.add(Line((begin, (begin[0], bend), (end[0], bend), end), arrow=True), title=link.title)
    scene.width = left + _WIDTH + _MARGIN + 12
    entries: list[tuple[str, Box | Line]] = []
    for name, colour in sorted(colours.items(), key=lambda item: item[1] in (STEP, MIXED, WAIT, COPY)):
        entries.append((name, Box(0, 0, 18, 10, colour)))
    if links and len(links) <= _MOST_ARROWS:
        entries.append(("waits for", Line(((0, 0),), arrow=True)))
    y = scene.add_legend(entries, _MARGIN, foot + 36, scene.width - 2 * _MARGIN)
    if len(rows) > len(shown):
        y += 18
        scene.add(Words(f"and {counted(len(rows) - len(shown), 'row')} more", _MARGIN, y))
    scene.height = y + _MARGIN
    return scene


def _ticks(span: float) -> list[float]:
    """Return up to eight round times."""
    rough = span / 7
    size = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= 0.999 * rough)
    return [float(step * number) for number in range(int(span / step + 1e-9) + 1)]


def _joined(bars: Sequence[Bar], narrow: float) -> Iterator[Bar]:
    """Yield bars, those too narrow to be seen joined with their neighbours: with those of the same task first."""
    group: list[Bar] = []
    for bar in _joined_by_task(bars, narrow):
        fits = group and bar.end - bar.begin < narrow and bar.begin - group[-1].end < narrow
        if group and not fits:
            yield _join(group)
            group = []
        group.append(bar)
        if bar.end - bar.begin >= narrow:
            yield _join(group)
            group = []
    if group:
        yield _join(group)


def _joined_by_task(bars: Sequence[Bar], narrow: float) -> Iterator[Bar]:
    """Yield bars, rows of those of one task that are too narrow joined where that is wide enough."""
    group: list[Bar] = []

    def joined() -> list[Bar]:
        return [_join(group)] if group and group[-1].end - group[0].begin >= _NAMED * narrow else group

    for bar in bars:
        is_narrow = bar.end - bar.begin < narrow
        if group and not (is_narrow and bar.name == group[0].name and bar.begin - group[-1].end < narrow):
            yield from joined()
            group = []
        if is_narrow:
            group.append(bar)
        else:
            yield bar
    yield from joined()


def _join(bars: list[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    names = Counter(bar.name for bar in bars)
    first, last = bars[0], bars[-1]
    title = f"{counted(len(bars), 'operation')}: {format_names(bar.name for bar in bars)}"
    title += f"\nfrom {micros(first.begin)} to {micros(last.end)} µs"
    if len(names) == 1:
        return Bar(first.begin, last.end, first.name, first.colour, f"{len(bars)} x {first.name}", title)
    return Bar(first.begin, last.end, "several tasks", MIXED, f"{len(bars)} operations", title)


def draw_lanes(executable: Executable, array_names: ArrayNames) -> Scene:
    """Return the picture of a schedule: a row for each lane, and what a step takes by the costs that it was made with.

    Every operation begins as soon as its lane, its thread or stream, and what it waits for in the same step let it.
    """
    step = executable.step
    nodes, seconds = step.nodes, step.costs.seconds.tolist()
    lane, waits = step.placement.lane.tolist(), step.waits
    begin_of, ends = waits.start.tolist(), [0.0] * executable.slots
    sources, distances = waits.op.tolist(), waits.distance.tolist()
    worker = _workers(executable)
    free = dict.fromkeys([*worker, *range(len(worker))], 0.0)  # of lanes by number, and of what runs them
    begins, links = [0.0] * executable.slots, []  # type: tuple[list[float], list[Link]]
    row_of = {number: row for row, number in enumerate(_in_order(executable))}
    for op in step.order.tolist():
        own = range(begin_of[op], begin_of[op + 1])
        waited = [sources[each] for each in own if not distances[each]]
        runs = worker[lane[op]]
        begins[op] = max([free[lane[op]], free[runs], *(ends[each] for each in waited)])
        ends[op] = free[lane[op]] = free[runs] = begins[op] + (seconds[op] * 1e9 if op < len(nodes) else 0.0)
        for each in waited if op < len(nodes) else ():
            if each < len(nodes):
                title = f"{one_line(nodes[op].name)} waits for {one_line(nodes[each].name)}"
                links.append(Link(row_of[lane[each]], ends[each], row_of[lane[op]], begins[op], title))
    told = len(nodes) <= _MOST_TOLD
    rows = []
    for number in row_of:
        bars = []
        for op in executable.lane_ops[number].tolist():
            if op >= len(nodes):  # the barrier between steps
                continue
            node = nodes[op]
            before = sum(1 for each in range(begin_of[op], begin_of[op + 1]) if distances[each])
            title = "\n".join(tell_op(node, array_names)) if told else node.name
            title += f"\n{micros(ends[op] - begins[op])} µs, {step.costs.sources[int(step.costs.source[op])]}"
            title += f"\nwaits for {counted(before, 'operation')} of earlier steps" if before else ""
            copies = isinstance(node.body, Copy | InstanceCopy)
            name, colour = ("copy", COPY) if copies else (one_line(node.name), task_colour(node.name))
            if isinstance(node.body, Fence):
                name, colour = "waits for a device", WAIT
            bars.append(Bar(begins[op], ends[op], name, colour, one_line(node.name), title))
        rows.append((_lane_label(executable, number), bars))
    described = f"a program of {counted(len(nodes), 'operation')} on {counted(len(rows), 'lane')}"
    return draw_rows(described, rows, links, "planned time within a step")


def _workers(executable: Executable) -> list[str]:
    """Return by lane what runs it: a thread, or a stream of a device; waits for devices keep no thread busy."""
    step, found = executable.step, []
    for number, ops in enumerate(executable.lane_ops):
        first = int(ops[0]) if len(ops) and ops[0] < len(step.nodes) else -1
        on_device = step.uses_devices and first >= 0 and step.streams.of[first] >= 0
        found.append(f"lane {number}" if on_device else f"cpu:{step.placement.affinity[number]}")
    return found


def _in_order(executable: Executable) -> list[int]:
    """Return the lanes with operations of the step, by the thread that they are at home on."""
    nodes = len(executable.step.nodes)
    lanes = np.argsort(executable.step.placement.affinity, kind="stable").tolist()
    return [lane for lane in lanes if (executable.lane_ops[lane] < nodes).any()]


def _lane_label(executable: Executable, lane: int) -> str:
    step = executable.step
    label = f"lane {lane}, cpu:{step.placement.affinity[lane]}"
    ops = executable.lane_ops[lane]
    ops = ops[ops < len(step.nodes)]
    stream = int(step.streams.of[ops[0]]) if step.uses_devices and len(ops) else -1
    return label if stream < 0 else f"{label}, {step.devices[step.streams.device[stream]].name}"


def program_page(executable: Executable, names: ArrayNames, explained: str) -> str:
    """Return a program as notebooks show it: its lanes, and what `Program.explain` says."""
    nodes, lanes = executable.step.nodes, _in_order(executable)
    title = f"Program of {counted(len(nodes), 'operation')} on {counted(len(lanes), 'lane')}"
    told = disclosed("Explained", f'<pre class="scroll">{escape(explained)}</pre>')
    return page(title, picture(draw_lanes(executable, names).svg(inline=True)), told)


def trace_page(trace: Trace) -> str:
    """Return a trace as notebooks show it: its last steps, and where the time went."""
    title = repr(trace).strip("<>")
    if not len(trace):
        return page(title)
    found = summarise(trace)
    path = disclosed(f"Critical path: {counted(len(found.critical_path), 'operation')}", _path_table(found))
    return page(title, picture(_timeline(trace).svg(inline=True)), *_tables(found), path)


_PAGE_STEPS, _PAGE_RECORDS = 4, 20_000


def _timeline(trace: Trace) -> Scene:
    """Return the picture of the last steps: their spans, then a row for each thread and stream."""
    records = last_steps(trace.records[-_PAGE_RECORDS:], _PAGE_STEPS)
    shown = dataclasses.replace(trace, records=records, submitted=0)
    origin = int(begins(records).min())
    rows: list[tuple[str, list[Bar]]] = []
    steps = np.unique(records["step"])[-_PAGE_STEPS:].tolist()
    for number, spans in enumerate(step_rows(records[np.isin(records["step"], steps)])):
        bars = []
        for step, begin, end in spans:
            title = f"step {step}: {micros(end - begin)} µs"
            bars.append(Bar(begin - origin, end - origin, "step", STEP, f"step {step}", title))
        rows.append(("steps" if not number else "", bars))
    sources = find_sources(shown)
    gaps = find_gaps(shown, sources)
    bars_of: dict[Row, list[Bar]] = {row: [] for row in rows_of(trace, records)}
    for number, (op, step, thread, lane, start, end, _) in enumerate(records.tolist()):
        bars = bars_of[Row(thread, lane if thread in trace.devices else -1)]
        name = one_line(trace.op_names[op])
        since, ready = int(gaps.since[number]) - origin, int(gaps.ready[number]) - origin
        if ready > since and thread not in trace.devices:
            awaited = one_line(trace.op_names[records["op"][sources.elsewhere[number]]])
            title = f"waits {micros(ready - since)} µs for {awaited}"
            bars.append(Bar(since, ready, "waiting", WAIT, "", title))
        copies = bool(trace.copies) and trace.copies[op]
        title = f"{name}\nat {trace.op_sites[op]}\nstep {step}, lane {lane}, {micros(end - start)} µs"
        kind, colour = ("copy", COPY) if copies else (name, task_colour(trace.op_names[op]))
        bars.append(Bar(start - origin, end - origin, kind, colour, name, title))
    links = _messages(shown, {row: len(rows) + place for place, row in enumerate(bars_of)}, origin)
    rows += zip(name_rows(trace, list(bars_of)), bars_of.values(), strict=True)
    return draw_rows(f"the last {counted(len(steps), 'step')} of a trace", rows, links)


def _messages(trace: Trace, place: dict[Row, int], origin: int) -> list[Link]:
    """Return an arrow for each message between ranks."""
    links = []
    threads, starts, ends = (trace.records[name].tolist() for name in ("thread", "start", "end"))
    for number, source in find_messages(trace).items():
        to = starts[number] - origin
        name = one_line(trace.op_names[trace.records["op"][number]])
        rows = place[Row(threads[source])], place[Row(threads[number])]
        links.append(Link(rows[0], min(ends[source] - origin, to), rows[1], to, name))
    return links


def _tables(found: TraceSummary) -> list[str]:
    heads = ["thread", *(f"#{name} (µs)" for name in ThreadTime._fields[1:])]
    threads = table(heads, [[row.name, *map(format_seconds, row[1:])] for row in found.threads])
    heads = ["#waited (µs)", "operation", "on", "for", "on", "#times"]
    rows = [(format_seconds(w.seconds), w.name, w.thread, w.awaited, w.on, w.times) for w in found.waits]
    return [threads, table(heads, rows, 12)]


def _path_table(found: TraceSummary) -> str:
    heads = ["operation", "#step", "on", "#took (µs)", "#gap before (µs)", "at"]
    rows = [
        (each.name, each.step, each.thread, format_seconds(each.seconds), format_seconds(each.gap), each.call_site)
        for each in found.critical_path
    ]
    return table(heads, rows, 100)
