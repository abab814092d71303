"""What ops come after: ``after=`` and `Graph.edge`, checked, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ostinato.errors import GraphError
from ostinato.graph.body import Postcondition, Precondition
from ostinato.graph.op import After, Op, Port, Previous, check_reaches_back

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph

__all__ = ["Source", "check_own", "check_target", "source_of", "sources_of"]


class Source(NamedTuple):
    """What an op comes after."""

    op: int
    """Index of the earlier op."""
    post: str | None
    """The postcondition of the nested graph that this op is; None for all of it."""
    distance: int
    """How many steps before."""


def sources_of(graph: Graph, after: After) -> list[Source]:
    """Return what ``after=`` names, in its order."""
    entries = (after,) if isinstance(after, Op | Port | Previous) else after
    return [
        source_of(graph, entry.op, entry.distance) if isinstance(entry, Previous) else source_of(graph, entry, 0)
        for entry in entries
    ]


def source_of(graph: Graph, value: Op | Port, distance: int) -> Source:
    """Return an op or port, `distance` steps before, as what another op comes after."""
    op, post = (value.op, value.name) if isinstance(value, Port) else (value, None)
    check_own(graph, op)
    if isinstance(op.body, Postcondition):
        raise GraphError(
            f"nothing in a graph comes after postcondition {op.body.name!r}, at {op.call_site}: it is for what is "
            "outside. Name the ops that it comes after instead"
        )
    if distance:
        check_reaches_back(op)
    return Source(op.index, post, distance)


def check_target(graph: Graph, op: Op) -> None:
    """Raise unless an op can come after others."""
    check_own(graph, op)
    if isinstance(op.body, Precondition):
        raise GraphError(
            f"precondition {op.body.name!r}, at {op.call_site}, comes after nothing in the graph: what it waits for "
            "is given with each run"
        )


def check_own(graph: Graph, op: object) -> None:
    """Raise unless `op` is an op of the graph."""
    if not isinstance(op, Op):
        raise TypeError(f"an edge must join ops, got {op!r}")
    if not graph.has(op):
        raise GraphError(f"{op!r} belongs to another graph")
