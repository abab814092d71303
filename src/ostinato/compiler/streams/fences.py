"""When a device is done: ops that wait for that, between device work and what is not in the order of its streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.compiler.gate import reached
from ostinato.compiler.ir import Edges, IntArray, Node, edges_of
from ostinato.graph.body import Inserted

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["Completed", "Completion", "completed", "completions_of"]


class Completion(Inserted):
    """The device has done all that the ops `of` one stream, and those before them, enqueued.

    Attributes
    ----------
    of
        The ops, by their indices.
    waits
        Whether it waits for that. Else it carries failures only: of what the op depends on to what depends on the op,
        once devices tell of them.
    """

    __slots__ = ("of", "waits")

    works_elsewhere = True

    def __init__(self, of: tuple[int, ...], waits: bool = True) -> None:
        self.of = of
        self.waits = waits


def completions_of(ops: Iterable[Op]) -> Iterator[tuple[int, Completion]]:
    """Yield the completions among ops, each with its index."""
    for op in ops:
        if isinstance(op.body, Completion):
            yield op.index, op.body


class Completed(NamedTuple):
    """Ops with completions at their end."""

    ops: tuple[Op, ...]
    edges: Edges
    ordering: Edges
    stream: IntArray
    """By op, and for a completion that of the ops which it is for; -1 for ops that are in no stream."""


def completed(ops: Sequence[Op], edges: Edges, ordering: Edges, stream: IntArray, device: IntArray) -> Completed:
    """Return the ops with completions, and edges from these to all that must not begin before the device is done.

    An edge between two ops in the order of streams of one device says that the first is issued before the second: the
    device keeps the order. Along every other edge from a device op the device is done first, so there is one more edge,
    from the op's completion. One more completion for each stream, if need be, has the step end when the device is done
    with it.

    What carries poison carries that of completions, too: from a completion to what depends on the op, and to the
    completions of what depends on it on the device. Where an op between these has no completion, it gets one that waits
    for nothing.

    Parameters
    ----------
    ops, edges, ordering
        The ops of a flat graph, their dependences, and all edges that order them.
    stream
        By op, its stream, or -1.
    device
        By stream, a number of its device.
    """
    n = len(ops)
    of_device = np.where(stream >= 0, device[stream], -1) if len(device) else np.full(n, -1, np.int32)
    needing = np.unique(ordering.src[_needs_done(ordering, of_device)])
    between = _between(edges, of_device, needing)
    number = np.full(n, -1, np.int32)
    own = np.concatenate([needing, between])
    number[own] = np.arange(n, n + len(own), dtype=np.int32)
    bodies = [Completion((int(op),)) for op in needing]
    bodies += [Completion((int(op),), waits=False) for op in between]
    streams = [stream[own]]
    ends = _ends(ordering, stream, needing, len(device))
    for which, last in ends:
        bodies.append(Completion(last))
        streams.append(np.array([which], np.int32))
    added = tuple(_completion(ops[body.of[-1]], n + number, body) for number, body in enumerate(bodies))
    poison, order = (_with_completions(each, of_device, number, ends) for each in (edges, ordering))
    rows = zip(order, poison, strict=True)
    return Completed(
        (*ops, *added),
        poison,
        edges_of(n + len(added), *map(np.concatenate, rows)),
        np.concatenate([stream, *streams]).astype(np.int32),
    )


def _completion(of: Op, index: int, body: Completion) -> Node:
    return Node.added(of, index, f"{of.name}: done", body).running(of.variant, 0.0)


def _needs_done(edges: Edges, of_device: IntArray) -> npt.NDArray[np.bool_]:
    """Which edges are from device work to what is in no stream of that device."""
    src, dst = of_device[edges.src], of_device[edges.dst]
    found: npt.NDArray[np.bool_] = (src >= 0) & (src != dst)
    return found


def _with_completions(
    edges: Edges, of_device: IntArray, number: IntArray, ends: Sequence[tuple[int, tuple[int, ...]]]
) -> Edges:
    with_own = np.flatnonzero(number >= 0)
    done = _needs_done(edges, of_device)
    same = (number[edges.src] >= 0) & (number[edges.dst] >= 0) & (of_device[edges.src] == of_device[edges.dst])
    rows = [
        edges,
        (number[edges.src[done]], edges.dst[done], edges.distance[done]),
        (number[edges.src[same]], number[edges.dst[same]], edges.distance[same]),
        (with_own, number[with_own], np.zeros(len(with_own), np.int32)),
    ]
    at = len(number) + len(with_own)
    for place, (_, last) in enumerate(ends):
        rows.append((np.array(last), np.full(len(last), at + place), np.zeros(len(last), np.int32)))
    return edges_of(at + len(ends), *(np.concatenate(column) for column in zip(*rows, strict=True)))


def _between(edges: Edges, of_device: IntArray, needing: IntArray) -> IntArray:
    """The ops without completions on paths on one device between ops with completions."""
    same = (of_device[edges.src] >= 0) & (of_device[edges.src] == of_device[edges.dst])
    n = len(of_device)
    found = reached(n, edges.src[same], edges.dst[same], needing) & reached(
        n, edges.dst[same], edges.src[same], needing
    )
    found[needing] = False
    return np.flatnonzero(found).astype(np.int32)


def _ends(edges: Edges, stream: IntArray, needing: IntArray, streams: int) -> list[tuple[int, tuple[int, ...]]]:
    """The last ops of each stream of whose end nothing tells yet."""
    within = (edges.distance == 0) & (stream[edges.src] >= 0) & (stream[edges.src] == stream[edges.dst])
    followed, told = np.zeros(len(stream), np.bool_), np.zeros(len(stream), np.bool_)
    followed[edges.src[within]] = True
    told[needing] = True
    found = []
    for which in range(streams):
        last = np.flatnonzero((stream == which) & ~followed)
        if len(last) and not told[last].all():
            found.append((which, tuple(last.tolist())))
    return found
