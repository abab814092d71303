"""Insert fences: nodes that wait until a device is done, between its work and nodes that are not in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato.compiler.costs import Costs
from ostinato.compiler.inserted import Fence
from ostinato.compiler.ir import Edges, IntArray, Mask, Node, Step, Streams, Target, edges_of
from ostinato.graph.body import Postcondition, Precondition

if TYPE_CHECKING:
    from ostinato.graph.op import Op


def hold_device_work(step: Step, target: Target) -> Step:
    """Return the step with its device work behind all preconditions: see `behind_preconditions`."""
    return replace(step, ordering=behind_preconditions(step.nodes, step.ordering, step.device >= 0))


def behind_preconditions(ops: Sequence[Op], ordering: Edges, on_device: Mask) -> Edges:
    """Return the edges that order ops with those that keep device work behind all preconditions.

    A device runs work in the order of its streams, whoever gave it. Work that waits there for something outside could
    hold up other programs, and the user's own work. Work that a postcondition depends on waits for its own
    preconditions only: the others may be events that happen because of the postcondition. The edges added order ops,
    but carry no poison.
    """
    preconditions = _of(ops, Precondition)
    if not len(preconditions) or not on_device.any():
        return ordering
    within = ordering.distance == 0
    posted = reached(len(ops), ordering.dst, ordering.src, _of(ops, Postcondition))
    held = on_device & ~posted
    after_held = reached(len(ops), ordering.src[within], ordering.dst[within], np.flatnonzero(held).astype(np.int32))
    first = np.flatnonzero(held & ~after_held).astype(np.int32)
    src = np.repeat(preconditions, len(first))
    dst = np.tile(first, len(preconditions))
    return edges_of(
        len(ops),
        np.concatenate([ordering.src, src]),
        np.concatenate([ordering.dst, dst]),
        np.concatenate([ordering.distance, np.zeros(len(src), np.int32)]),
    )


def _of(ops: Sequence[Op], kind: type) -> IntArray:
    return np.array([op.index for op in ops if isinstance(op.body, kind)], np.int32)


def reached(n: int, src: IntArray, dst: IntArray, begin: IntArray) -> Mask:
    """Return what can be reached from `begin` along edges, in one or more of them."""
    by_source = np.argsort(src, kind="stable")
    first = np.searchsorted(src[by_source], np.arange(n + 1)).tolist()
    following = dst[by_source].tolist()
    found, left = [False] * n, [False] * n
    waiting = begin.tolist()
    while waiting:
        at = waiting.pop()
        if left[at]:
            continue
        left[at] = True
        for after in following[first[at] : first[at + 1]]:
            if not found[after]:
                found[after] = True
                waiting.append(after)
    return np.array(found, np.bool_)


ISSUE = 1e-6
"""Seconds, to put work on a stream."""


def insert_fences(step: Step, target: Target) -> Step:
    """Return the step with fences at its end, and edges from these to what must begin after the device is done.

    An edge between two nodes in the order of streams of one device says that the first is issued before the second: the
    device keeps the order. Along every other edge from a device node the device must be done first, so there is one
    more edge, from the node's fence. If need be, one more fence for each stream ends the step when the device is done.

    What carries poison carries that of fences, too: from a fence to what depends on the node, and to the fences of what
    depends on it on the device. If a node between these has no fence, it gets one that does not wait.
    """
    streams = step.streams
    nodes, stream, n = step.nodes, streams.of, len(step.nodes)
    of_device = np.where(stream >= 0, streams.device[stream], -1) if len(streams.device) else np.full(n, -1, np.int32)
    needing = np.unique(step.ordering.src[_leaves_device(step.ordering, of_device)])
    between = _between(step.edges, of_device, needing)
    own = np.concatenate([needing, between])
    number = np.full(n, -1, np.int32)
    number[own] = np.arange(n, n + len(own), dtype=np.int32)
    ends = _ends(step.ordering, stream, needing, len(streams.device))
    bodies = [Fence((int(op),)) for op in needing] + [Fence((int(op),), waits=False) for op in between]
    bodies += [Fence(last) for _, last in ends]
    fences = list(enumerate(bodies, n))
    added = [
        Node.added(of := nodes[fence.of[-1]], index, f"{of.name}: done", fence).running(of.variant, 0.0)
        for index, fence in fences
    ]
    edges, ordering = (_with_fences(each, of_device, number, ends) for each in (step.edges, step.ordering))
    streams = streams._replace(
        of=np.concatenate([stream, stream[own], [which for which, _ in ends]]).astype(np.int32), fences=fences
    )
    count, costs = n + len(added), step.costs
    nothing = np.zeros(len(added))
    costs = costs._replace(
        seconds=np.append(costs.seconds, nothing),
        spread=np.append(costs.spread, nothing),
        source=np.append(costs.source, nothing.astype(np.int32)),
    )
    return replace(
        step,
        nodes=(*nodes, *added),
        edges=edges,
        ordering=edges_of(count, *map(np.concatenate, zip(ordering, edges, strict=True))),
        costs=share_costs(costs, streams),
        device=np.append(step.device, np.full(len(added), -1, np.int32)),
        streams=streams,
    )


def share_costs(costs: Costs, streams: Streams) -> Costs:
    """Return costs in which device work takes what the host takes to issue it, and fences what the device takes.

    A fence takes what the device needs for the work of its stream since the fence before.
    """
    seconds, spread, source = costs.seconds.copy(), costs.spread.copy(), costs.source.copy()
    issued = streams.issued
    of_stream: dict[int, list[tuple[int, int]]] = {}  # the last op that a fence is for, and the fence's index
    for index, fence in streams.fences:
        seconds[index] = 0
        if fence.waits:
            of_stream.setdefault(int(streams.of[index]), []).append((max(fence.of), index))
    for stream, found in of_stream.items():
        found.sort()
        lasts, fences = np.array(found).T
        work = np.flatnonzero(issued & (streams.of == stream))
        payer = fences[np.minimum(np.searchsorted(lasts, work), len(fences) - 1)]
        np.add.at(seconds, payer, costs.seconds[work])
        np.maximum.at(spread, payer, costs.spread[work])
        np.maximum.at(source, payer, costs.source[work])
    seconds[issued], spread[issued], source[issued] = ISSUE, 0.0, 0
    return costs._replace(seconds=seconds, spread=spread, source=source)


def _leaves_device(edges: Edges, of_device: IntArray) -> Mask:
    """Which edges are from device work to what is in no stream of that device."""
    src, dst = of_device[edges.src], of_device[edges.dst]
    found: Mask = (src >= 0) & (src != dst)
    return found


def _with_fences(
    edges: Edges, of_device: IntArray, number: IntArray, ends: Sequence[tuple[int, tuple[int, ...]]]
) -> Edges:
    with_own = np.flatnonzero(number >= 0)
    done = _leaves_device(edges, of_device)
    same = (number[edges.src] >= 0) & (number[edges.dst] >= 0) & (of_device[edges.src] == of_device[edges.dst])
    rows = [
        edges,
        (number[edges.src[done]], edges.dst[done], edges.distance[done]),
        (number[edges.src[same]], number[edges.dst[same]], edges.distance[same]),
        (with_own, number[with_own], np.zeros(len(with_own), np.int32)),
    ]
    at = len(number) + len(with_own)
    for end, (_, last) in enumerate(ends, at):
        rows.append((np.array(last), np.full(len(last), end), np.zeros(len(last), np.int32)))
    return edges_of(at + len(ends), *(np.concatenate(column) for column in zip(*rows, strict=True)))


def _between(edges: Edges, of_device: IntArray, needing: IntArray) -> IntArray:
    """The nodes without fences on paths on one device between nodes with fences."""
    same = (of_device[edges.src] >= 0) & (of_device[edges.src] == of_device[edges.dst])
    src, dst = edges.src[same], edges.dst[same]
    found = reached(len(of_device), src, dst, needing) & reached(len(of_device), dst, src, needing)
    found[needing] = False
    return np.flatnonzero(found).astype(np.int32)


def _ends(edges: Edges, stream: IntArray, needing: IntArray, streams: int) -> list[tuple[int, tuple[int, ...]]]:
    """The last nodes of each stream that ends without a fence."""
    within = (edges.distance == 0) & (stream[edges.src] >= 0) & (stream[edges.src] == stream[edges.dst])
    followed, fenced = np.zeros(len(stream), np.bool_), np.zeros(len(stream), np.bool_)
    followed[edges.src[within]] = True
    fenced[needing] = True
    found = []
    for which in range(streams):
        last = np.flatnonzero((stream == which) & ~followed)
        if len(last) and not fenced[last].all():
            found.append((which, tuple(last.tolist())))
    return found
