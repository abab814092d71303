"""Which op comes after which: what follows from accesses, and what was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ostinato import _core
from ostinato.compile.edges import Edges, edges_of
from ostinato.compile.regions import Accesses, accesses
from ostinato.errors import GraphError

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

__all__ = ["dependences", "inferred", "serial_steps", "step_barrier"]


def dependences(graph: Graph) -> Edges:
    """Return the edges of a graph, inferred ones included.

    Raises
    ------
    GraphError
        Ops depend on each other within one step.
    """
    ops = graph.ops
    found = inferred(len(ops), accesses(graph)) if graph.infer else _NONE
    if not graph.explicit_edges:
        return found  # every edge within a step goes along program order
    given = np.array(graph.explicit_edges, np.int32).T
    edges = edges_of(len(ops), *(np.concatenate(pair) for pair in zip(found, given, strict=True)))
    cycle = _core.passes.find_cycle(len(ops), *edges)
    if len(cycle):
        raise GraphError(_tell_cycle([ops[index] for index in cycle.tolist()]))
    return edges


def inferred(ops: int, found: Accesses) -> Edges:
    """Return edges along which exactly those ops reach each other whose accesses conflict, directly or through others.

    Accesses conflict where they can touch the same memory and one of them writes: in program order within a step, and
    from each step to all later ones.
    """
    return Edges(
        *_core.passes.inferred(
            ops,
            found.op,
            found.mode,
            found.group,
            found.period,
            found.phase,
            found.shadow,
            found.box,
            found.lo.ravel(),
            found.hi.ravel(),
            found.lo.shape[1],
            found.groups,
        )
    )


def serial_steps(graph: Graph, edges: Edges) -> bool:
    """Whether each step begins when the one before has ended: no inference, and no edge from one step to another."""
    return not graph.infer and edges.longest == 0


def step_barrier(edges: Edges, n: int) -> Edges:
    """Return the edges with one more op, of index `n`, between each step and the next."""
    inside = edges.distance == 0
    last = np.setdiff1d(np.arange(n, dtype=np.int32), edges.src[inside])
    first = np.setdiff1d(np.arange(n, dtype=np.int32), edges.dst[inside])
    src = np.concatenate([edges.src, last, np.full(len(first), n)])
    dst = np.concatenate([edges.dst, np.full(len(last), n), first])
    distance = np.concatenate([edges.distance, np.zeros(len(last)), np.ones(len(first))])
    return edges_of(n + 1, src, dst, distance)


_NONE = Edges(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int32))


def _tell_cycle(cycle: Sequence[Op]) -> str:
    return "\n".join(
        [
            "these ops wait for each other within one step, each for the one before it and the first for the last:",
            *(f"  {op.name!r} at {op.call_site}" for op in cycle),
            "give one of the edges between them a distance of 1 or more, or leave it out",
        ]
    )
