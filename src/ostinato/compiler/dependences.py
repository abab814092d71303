"""Which op comes after which: what follows from accesses, what was given, and the order of reservations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.costs import Costs
from ostinato.compiler.flatten import Flat, Inference, flatten, ports_in, tell_cycle
from ostinato.compiler.ir import Edges, IntArray, Step, edges_of
from ostinato.compiler.summary import Summary, summarize
from ostinato.errors import GraphError
from ostinato.graph.body import Acquire, NativeCall, PythonCall, Release

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

_ALL = np.empty(0, np.int32)
_NONE = Edges(_ALL, _ALL, _ALL)


def infer_dependences(flat: Flat) -> Step:
    """Return a flat graph as a step, with the edges that follow from accesses and all others that order its nodes."""
    summary = summarize(flat.ops)
    edges = find_dependences(flat, summary)
    ordering = order_steps_and_holders(flat, edges, summary)
    serial = flat.serial and len(flat.ops) > 0
    costs = Costs.unknown(len(flat.ops))
    return Step(flat.ops, edges, ordering, costs, serial, dict(flat.params), common=flat.common, _summary=summary)


def find_dependences(flat: Flat, summary: Summary | None = None) -> Edges:
    """Return the edges of a flat graph, inferred ones included. A summary of its ops saves time."""
    ops = flat.ops
    found = _inferred_in(flat, summary)
    if not flat.explicit_edges:
        return found  # every edge within a step goes along program order
    given = np.array(flat.explicit_edges, np.int32).T
    edges = edges_of(len(ops), *(np.concatenate(pair) for pair in zip(found, given, strict=True)))
    cycle = _core.passes.find_cycle(len(ops), edges)
    if len(cycle):
        raise GraphError(tell_cycle(ops[index] for index in cycle.tolist()))
    return edges


def order_steps_and_holders(flat: Flat, edges: Edges, summary: Summary) -> Edges:
    """Return the edges with those that order ops of a flat graph although none depends on the other.

    These are between acquires and releases of one reservation, and between the steps of nested graphs in which each
    step begins when the one before has ended.
    """
    ops = flat.ops
    step_order = edges_of(len(ops), *np.array(flat.step_order, np.int32).reshape(-1, 3).T)
    found = [edges, order_holders(summary, edges), step_order]
    if not any(len(more.src) for more in found[1:]):
        return edges
    joined = edges_of(len(ops), *map(np.concatenate, zip(*found, strict=True)))
    cycle = _core.passes.find_cycle(len(ops), joined)
    if len(cycle):
        raise GraphError(
            tell_cycle(ops[index] for index in cycle.tolist())
            + "; acquires and releases of one reservation come in program order"
        )
    return joined


def find_outer_edges(graph: Graph) -> Edges:
    """Return the edges between the ops of a graph, where the op of a nested graph stands for all ops in there."""
    flat = flatten(graph)
    found = find_dependences(flat)
    if flat.outer is None:
        return found
    outer = np.array(flat.outer, np.int32)
    src, dst = outer[found.src], outer[found.dst]
    kept = (src != dst) | (found.distance > 0)
    given = [
        *graph.explicit_edges,
        *((src, dst, distance) for src, _, dst, distance in graph.port_edges),
        *((source.op, index, source.distance) for index, _, source in ports_in(graph)),
    ]
    rows = np.array(given, np.int32).reshape(-1, 3).T
    pairs = zip((src, dst, found.distance), rows, strict=True)
    return edges_of(len(graph), *(np.concatenate([inside[kept], row]) for inside, row in pairs))


def infer_edges(ops: int, found: Accesses, apart: IntArray = _ALL, given: Edges = _NONE) -> Edges:
    """Return edges along which exactly those ops reach each other whose accesses conflict, directly or through others.

    Accesses conflict where they can touch the same memory and one of them writes: in program order within a step, and
    from each step to all later ones. Those of ops with the same number in `apart` do not, unless it is negative: then,
    what the `given` edges, within a step and between such ops, imply is left out.
    """
    return Edges(*_core.passes.inferred(ops, found, apart, given))


def add_step_barrier(edges: Edges, n: int) -> Edges:
    """Return the edges with one more op, of index `n`, between each step and the next."""
    inside = edges.distance == 0
    last = np.setdiff1d(np.arange(n, dtype=np.int32), edges.src[inside])
    first = np.setdiff1d(np.arange(n, dtype=np.int32), edges.dst[inside])
    src = np.concatenate([edges.src, last, np.full(len(first), n)])
    dst = np.concatenate([edges.dst, np.full(len(last), n), first])
    distance = np.concatenate([edges.distance, np.zeros(len(last)), np.ones(len(first))])
    return edges_of(n + 1, src, dst, distance)


def _inferred_in(flat: Flat, summary: Summary | None) -> Edges:
    ops = flat.ops
    given = np.array([edge for edge in flat.explicit_edges if edge[2] == 0], np.int32).reshape(-1, 3)
    given = given[np.argsort(given[:, 0], kind="stable")]
    found = [_inferred_among(ops, inference, given, summary) for inference in flat.inferences]
    if len(found) == 1:
        return found[0]
    return edges_of(len(ops), *map(np.concatenate, zip(*found, strict=True))) if found else _NONE


def _inferred_among(
    ops: Sequence[Op], among: Inference, given: npt.NDArray[np.int32], summary: Summary | None
) -> Edges:
    low, high, ranges = among
    if not ranges:
        found = infer_edges(high - low, find_accesses(ops[low:high], summary if high - low == len(ops) else None))
    else:
        apart = np.full(high - low, -1, np.int32)
        for number, (begin, end) in enumerate(ranges):
            apart[begin - low : end - low] = number
        within = given[slice(*np.searchsorted(given[:, 0], (low, high)))]
        within = within[(low <= within[:, 1]) & (within[:, 1] < high)] - np.array([low, low, 0], np.int32)
        within = within[apart[within[:, 0]] == apart[within[:, 1]]]
        found = infer_edges(high - low, find_accesses(ops[low:high]), apart, Edges(*np.ascontiguousarray(within.T)))
    return Edges(found.src + np.int32(low), found.dst + np.int32(low), found.distance)


class Accesses(NamedTuple):
    """The accesses of all ops in program order, as flat arrays.

    Accesses can only meet within a group: an allocation (arrays whose memory overlaps), a ring, or a token. In a ring's
    group, phase k of period n means: in step s the array ``(s + k) % n``; elsewhere the period is 1.
    """

    op: IntArray
    mode: npt.NDArray[np.uint8]
    group: IntArray
    period: IntArray
    phase: IntArray
    alias: IntArray
    """The ring, if this row repeats a ring's access in the group of an allocation that others use, too; else -1."""
    box: IntArray  # Row of `lo` and `hi`.
    lo: npt.NDArray[np.int64]  # Where each distinct box begins along each dimension of its group.
    hi: npt.NDArray[np.int64]  # Where it ends.
    groups: int  # Number of groups.


def find_accesses(ops: Sequence[Op], summary: Summary | None = None) -> Accesses:
    """Return the accesses of ops. A summary of them saves time.

    A view of an array is a box along that array's axes; steps between its first and last index count as if all between
    were touched, and a view that follows no axes covers all between its ends. Tasks that access nothing share a token,
    so that they keep program order.
    """
    tasks = PythonCall, NativeCall
    if summary is None:
        return Accesses(*_core.passes.accesses(ops, tasks))
    return Accesses(*_core.passes.accesses_of_summary(ops, tasks, summary.operands, summary.first_operand))


_Triple: TypeAlias = tuple[int, int, int]


def order_holders(summary: Summary, edges: Edges) -> Edges:
    """Return edges that keep the acquires and releases of each reservation in program order, step after step.

    Lanes that asked on a first-come basis could each hold what the other waits for. That is true of shared requests,
    too: one that overtook another would be held while the other stands behind somebody outside who waits for its end.
    Releases of neighbouring shared requests are not ordered among themselves, but each comes after a request of its
    own: one that it depends on, by `edges`, if there is one. The edges returned order ops, but make none depend on
    another: where one fails, they carry no poison.
    """
    by_reservation: dict[int, list[Op]] = {}
    ops = summary.ops
    for op in (ops[index] for index in summary.others.tolist()):
        if isinstance(op.body, Acquire | Release):
            by_reservation.setdefault(id(op.body.reservation), []).append(op)
    found = [triple for used in by_reservation.values() for triple in _order(_phases(used, edges))]
    return edges_of(len(ops), *np.array(found, np.int32).reshape(-1, 3).T)


class _Phase:
    """One op; or neighbouring shared requests, and releases of these."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.requests: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        self._held: dict[int, None] = {}

    def request(self, op: int) -> None:
        self.requests.append(op)
        self._held[op] = None

    def release(self, op: int, edges: Edges) -> bool:
        """Add the release of a request; return whether there is one."""
        if not self.shared or not self._held:
            return False
        known = _before(op, edges) if len(self._held) > 1 else set()
        request = next((held for held in self._held if held in known), next(iter(self._held)))
        del self._held[request]
        self.pairs.append((request, op))
        return True

    @property
    def first(self) -> Iterable[int]:
        return self.requests

    @property
    def last(self) -> Iterable[int]:
        return [*(release for _, release in self.pairs), *self._held]


def _before(op: int, edges: Edges) -> set[int]:
    """Return all that an op depends on within a step."""
    found = {op}
    waiting = [op]
    while waiting:
        after = waiting.pop()
        low, high = np.searchsorted(edges.dst, [after, after + 1])
        for src in edges.src[low:high][edges.distance[low:high] == 0].tolist():
            if src not in found:
                found.add(src)
                waiting.append(src)
    return found


def _phases(used: Sequence[Op], edges: Edges) -> list[_Phase]:
    """Cut what a step does with a reservation into phases that come after each other."""
    phases: list[_Phase] = []
    for op in used:
        shared = isinstance(op.body, Acquire) and not op.body.exclusive
        if isinstance(op.body, Release) and phases and phases[-1].release(op.index, edges):
            continue
        if not (shared and phases and phases[-1].shared):
            phases.append(_Phase(shared))
        phases[-1].request(op.index)
    return phases


def _order(phases: Sequence[_Phase]) -> Iterator[_Triple]:
    """Yield edges within phases, from each to the next, and from the last to the first of the next step."""
    for phase in phases:
        yield from ((request, release, 0) for request, release in phase.pairs)
        yield from ((before, after, 0) for before, after in pairwise(phase.requests))
    for before, after in pairwise(phases):
        yield from _between(before, after, 0)
    first, last = phases[0], phases[-1]
    if not (first.shared and last.shared):
        yield from _between(last, first, 1)
        return
    yield last.requests[-1], first.requests[0], 1
    if len(phases) > 1:  # these two are one phase, which the others come after, and before
        yield from _between(last, phases[1], 1)
        yield from _between(phases[-2], first, 1)


def _between(before: _Phase, after: _Phase, distance: int) -> Iterator[_Triple]:
    return ((src, dst, distance) for src, dst in product(before.last, after.first))
