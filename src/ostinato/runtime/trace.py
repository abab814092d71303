"""Traces of runs, and of the whole process (``OSTINATO_TRACE=path``), and what ops took in a trace."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import math
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.costs import ESTIMATED, Costed, Costing, Costs, estimate, median_and_spread
from ostinato.compiler.inserted import InstanceCopy
from ostinato.compiler.ir import edges_of
from ostinato.compiler.summary import Summary
from ostinato.graph.body import Copy, Inserted
from ostinato.graph.messages import Message
from ostinato.graph.op import Op
from ostinato.graph.variant import Variant, variants_of
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato.compiler.ir import Edges, Executable, Step
    from ostinato.graph.messages import Group
    from ostinato.runtime.engine import Engine
    from ostinato.runtime.workers import Workers
    from ostinato.view.trace import Trace

_CORE_RECORD = np.dtype(
    [
        ("op", np.uint32),
        ("slot", np.uint32),
        ("step", np.uint64),
        ("start", np.int64),
        ("end", np.int64),
        ("status", np.uint64),
        ("issued", np.int64),
    ]
)  # as in core/program/trace.h


_SKIPPED = 2  # the least status of what was not run


def read_records(run: _core.Run, ops: int) -> Iterator[tuple[int, np.ndarray[Any, Any], int]]:
    """Yield the records of each lane of a traced run that has ended, and how many did not fit."""
    for lane, (data, lost) in enumerate(run.trace_records()):
        found = np.frombuffer(data, _CORE_RECORD)
        yield lane, found[found["op"] < ops], lost  # not the barrier between steps


def make_trace(run: _core.Run, executable: Executable, workers: Workers) -> Trace:
    """Return the trace of a traced run that has ended."""
    from ostinato.view.trace import RECORD, Trace

    waits = np.zeros(len(executable.step.nodes), bool)
    waits[[index for index, _ in executable.step.streams.fences]] = True
    processors = enumerate(workers.processors) if executable.step.uses_devices else ()
    parts = list(read_records(run, len(executable.step.nodes)))
    found = np.concatenate([np.empty(0, _CORE_RECORD), *(part for _, part, _ in parts)])
    lanes = np.repeat([lane for lane, _, _ in parts], [len(part) for _, part, _ in parts])
    order = np.lexsort((found["op"], found["step"]))
    found, lanes = found[order], lanes[order]
    if executable.step.uses_devices:
        set_starts(found, find_ready(found, executable, run.submitted))
    shown = (found["status"] < _SKIPPED) & ~waits[found["op"]]
    records = np.empty(np.count_nonzero(shown), RECORD)
    for field in ("op", "step", "start", "end", "issued"):
        records[field] = found[field][shown]
    records["thread"] = found["slot"][shown]
    records["lane"] = lanes[shown]
    return Trace(
        records[np.argsort(records["start"], kind="stable")],
        [op.name for op in executable.step.nodes],
        [str(op.call_site) for op in executable.step.nodes],
        [f"cpu:{home}" for home in run.affinities],
        sum(lost for _, _, lost in parts),
        [op.variant.label if op.variant else "" for op in executable.step.nodes],
        {number: processor.name for number, processor in processors if processor.device is not None},
        [isinstance(op.body, Inserted) for op in executable.step.nodes],
        [isinstance(op.body, Copy | InstanceCopy) for op in executable.step.nodes],
        _edges_of(executable.step),
        run.submitted,
    )


def gather_traces(own: Trace, nodes: Sequence[Op], group: Group, channels: Sequence[_core.messages.Channel]) -> Trace:
    """Return the trace of all ranks, given what this one has recorded. All ranks call it."""
    from ostinato.ranks.clocks import name_clock
    from ostinato.view.trace_of_ranks import EndOfMessage, PartOfTrace, join_traces

    slots = {(each.sends, each.peer, each.number): each.slots if each.is_shared else 0 for each in channels}
    numbers: dict[tuple[bool, int], int] = {}
    ends = []
    for op in nodes:
        if isinstance(op.body, Message):
            direction = op.body.sends, op.body.peer
            number = numbers[direction] = numbers.get(direction, -1) + 1
            ends.append(EndOfMessage(op.index, *direction, slots.get((*direction, number), 0)))
    name = name_clock()
    clocks = group.agreement.gather(name.encode(), "traces a program")
    same = bool(name) and clocks[0] == clocks[group.rank]
    ahead, error = (0, 0) if same or group.rank == 0 else group.agreement.compare_clocks()
    room = _MOST_RECORDS // group.size
    left_out = max(len(own) - room, 0)
    own = dataclasses.replace(own, records=own.records[:room], dropped=own.dropped + left_out)
    part = PartOfTrace(own, tuple(ends), ahead, error)
    parts = group.agreement.gather(pickle.dumps(part), "traces a program")
    return join_traces([pickle.loads(each) for each in parts], group.rank)


def _edges_of(step: Step) -> Edges:
    """Return the dependences of a step, with those that lead through fences from what the fence waits for."""
    edges = step.edges
    of_fence = {index: np.flatnonzero(edges.dst == index) for index, _ in step.streams.fences}
    if not of_fence:
        return edges
    through = [
        (edges.src[each], edges.dst[after], edges.distance[each] + edges.distance[after])
        for index, before in of_fence.items()
        for after in np.flatnonzero(edges.src == index).tolist()
        for each in before.tolist()
    ]
    more = np.array(through, np.int32).reshape(-1, 3).T
    return edges_of(len(step.nodes), *(np.concatenate(pair) for pair in zip(edges, more, strict=True)))


def set_starts(found: np.ndarray[Any, Any], ready: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    """Have the work of devices start when all is done that it waits for there: its stream did nothing before."""
    on_device = found["issued"] > 0
    later = np.maximum(found["start"], np.minimum(ready, found["end"]))
    found["start"] = np.where(on_device, later, found["start"])


def find_ready(
    found: np.ndarray[Any, Any], executable: Executable, submitted: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
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
        self._running: list[tuple[Engine, _core.Run]] = []
        self._traces: list[list[Trace]] = []  # program by program, each run by run
        # By the lanes that it had: it may have been retuned.
        self._of_program: weakref.WeakKeyDictionary[Engine, dict[tuple[str, ...], list[Trace]]]
        self._of_program = weakref.WeakKeyDictionary()
        self._room = _MOST_RECORDS
        self._rank = 0

    def watch(self, engine: Engine, run: _core.Run) -> None:
        """Keep the trace of a run, which may still be going on."""
        with self._lock:
            if engine.group is not None:
                self._rank = engine.group.rank
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
        path = self._path
        if self._rank:  # ranks have one environment
            stem, suffix = os.path.splitext(path)
            path = f"{stem}.rank{self._rank}{suffix}"
        try:
            trace.save(traces, path)
        except OSError as error:  # the process is ending: nobody is left to catch it
            print(f"ostinato: OSTINATO_TRACE was not written to {path}: {error}", file=sys.stderr)

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


@functools.cache
def process_trace() -> ProcessTrace:
    """Return what traces this process, whose environment asks for it."""
    traced = ProcessTrace(os.environ["OSTINATO_TRACE"])
    atexit.register(traced.save)
    return traced


_MOST_OVERHEAD = 60  # ns: a gap that is longer is not the clock's alone


def costing_of_trace(trace: Trace) -> Costing:
    """Return the costing that knows what ops took in a trace of the same graph, and lets them run the same variants."""

    from ostinato.compiler.variants import replace_variants  # here: few programs get the costs of a trace
    from ostinato.view.trace_of_ranks import part_of

    trace = part_of(trace, trace.rank)

    def costed(summary: Summary) -> Costed:
        ops, traced = summary.ops, _of_graph(trace)
        looks = [(op.name, str(op.call_site)) for op in ops]
        if looks != [(trace.op_names[place], trace.op_sites[place]) for place in traced]:
            raise ValueError(
                f"costs must be a trace of this graph, of {counted(len(ops), 'op')}, got one of another graph, of "
                f"{counted(len(traced), 'op')}, or with other names or lines"
            )
        chosen = _variants(trace, ops, traced)
        # A trace does not say what they were held to.
        ran = replace_variants(ops, chosen, dict.fromkeys(chosen, math.inf))
        return Costed(ran, durations(trace, estimate(ran), "traced", traced))

    return costed


def _of_graph(trace: Trace) -> list[int]:
    """Return the ops of a trace that are the graph's, in its order: not those that compiling added."""
    added = trace.added or [False] * len(trace.op_names)
    return [place for place, is_added in enumerate(added) if not is_added]


def _variants(trace: Trace, ops: tuple[Op, ...], traced: Sequence[int]) -> dict[int, Variant]:
    """Return the variants that ops ran in a trace, by index."""
    found = {}
    for index, place in enumerate(traced if len(trace.op_variants) else ()):
        if label := trace.op_variants[place]:
            variant = next((each for each in variants_of(ops[index].recorded) if each.label == label), None)
            if variant is None:
                raise ValueError(
                    f"costs must be a trace of variants that are declared, got {ops[index].name!r} as {label}"
                )
            found[index] = variant
    return found


def durations(trace: Trace, costs: Costs, source: str, traced: Sequence[int] | None = None) -> Costs:
    """Return costs with what was traced in place of what was known: medians over the steps, and their spread.

    `traced` says which op of the trace each op is; None: the trace has the same ones.
    """
    seconds, spread, origin = costs.seconds.copy(), costs.spread.copy(), costs.source.copy()
    sources = costs.sources if source in costs.sources else (*costs.sources, source)
    overhead = _overhead(trace)
    index = None if traced is None else {place: op for op, place in enumerate(traced)}
    for place, taken in _by_op(trace):
        op = place if index is None else index.get(place, -1)
        if op < 0:
            continue
        ns, spread[op] = median_and_spread(np.maximum(taken - overhead, 1))
        seconds[op] = ns * 1e-9
        origin[op] = sources.index(source)
    return Costs(seconds, spread, origin, sources if len(sources) > 1 else (ESTIMATED,), costs.notes)


def _overhead(trace: Trace) -> int:
    """Return the ns of a record that are the clock's.

    Where one op follows the other at once, what lies between their records is the end of one look at the clock and the
    begin of the next; the other halves are within the records.
    """
    on_cpus = trace.records[trace.records["issued"] == 0]  # devices have clocks of their own
    records = np.sort(on_cpus, order=("thread", "start"))
    same = records["thread"][1:] == records["thread"][:-1]
    gaps = (records["start"][1:] - records["end"][:-1])[same]
    short = gaps[(gaps >= 0) & (gaps <= _MOST_OVERHEAD)]
    return int(short.min()) if len(short) else 0


def _by_op(trace: Trace) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return the ns that each traced op took, step by step."""
    records = trace.records
    order = np.argsort(records["op"], kind="stable")
    ops, begin = np.unique(records["op"][order], return_index=True)
    taken = (records["end"] - records["start"])[order]
    return list(zip(ops.tolist(), np.split(taken, begin[1:]) if len(ops) else (), strict=True))
