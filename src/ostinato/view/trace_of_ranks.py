"""Join the records of several ranks into one trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ostinato.compiler.ir import Edges, edges_of
from ostinato.view.trace import RankOfTrace, Trace


class EndOfMessage(NamedTuple):
    """An operation that sends or receives."""

    op: int
    sends: bool
    peer: int
    slots: int
    """How many messages the memory between two ranks of a host holds; 0: something else carries them."""


class PartOfTrace(NamedTuple):
    """The records of one rank. Messages are in program order."""

    trace: Trace
    messages: tuple[EndOfMessage, ...]
    ahead: int
    """How many ns the clock of rank 0 is ahead."""
    clock_error: int
    """By how much that may be wrong; -1: nothing is known."""


def join_traces(parts: Sequence[PartOfTrace], rank: int) -> Trace:
    """Return the trace of all ranks, by the clock of rank 0, given the part of each, on one of them."""
    ranks = _ranks(parts)
    traces = [part.trace for part in parts]
    messages, room = _pair(parts, ranks)
    records = np.concatenate([_moved(*each) for each in zip(parts, ranks, strict=True)])
    records = records[np.argsort(records["start"], kind="stable")]
    ops = sum(len(trace.op_names) for trace in traces)
    columns = [
        (trace.edges.src + rank.op, trace.edges.dst + rank.op, trace.edges.distance)
        for trace, rank in zip(traces, ranks, strict=True)
    ]
    columns.append((messages[:, 0], messages[:, 1], np.zeros(len(messages), np.int32)))
    columns.append((room[:, 0], room[:, 1], room[:, 2]))
    submitted = [part.trace.submitted + part.ahead for part in parts if part.trace.submitted]
    return Trace(
        records,
        [name for trace in traces for name in trace.op_names],
        [site for trace in traces for site in trace.op_sites],
        [processor for trace in traces for processor in trace.lane_processors],
        sum(trace.dropped for trace in traces),
        [label for trace in traces for label in trace.op_variants or [""] * len(trace.op_names)],
        {thread + r.thread: name for t, r in zip(traces, ranks, strict=True) for thread, name in t.devices.items()},
        [added for trace in traces for added in trace.added or [False] * len(trace.op_names)],
        [copies for trace in traces for copies in trace.copies or [False] * len(trace.op_names)],
        edges_of(ops, *(np.concatenate(column) for column in zip(*columns, strict=True))),
        min(submitted, default=0),
        ranks,
        messages,
        rank,
    )


def part_of(trace: Trace, rank: int) -> Trace:
    """Return the part of one rank of a trace of several, numbered as on that rank."""
    if not trace.ranks:
        return trace
    own = trace.ranks[rank]
    end = trace.ranks[rank + 1] if rank + 1 < len(trace.ranks) else RankOfTrace(2**31, len(trace.op_names), 2**31)
    records = trace.records[(trace.records["op"] >= own.op) & (trace.records["op"] < end.op)]
    for field, by in (("thread", own.thread), ("op", own.op), ("lane", own.lane)):
        records[field] -= by
    edges = trace.edges
    within = (np.minimum(edges.src, edges.dst) >= own.op) & (np.maximum(edges.src, edges.dst) < end.op)
    ops = slice(own.op, end.op)
    return dataclasses.replace(
        trace,
        records=records,
        op_names=trace.op_names[ops],
        op_sites=trace.op_sites[ops],
        lane_processors=trace.lane_processors[own.lane : end.lane],
        op_variants=trace.op_variants[ops],
        devices={number - own.thread: name for number, name in trace.devices.items() if trace.rank_of(number) == rank},
        added=trace.added[ops],
        copies=trace.copies[ops],
        edges=Edges(edges.src[within] - own.op, edges.dst[within] - own.op, edges.distance[within]),
        ranks=(),
        messages=trace.messages[:0],
        rank=0,
    )


def _ranks(parts: Sequence[PartOfTrace]) -> tuple[RankOfTrace, ...]:
    thread = op = lane = 0
    found = []
    for part in parts:
        found.append(RankOfTrace(thread, op, lane, part.clock_error))
        trace = part.trace
        homes = (int(processor.rpartition(":")[2]) for processor in trace.lane_processors)
        thread += max([*trace.records["thread"].tolist(), *trace.devices, *homes], default=0) + 1
        op += len(trace.op_names)
        lane += len(trace.lane_processors)
    return tuple(found)


def _moved(part: PartOfTrace, rank: RankOfTrace) -> NDArray[np.void]:
    records = part.trace.records.copy()
    for field, by in (("thread", rank.thread), ("op", rank.op), ("lane", rank.lane)):
        records[field] += by
    records["start"] += part.ahead
    records["end"] += part.ahead
    records["issued"] += np.where(records["issued"] > 0, part.ahead, 0)
    return records


def _pair(parts: Sequence[PartOfTrace], ranks: Sequence[RankOfTrace]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the messages as (send, receive), and what frees memory for them as (receive, send, steps).

    The receive of a step frees memory for the send so many steps later.
    """
    sent = dict(_ends(parts, ranks, sends=True))
    pairs = [(sent[key], end) for key, end in _ends(parts, ranks, sends=False) if key in sent]
    messages = [(send, receive) for (send, _), (receive, _) in pairs]
    room = [(receive, send, slots) for (send, slots), (receive, _) in pairs if slots]
    return np.array(messages, np.int32).reshape(-1, 2), np.array(room, np.int32).reshape(-1, 3)


def _ends(
    parts: Sequence[PartOfTrace], ranks: Sequence[RankOfTrace], sends: bool
) -> Iterator[tuple[tuple[int, int, int], tuple[int, int]]]:
    """Yield by sender, receiver and number the operation that is this end of a channel, and how many slots that has."""
    for here, part in enumerate(parts):
        count: dict[int, int] = {}
        for op, is_send, peer, slots in part.messages:
            if is_send == sends:
                number = count[peer] = count.get(peer, -1) + 1
                yield ((here, peer, number) if sends else (peer, here, number)), (ranks[here].op + op, slots)
