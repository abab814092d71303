"""What orders ops besides dependences: edges that carry no poison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostinato import _core
from ostinato.compiler.edges import Edges, edges_of
from ostinato.compiler.flatten import Flat, tell_cycle
from ostinato.compiler.reservations import holding_order
from ostinato.errors import GraphError

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph

__all__ = ["ordered"]


def ordered(graph: Graph | Flat, edges: Edges) -> Edges:
    """Return the edges with those that order ops of a flat graph although none depends on the other.

    These are between acquires and releases of one reservation, and between the steps of nested graphs in which each
    step begins when the one before has ended.

    Raises
    ------
    GraphError
        Ops come after each other in a circle.
    """
    ops = graph.ops
    found = [edges, holding_order(ops, edges)]
    if isinstance(graph, Flat):
        found.append(edges_of(len(ops), *np.array(graph.step_order, np.int32).reshape(-1, 3).T))
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
