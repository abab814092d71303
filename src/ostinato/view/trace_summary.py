"""Where the time of a trace went: work, waiting and for whom, the rest; and the chain of operations that took it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ostinato.text import counted, duration, micros, one_line

if TYPE_CHECKING:
    from ostinato.view.trace import Trace

_ENDS, _MOST = 6, 12


class ThreadTime(NamedTuple):
    """Where the time of a thread went, in seconds. The parts add up to the time that the trace covers."""

    name: str
    work: float
    """In operations."""
    waiting: float
    """Nothing to do before an operation of another thread or of a device ended."""
    publishing: float
    """After operations that other threads wait for: telling them, and turning to the next operation."""
    starting: float
    """Before the first operation, and between operations that nobody else waits for."""
    idle: float
    """After the last operation."""


class WaitTime(NamedTuple):
    """How long operations of one name waited for those of another."""

    name: str
    awaited: str
    """What they waited for."""
    thread: str
    """Where."""
    on: str
    """Where that ran."""
    seconds: float
    times: int


class RankWait(NamedTuple):
    """How long operations of one rank waited for those of another."""

    rank: int
    awaited: int
    """The rank that it waited for."""
    seconds: float
    times: int


class PathEntry(NamedTuple):
    """An operation on the critical path."""

    name: str
    step: int
    thread: str
    seconds: float
    """What it took."""
    gap: float
    """Seconds between the end of the one before it and its begin."""
    call_site: str


@dataclass(frozen=True)
class TraceSummary:
    """Where the time of a trace went; `str` gives tables.

    Attributes
    ----------
    seconds
        The time that the trace covers: from the submission of the run, where that is known, to the last end.
    steps
        How many steps.
    threads
        Where the time of each thread went. Devices are left out.
    waits
        What waited for what, the longest first.
    critical_path
        Operations, the first one first: each began when the one before it had ended, because it comes after that one
        or because the thread was busy with it. A shorter step needs a change to one of them.
    rank_waits
        Which rank waited for which, the longest first; nothing where there is one rank.
    """

    seconds: float
    steps: int
    threads: tuple[ThreadTime, ...]
    waits: tuple[WaitTime, ...]
    critical_path: tuple[PathEntry, ...]
    rank_waits: tuple[RankWait, ...] = ()

    def __str__(self) -> str:
        head = f"{counted(self.steps, 'step')} in {duration(self.seconds * 1e9)}"
        return "\n".join([head, "", *self._threads(), *self._rank_waits(), *self._waits(), "", *self._path()])

    def __repr__(self) -> str:
        return f"<TraceSummary: {counted(self.steps, 'step')} in {duration(self.seconds * 1e9)}>"

    def _threads(self) -> Iterator[str]:
        rows = [[row.name, *map(format_seconds, row[1:])] for row in self.threads]
        yield from _aligned([["time in µs", "work", "waiting", "publishing", "starting", "idle"], *rows])

    def _rank_waits(self) -> Iterator[str]:
        if self.rank_waits:
            yield ""
            rows = [
                [format_seconds(each.seconds), f"rank {each.rank}", f"rank {each.awaited}", str(each.times)]
                for each in self.rank_waits[:_MOST]
            ]
            yield from _aligned([["µs", "waiting", "for", "times"], *rows])
        if len(self.rank_waits) > _MOST:
            yield f"and {len(self.rank_waits) - _MOST} more"

    def _waits(self) -> Iterator[str]:
        if self.waits:
            yield ""
            rows = [
                [
                    format_seconds(each.seconds),
                    f"{each.name} on {each.thread}",
                    f"{each.awaited} on {each.on}",
                    str(each.times),
                ]
                for each in self.waits[:_MOST]
            ]
            yield from _aligned([["µs", "waiting", "for", "times"], *rows])
        if len(self.waits) > _MOST:
            yield f"and {len(self.waits) - _MOST} more"

    def _path(self) -> Iterator[str]:
        work = sum(each.seconds for each in self.critical_path)
        yield f"critical path: {counted(len(self.critical_path), 'operation')}, {duration(work * 1e9)} of work"
        entries = [
            [
                format_seconds(each.gap),
                format_seconds(each.seconds),
                each.name,
                str(each.step),
                each.thread,
                each.call_site,
            ]
            for each in self.critical_path
        ]
        lines = list(_aligned([["gap µs", "took µs", "operation", "step", "on", "at"], *entries]))
        if len(entries) > 2 * _ENDS:
            lines[1 + _ENDS : -_ENDS] = [f"... {len(entries) - 2 * _ENDS} more ..."]
        yield from lines


def format_seconds(seconds: float) -> str:
    """Return seconds as microseconds, without a unit."""
    return micros(round(seconds * 1e9))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with their columns side by side; columns of numbers end in one place."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    right = [all(row[place][:1].isdigit() for row in rows[1:]) for place in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()


class Sources(NamedTuple):
    """By record of a trace: the record that ended last of all that it comes after; -1: there is none."""

    latest: NDArray[np.int64]
    elsewhere: NDArray[np.int64]
    """The same of those that ran on other threads or devices."""


def find_sources(trace: Trace) -> Sources:
    """Return what the operations of a trace waited for last."""
    records, edges = trace.records, trace.edges
    none = np.full(len(records), -1, np.int64)
    latest, elsewhere = none.copy(), none.copy()
    if not len(records) or not len(edges.src):
        return Sources(latest, elsewhere)
    ops = len(trace.op_names)
    steps = records["step"] - records["step"].min()
    keys = steps.astype(np.int64) * ops + records["op"]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begin = np.searchsorted(edges.dst, np.arange(ops + 1))
    first, last = begin[records["op"]], begin[records["op"] + 1]
    for place in range(int(np.diff(begin).max(initial=0))):  # the first source of every record, then the second
        own = np.flatnonzero(first + place < last)
        edge = first[own] + place
        wanted = keys[own] - records["op"][own] + edges.src[edge] - edges.distance[edge].astype(np.int64) * ops
        at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        there = ordered[at] == wanted
        own, source = own[there], order[at[there]]
        away = records["thread"][own] != records["thread"][source]
        for found, kept in ((latest, np.ones(len(own), np.bool_)), (elsewhere, away)):
            mine, other = own[kept], source[kept]
            later = (found[mine] < 0) | (records["end"][other] > records["end"][found[mine]])
            found[mine[later]] = other[later]
    return Sources(latest, elsewhere)


class Gaps(NamedTuple):
    """What threads did between operations, by record: times in ns."""

    order: NDArray[np.int64]
    """The records of threads, thread by thread in the order of their begins."""
    before: NDArray[np.int64]
    """The record that its thread ran before, or -1."""
    since: NDArray[np.int64]
    """When its thread had nothing to do any more."""
    ready: NDArray[np.int64]
    """When the operations that it waited for had ended, or its message was there; `since` if that was before."""


def find_gaps(trace: Trace, sources: Sources) -> Gaps:
    """Return the gaps before the operations of threads; devices have none."""
    records = trace.records
    on_thread = ~np.isin(records["thread"], list(trace.devices))
    order = np.lexsort((records["end"], records["start"], records["thread"]))
    order = order[on_thread[order]].astype(np.int64)
    before = np.full(len(records), -1, np.int64)
    same = records["thread"][order[1:]] == records["thread"][order[:-1]]
    before[order[1:]] = np.where(same, order[:-1], -1)
    origin = trace.begin
    since = np.where(before >= 0, records["end"][before], origin)
    since = np.minimum(since, records["start"])
    source = sources.elsewhere
    ready = np.where(source >= 0, records["end"][source], since)
    if len(trace.messages):  # they take time, too: one that a thread waits for is there when its receive begins
        receives = np.isin(records["op"], trace.messages[:, 1])
        ready = np.where((source >= 0) & receives, records["start"], ready)
    return Gaps(order, before, since, np.clip(ready, since, records["start"]))


def summarise(trace: Trace) -> TraceSummary:
    """Return where the time of a trace went."""
    records = trace.records
    if not len(records):
        return TraceSummary(0.0, 0, (), (), ())
    sources = find_sources(trace)
    gaps = find_gaps(trace, sources)
    end = int(records["end"].max())
    begin = min(trace.begin, int(records["start"].min()))
    tells = np.zeros(len(trace.op_names), np.bool_)
    awaited = sources.elsewhere[sources.elsewhere >= 0]
    tells[records["op"][awaited]] = True
    waiting = gaps.ready - gaps.since
    rest = records["start"] - gaps.ready
    publishes = (gaps.before >= 0) & tells[records["op"][gaps.before]]
    threads = []
    for thread in np.unique(records["thread"][gaps.order]).tolist():
        own = gaps.order[records["thread"][gaps.order] == thread]
        covered = np.maximum.accumulate(records["end"][own])
        starts = np.maximum(records["start"][own], np.concatenate([[0], covered[:-1]]))
        work = int(np.maximum(records["end"][own] - starts, 0).sum())
        parts = [
            work,
            int(waiting[own].sum()),
            int(rest[own][publishes[own]].sum()),
            int(rest[own][~publishes[own]].sum()),
        ]
        idle = max(end - begin - sum(parts), 0)
        threads.append(ThreadTime(trace.row_name(thread), *(part * 1e-9 for part in [*parts, idle])))
    return TraceSummary(
        (end - begin) * 1e-9,
        len(np.unique(records["step"])),
        tuple(threads),
        _waits(trace, sources, gaps, waiting),
        _critical_path(trace, sources, gaps),
        _rank_waits(trace, sources, gaps, waiting),
    )


def _waits(trace: Trace, sources: Sources, gaps: Gaps, waiting: NDArray[np.int64]) -> tuple[WaitTime, ...]:
    records, found = trace.records, {}  # type: tuple[NDArray[np.void], dict[tuple[str, str, str, str], list[int]]]
    for each in gaps.order[waiting[gaps.order] > 0].tolist():
        source = int(sources.elsewhere[each])
        key = (
            one_line(trace.op_names[records["op"][each]]),
            one_line(trace.op_names[records["op"][source]]),
            trace.row_name(int(records["thread"][each])),
            trace.row_name(int(records["thread"][source])),
        )
        total = found.setdefault(key, [0, 0])
        total[0] += int(waiting[each])
        total[1] += 1
    ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(WaitTime(*key, ns * 1e-9, count) for key, (ns, count) in ranked)


def _rank_waits(trace: Trace, sources: Sources, gaps: Gaps, waiting: NDArray[np.int64]) -> tuple[RankWait, ...]:
    if not trace.ranks:
        return ()
    threads, found = trace.records["thread"].tolist(), {}  # type: list[int], dict[tuple[int, int], list[int]]
    for each in gaps.order[waiting[gaps.order] > 0].tolist():
        pair = trace.rank_of(threads[each]), trace.rank_of(threads[int(sources.elsewhere[each])])
        if pair[0] != pair[1]:
            total = found.setdefault(pair, [0, 0])
            total[0] += int(waiting[each])
            total[1] += 1
    ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(RankWait(*pair, ns * 1e-9, count) for pair, (ns, count) in ranked)


def _critical_path(trace: Trace, sources: Sources, gaps: Gaps) -> tuple[PathEntry, ...]:
    """Go back from the operation that ended last, each time to what kept the operation from beginning."""
    records = trace.records
    ends, starts = records["end"].tolist(), records["start"].tolist()
    latest, before = sources.latest.tolist(), gaps.before.tolist()
    at, path = int(records["end"].argmax()), []
    while at >= 0:
        # What ends later than it begins did not keep it: clocks of devices differ.
        causes = [each for each in (latest[at], before[at]) if each >= 0 and starts[each] < starts[at]]
        cause = max(causes, key=ends.__getitem__, default=-1)
        gap = starts[at] - (ends[cause] if cause >= 0 else min(trace.begin, starts[at]))
        op, step, thread = (int(records[name][at]) for name in ("op", "step", "thread"))
        taken, site = (ends[at] - starts[at]) * 1e-9, trace.op_sites[op]
        name, where = one_line(trace.op_names[op]), trace.row_name(thread)
        path.append(PathEntry(name, step, where, taken, max(gap, 0) * 1e-9, site))
        at = cause
    return tuple(reversed(path))
