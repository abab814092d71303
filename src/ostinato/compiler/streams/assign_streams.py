"""Which device work goes along which stream, and the lanes that issue it and wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from math import nextafter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.compiler.coherence.coherent_ops import Transferred
from ostinato.compiler.coherence.memories import HOST
from ostinato.compiler.ir import Edges, IntArray, Placement, edges_of
from ostinato.compiler.schedule.lanes import lags_of, split
from ostinato.graph.arrays import HOST as HOST_MEMORY
from ostinato.graph.arrays import memory_of
from ostinato.graph.body import Copy, Join

if TYPE_CHECKING:
    from ostinato.compiler.streams.fences import Completion
    from ostinato.graph.op import Op

__all__ = ["INTO", "OUT", "WORK", "Streams", "alone", "host_lanes", "laned", "streams_of", "told_at_once", "with_joins"]

Completions: TypeAlias = "Sequence[tuple[int, Completion]]"
"""Completions, each with its index among the ops."""

MOST_TOLD_APART = 16
"""So many waits for devices are told apart where lanes are split by them, and so many lanes may come of it; else those
for one device count as one."""

WORK, INTO, OUT = range(3)
"""What a stream is for: kernels, fills and copies within the device; copies to it; copies from it."""


class Streams(NamedTuple):
    """Streams, and which ops are in their order."""

    of: IntArray
    """By op, its stream, or -1."""
    device: IntArray
    """By stream, its device: a place among those of the machine."""
    purpose: IntArray
    """By stream, what it is for: `WORK`, `INTO` or `OUT`."""

    @classmethod
    def none(cls, ops: int) -> Streams:
        """Return what there is where none of so many ops uses devices."""
        nothing = np.zeros(0, np.int32)
        return cls(np.full(ops, -1, np.int32), nothing, nothing)

    def over(self, ops: int) -> Streams:
        """Return the streams among so many ops, of which those that were added are in none."""
        return self._replace(of=np.append(self.of, np.full(ops - len(self.of), -1, np.int32)))


def with_joins(ops: Sequence[Op], ordering: Edges, device: IntArray) -> IntArray:
    """Return the devices of ops with those of joins behind device work: what is behind these can run ahead, too."""
    found = device.copy()
    joins = [op.index for op in ops if isinstance(op.body, Join)]
    changed = bool(joins)
    while changed:
        changed = False
        for join in joins:
            low, high = np.searchsorted(ordering.dst, [join, join + 1])
            before = np.unique(found[ordering.src[low:high]])
            before = before[before >= 0]
            if found[join] < 0 and len(before) == 1:
                found[join] = before[0]
                changed = True
    return found


def streams_of(
    ops: Sequence[Op],
    ordering: Edges,
    device: IntArray,
    outside: npt.NDArray[np.bool_],
    used: Sequence[int] = (),
) -> Streams:
    """Return the streams of device work: of each device one for kernels, one for copies to it and one for those back.

    Work that comes after other waits for something outside (events, barriers, reservations, tasks that may block), or
    after these in other steps, has streams of its own: in the order of one stream, it would be held up by what it does
    not need. See `lanes.split`, which has nothing left to split in lanes that are made of these.

    Parameters
    ----------
    ops, ordering
        The ops of a flat graph, and all edges that order them.
    device
        By op, the device whose stream it enqueues work on, or -1.
    outside
        By op, whether it waits for something outside.
    used
        Devices that need a stream even if no op does: for what is copied home at the end of a run.
    """
    ordered = np.flatnonzero(device >= 0)
    held_up = np.zeros(len(ops), np.int32)
    if outside.any():
        held_up[:] = lags_of(len(ops), ordering, outside).kinds()
    purpose = np.array([_purpose(ops[op]) for op in ordered.tolist()], np.int32)
    key = np.column_stack([device[ordered], purpose, held_up[ordered]])
    found, first, which = np.unique(key, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(found), np.int32)  # streams are numbered by their first ops
    rank[np.argsort(first)] = np.arange(len(found))
    of = np.full(len(ops), -1, np.int32)
    of[ordered] = rank[which.reshape(-1)]
    by_rank = np.empty((len(found), 2), np.int32)
    by_rank[rank] = found[:, :2]
    more = sorted(set(used) - set(by_rank[:, 0].tolist()))
    devices = np.append(by_rank[:, 0], np.array(more, np.int32))
    return Streams(of, devices, np.append(by_rank[:, 1], np.full(len(more), OUT, np.int32)))


def laned(completions: Completions, placement: Placement, streams: Streams) -> Placement:
    """Return the placement with two more lanes for each stream: one that issues its work, and one that waits for it.

    Both are served first by the thread that the stream's first op was placed on.
    """
    if not len(streams.device):
        return placement
    lanes = len(placement.home)
    lane = placement.lane.copy()
    members = np.flatnonzero(streams.of >= 0)
    waits = np.zeros(len(lane), np.int32)
    waits[[index for index, _ in completions]] = 1
    lane[members] = lanes + 2 * streams.of[members] + waits[members]
    _, first = np.unique(streams.of[members], return_index=True)
    home = np.repeat(placement.home[placement.lane[members[first]]], 2)
    return _without_empty(
        placement._replace(
            lane=lane.astype(np.int32),
            home=np.append(placement.home, home).astype(np.int32),
            pinned=np.append(placement.pinned, np.zeros(len(home), np.bool_)),
        )
    )


def told_at_once(completions: Completions, order: IntArray) -> IntArray:
    """Return the order with each completion right after the last op that it is for."""
    if not completions:
        return order
    at = np.empty(len(order))
    at[order] = np.arange(len(order))
    place = at.tolist()
    for index, completion in completions:
        place[index] = nextafter(max([place[op] for op in completion.of]), len(order))
    return np.argsort(np.array(place), kind="stable").astype(np.int32)


def alone(streams: Streams, placement: Placement) -> Placement:
    """Return the placement with nothing but device work on the lanes that issue it.

    What is issued in order the device keeps in order. What else stood between would be taken to come after the device.
    """
    members = np.flatnonzero(streams.of >= 0)
    lane, lanes = placement.lane.copy(), len(placement.home)
    issuing = np.zeros(lanes, np.bool_)
    issuing[lane[members]] = True
    others = np.flatnonzero(issuing[lane] & (streams.of < 0))
    if not len(others):
        return placement
    left, own = np.unique(lane[others], return_inverse=True)
    lane[others] = lanes + own.reshape(-1)
    return placement._replace(
        lane=lane,
        home=np.concatenate([placement.home, placement.home[left]]).astype(np.int32),
        pinned=np.concatenate([placement.pinned, np.zeros(len(left), np.bool_)]),
    )


def host_lanes(
    completions: Completions, edges: Edges, placement: Placement, order: IntArray, streams: Streams
) -> Placement:
    """Return the placement with lanes of the host split where their order would have ops wait for devices for nothing.

    So the next image is decoded while a device works on this one, which is encoded when the device is done.
    """
    if not completions:
        return placement
    n = len(streams.of)
    followed = set(edges.src[streams.of[edges.dst] < 0].tolist())
    waits = np.array([op for op, each in completions if each.waits and op in followed], np.int32)
    if not len(waits):
        return placement
    if len(waits) <= MOST_TOLD_APART:
        outside = np.zeros(n, np.bool_)
        outside[waits] = True
        found = _split(edges, placement, order, streams, outside)
        if len(found.home) <= len(placement.home) + MOST_TOLD_APART:
            return found
    devices = streams.device[streams.of[waits]]
    used, first = np.unique(devices, return_inverse=True)  # one more op each, that all waits for a device come after
    more = len(used)
    wider = edges_of(
        n + more,
        np.concatenate([edges.src, n + first.reshape(-1)]),
        np.concatenate([edges.dst, waits]),
        np.concatenate([edges.distance, np.zeros(len(waits), np.int32)]),
    )
    added = np.arange(more, dtype=np.int32)
    with_more = placement._replace(
        lane=np.append(placement.lane, len(placement.home) + added).astype(np.int32),
        home=np.append(placement.home, 0 * added).astype(np.int32),
        pinned=np.append(placement.pinned, np.zeros(more, np.bool_)),
    )
    outside = np.append(np.zeros(n, np.bool_), np.ones(more, np.bool_))
    in_order = np.append(n + added, order).astype(np.int32)
    found = _split(wider, with_more, in_order, streams.over(n + more), outside)
    return _without_empty(found._replace(lane=found.lane[:n]))


def _split(
    edges: Edges, placement: Placement, order: IntArray, streams: Streams, outside: npt.NDArray[np.bool_]
) -> Placement:
    """Split the lanes of the host by waits."""
    found = split(edges, placement, order, outside, np.zeros(len(outside), np.bool_))
    old = len(placement.home)
    return _without_empty(
        placement._replace(
            lane=np.where(streams.of >= 0, placement.lane, old + found.lane).astype(np.int32),
            home=np.append(placement.home, found.home).astype(np.int32),
            pinned=np.append(placement.pinned, found.pinned),
        )
    )


def _without_empty(placement: Placement) -> Placement:
    left, renumbered = np.unique(placement.lane, return_inverse=True)
    return placement._replace(
        lane=renumbered.reshape(-1).astype(np.int32), home=placement.home[left], pinned=placement.pinned[left]
    )


def _purpose(op: Op) -> int:
    body = op.body
    if isinstance(body, Transferred):
        source, target = body.source, body.target
    elif isinstance(body, Copy):
        memories = (memory_of(operand.arrays[0]) for operand in (body.source, body.target))
        source, target = (HOST if memory == HOST_MEMORY else 0 for memory in memories)
    else:
        return WORK
    return OUT if target == HOST else INTO if source == HOST else WORK
