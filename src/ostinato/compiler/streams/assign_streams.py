"""Streams: which device work goes along which, and the lanes that issue it and wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import nextafter
from typing import TYPE_CHECKING

import numpy as np

from ostinato.compiler.inserted import InstanceCopy
from ostinato.compiler.ir import (
    HOST,
    INTO,
    OUT,
    WORK,
    Edges,
    IntArray,
    Mask,
    Placement,
    Step,
    Streams,
    Target,
    edges_of,
)
from ostinato.compiler.schedule.lanes import find_iteration_distances, split
from ostinato.graph.arrays import HOST as HOST_MEMORY
from ostinato.graph.arrays import memory_of
from ostinato.graph.body import Copy, Join

if TYPE_CHECKING:
    from ostinato.graph.op import Op

MOST_WAITS = 16
"""Host lanes are split by each wait for a device if there are at most so many, and at most so many lanes come of it;
else all waits for one device count as one."""

MOST_BETWEEN_STEPS = 4096
"""Steps that begin when the one before has ended are chained by edges if these are at most so many."""


def chain_steps(step: Step, target: Target) -> Step:
    """Let each step begin when the one before has ended by edges instead of a barrier, if these are not too many.

    Along such an edge between work on one device, the device keeps the order, and the host goes on.
    """
    if not step.serial:
        return step
    every, inside = np.arange(len(step.nodes), dtype=np.int32), step.ordering.within_a_step()
    last, first = np.setdiff1d(every, inside.src), np.setdiff1d(every, inside.dst)
    if len(last) * len(first) > MOST_BETWEEN_STEPS:
        return step
    pairs = np.array(list(product(last, first)), np.int32).reshape(-1, 2).T
    both = zip(step.ordering, (*pairs, np.ones(pairs.shape[1], np.int32)), strict=True)
    return replace(step, ordering=edges_of(len(step.nodes), *map(np.concatenate, both)), serial=False)


def assign_streams(step: Step, target: Target) -> Step:
    """Return the step with the streams of its nodes: see `streams_of`."""
    nodes = step.nodes
    in_order = np.array([node.body.keeps_stream_order for node in nodes], np.bool_)
    outside = np.array([node.body.waits_outside for node in nodes], np.bool_)
    device = with_joins(nodes, step.ordering, np.where(in_order, step.device, -1).astype(np.int32))
    used = [each.device for each in step.coherence.write_backs]
    return replace(step, streams=streams_of(nodes, step.ordering, device, outside, used))


def with_joins(ops: Sequence[Op], ordering: Edges, device: IntArray) -> IntArray:
    """Return the devices of ops, and of joins behind work of one device: so nodes behind these can run ahead, too."""
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
    ops: Sequence[Op], ordering: Edges, device: IntArray, outside: Mask, used: Sequence[int] = ()
) -> Streams:
    """Return the streams of device work: of each device one for kernels, one for copies to it and one for those back.

    Work that comes after other waits for something outside (events, barriers, reservations, tasks that may block), or
    after these in other steps, has streams of its own. In the order of one stream it would wait for work that it does
    not need. See `lanes.split`, which has nothing left to split in lanes that are made of these.

    `device` is, by op, the device whose stream it enqueues work on, or -1; `outside`, whether it waits for something
    outside; `used`, devices that need a stream even if no op does: for data that is copied home at the end of a run.
    """
    ordered = np.flatnonzero(device >= 0)
    held_up = np.zeros(len(ops), np.int32)
    if outside.any():
        held_up[:] = find_iteration_distances(len(ops), ordering, outside).kinds()
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


def _purpose(op: Op) -> int:
    body = op.body
    if isinstance(body, InstanceCopy):
        source, target = body.source, body.target
    elif isinstance(body, Copy):
        memories = (memory_of(operand.arrays[0]) for operand in (body.source, body.target))
        source, target = (HOST if memory == HOST_MEMORY else 0 for memory in memories)
    else:
        return WORK
    return OUT if target == HOST else INTO if source == HOST else WORK


def add_stream_lanes(placement: Placement, streams: Streams) -> Placement:
    """Return the placement with two more lanes for each stream: one that issues its work, and one that waits for it.

    Both are served first by the thread that the stream's first op was placed on.
    """
    if not len(streams.device):
        return placement
    lanes = len(placement.affinity)
    lane = placement.lane.copy()
    members = np.flatnonzero(streams.of >= 0)
    lane[members] = lanes + 2 * streams.of[members] + ~streams.issued[members]
    _, first = np.unique(streams.of[members], return_index=True)
    affinity = np.repeat(placement.affinity[placement.lane[members[first]]], 2)
    return _without_empty(_with_lanes(placement, lane, affinity))


def order_fences(order: IntArray, streams: Streams) -> IntArray:
    """Return the order with each fence right after the last op that it is for."""
    if not streams.fences:
        return order
    at = np.empty(len(order))
    at[order] = np.arange(len(order))
    position = at.tolist()
    for index, fence in streams.fences:
        position[index] = nextafter(max([position[op] for op in fence.of]), len(order))
    return np.argsort(np.array(position), kind="stable").astype(np.int32)


def isolate_streams(placement: Placement, streams: Streams) -> Placement:
    """Return the placement with nothing but device work on the lanes that issue it.

    The device keeps the order in which work is issued. A host op between would be taken to come after the device.
    """
    lane, lanes = placement.lane.copy(), len(placement.affinity)
    issuing = np.zeros(lanes, np.bool_)
    issuing[lane[streams.of >= 0]] = True
    others = np.flatnonzero(issuing[lane] & (streams.of < 0))
    if not len(others):
        return placement
    left, own = np.unique(lane[others], return_inverse=True)
    lane[others] = lanes + own.reshape(-1)
    return _with_lanes(placement, lane, placement.affinity[left])


def split_host_lanes(edges: Edges, placement: Placement, order: IntArray, streams: Streams) -> Placement:
    """Return the placement with lanes of the host split where their order would have ops wait for devices for nothing.

    So the host decodes the next image while a device works on this one, and encodes this one when the device is done.
    """
    if not streams.fences:
        return placement
    n = len(streams.of)
    followed = set(edges.src[streams.of[edges.dst] < 0].tolist())
    waits = np.array([op for op, fence in streams.fences if fence.waits and op in followed], np.int32)
    if not len(waits):
        return placement
    if len(waits) <= MOST_WAITS:
        outside = np.zeros(n, np.bool_)
        outside[waits] = True
        found = _split(edges, placement, order, streams, outside)
        if len(found.affinity) <= len(placement.affinity) + MOST_WAITS:
            return found
    devices = streams.device[streams.of[waits]]
    used, first = np.unique(devices, return_inverse=True)  # one more op each, before all waits for the device
    more = len(used)
    wider = edges_of(
        n + more,
        np.concatenate([edges.src, n + first.reshape(-1)]),
        np.concatenate([edges.dst, waits]),
        np.concatenate([edges.distance, np.zeros(len(waits), np.int32)]),
    )
    added = np.arange(more, dtype=np.int32)
    with_more = _with_lanes(placement, np.append(placement.lane, len(placement.affinity) + added), 0 * added)
    outside = np.append(np.zeros(n, np.bool_), np.ones(more, np.bool_))
    in_order = np.append(n + added, order).astype(np.int32)
    found = _split(wider, with_more, in_order, streams.over(n + more), outside)
    return _without_empty(found._replace(lane=found.lane[:n]))


def _split(edges: Edges, placement: Placement, order: IntArray, streams: Streams, outside: Mask) -> Placement:
    """Split the lanes of the host by waits."""
    found = split(edges, placement, order, outside, np.zeros(len(outside), np.bool_))
    lane = np.where(streams.of >= 0, placement.lane, len(placement.affinity) + found.lane)
    return _without_empty(_with_lanes(placement, lane, found.affinity, found.pinned))


def _with_lanes(placement: Placement, lane: IntArray, affinity: IntArray, pinned: Mask | None = None) -> Placement:
    """Return a placement with more lanes at its end, and other lanes of operations."""
    pinned = np.zeros(len(affinity), np.bool_) if pinned is None else pinned
    return placement._replace(
        lane=lane.astype(np.int32),
        affinity=np.append(placement.affinity, affinity).astype(np.int32),
        pinned=np.append(placement.pinned, pinned),
    )


def _without_empty(placement: Placement) -> Placement:
    left, renumbered = np.unique(placement.lane, return_inverse=True)
    return placement._replace(
        lane=renumbered.reshape(-1).astype(np.int32), affinity=placement.affinity[left], pinned=placement.pinned[left]
    )
