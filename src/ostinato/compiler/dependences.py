"""Which op comes after which: what follows from accesses, and what was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.costs import Costs
from ostinato.compiler.flatten import Flat, Inference, flatten, ports_in, tell_cycle
from ostinato.compiler.ir import Edges, IntArray, Step, edges_of
from ostinato.compiler.regions import Accesses, accesses
from ostinato.compiler.reservations import holding_order
from ostinato.errors import GraphError

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

__all__ = ["dependences", "infer_dependences", "inferred", "order_steps_and_holders", "outer_edges", "step_barrier"]


_ALL = np.empty(0, np.int32)
_NONE = Edges(_ALL, _ALL, _ALL)


def infer_dependences(flat: Flat) -> Step:
    """Return a flat graph as a step, with the edges that follow from accesses and all others that order its nodes.

    Raises
    ------
    GraphError
        Ops come after each other in a circle.
    """
    edges = dependences(flat)
    ordering = order_steps_and_holders(flat, edges)
    serial = flat.serial and len(flat.ops) > 0
    return Step(flat.ops, edges, ordering, Costs.unknown(len(flat.ops)), serial, dict(flat.params))


def dependences(flat: Flat) -> Edges:
    """Return the edges of a flat graph, inferred ones included.

    Raises
    ------
    GraphError
        Ops depend on each other within one step.
    """
    ops = flat.ops
    found = _inferred_in(flat)
    if not flat.explicit_edges:
        return found  # every edge within a step goes along program order
    given = np.array(flat.explicit_edges, np.int32).T
    edges = edges_of(len(ops), *(np.concatenate(pair) for pair in zip(found, given, strict=True)))
    cycle = _core.passes.find_cycle(len(ops), *edges)
    if len(cycle):
        raise GraphError(tell_cycle(ops[index] for index in cycle.tolist()))
    return edges


def order_steps_and_holders(flat: Flat, edges: Edges) -> Edges:
    """Return the edges with those that order ops of a flat graph although none depends on the other.

    These are between acquires and releases of one reservation, and between the steps of nested graphs in which each
    step begins when the one before has ended.

    Raises
    ------
    GraphError
        Ops come after each other in a circle.
    """
    ops = flat.ops
    step_order = edges_of(len(ops), *np.array(flat.step_order, np.int32).reshape(-1, 3).T)
    found = [edges, holding_order(ops, edges), step_order]
    if not any(len(more.src) for more in found[1:]):
        return edges
    joined = edges_of(len(ops), *map(np.concatenate, zip(*found, strict=True)))
    cycle = _core.passes.find_cycle(len(ops), *joined)
    if len(cycle):
        raise GraphError(
            tell_cycle(ops[index] for index in cycle.tolist())
            + "; acquires and releases of one reservation come in program order"
        )
    return joined


def outer_edges(graph: Graph) -> Edges:
    """Return the edges between the ops of a graph, where the op of a nested graph stands for all ops in there.

    Raises
    ------
    GraphError
        Ops depend on each other within one step.
    """
    flat = flatten(graph)
    found = dependences(flat)
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


def inferred(ops: int, found: Accesses, apart: IntArray = _ALL, given: Edges = _NONE) -> Edges:
    """Return edges along which exactly those ops reach each other whose accesses conflict, directly or through others.

    Accesses conflict where they can touch the same memory and one of them writes: in program order within a step, and
    from each step to all later ones. Those of ops with the same number in `apart` do not, unless it is negative: then,
    what the `given` edges, within a step and between such ops, imply is left out.
    """
    return Edges(
        *_core.passes.inferred(
            ops,
            found.op,
            found.mode,
            found.group,
            found.period,
            found.phase,
            found.alias,
            found.box,
            found.lo.ravel(),
            found.hi.ravel(),
            found.lo.shape[1],
            found.groups,
            apart,
            *given,
        )
    )


def step_barrier(edges: Edges, n: int) -> Edges:
    """Return the edges with one more op, of index `n`, between each step and the next."""
    inside = edges.distance == 0
    last = np.setdiff1d(np.arange(n, dtype=np.int32), edges.src[inside])
    first = np.setdiff1d(np.arange(n, dtype=np.int32), edges.dst[inside])
    src = np.concatenate([edges.src, last, np.full(len(first), n)])
    dst = np.concatenate([edges.dst, np.full(len(last), n), first])
    distance = np.concatenate([edges.distance, np.zeros(len(last)), np.ones(len(first))])
    return edges_of(n + 1, src, dst, distance)


def _inferred_in(flat: Flat) -> Edges:
    ops = flat.ops
    given = np.array([edge for edge in flat.explicit_edges if edge[2] == 0], np.int32).reshape(-1, 3)
    given = given[np.argsort(given[:, 0], kind="stable")]
    found = [_inferred_among(ops, inference, given) for inference in flat.inferences]
    if len(found) == 1:
        return found[0]
    return edges_of(len(ops), *map(np.concatenate, zip(*found, strict=True))) if found else _NONE


def _inferred_among(ops: Sequence[Op], among: Inference, given: npt.NDArray[np.int32]) -> Edges:
    low, high, ranges = among
    if not ranges:
        found = inferred(high - low, accesses(ops[low:high]))
    else:
        apart = np.full(high - low, -1, np.int32)
        for number, (begin, end) in enumerate(ranges):
            apart[begin - low : end - low] = number
        within = given[slice(*np.searchsorted(given[:, 0], (low, high)))]
        within = within[(low <= within[:, 1]) & (within[:, 1] < high)] - np.array([low, low, 0], np.int32)
        within = within[apart[within[:, 0]] == apart[within[:, 1]]]
        found = inferred(high - low, accesses(ops[low:high]), apart, Edges(*np.ascontiguousarray(within.T)))
    return Edges(found.src + np.int32(low), found.dst + np.int32(low), found.distance)
