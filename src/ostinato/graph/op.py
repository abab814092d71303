"""One operation of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.graph.no_value import NoValue

if TYPE_CHECKING:
    from ostinato.graph.body import Body
    from ostinato.graph.call_site import CallSite
    from ostinato.graph.graph import Graph
    from ostinato.graph.operand import Operand

__all__ = ["Op", "Previous", "previous"]


class Op(NoValue):
    """An operation of a graph: what recording a call returns.

    It is hashable, compares by identity, and has no value: the call runs when the program does.

    Attributes
    ----------
    graph
        The graph that it belongs to.
    index
        Its position in program order.
    name
        Its name, by default that of its task.
    call_site
        Where it was recorded; ``str()`` gives ``file.py:12 in function``.
    body
        What it does.
    operands
        What it accesses, in the order of its arguments.
    on
        The processor it is bound to, a processor's name, a kind, or None.
    priority
        Higher is more urgent.
    """

    __slots__ = ("__weakref__", "body", "call_site", "graph", "index", "name", "on", "operands", "priority")

    def __init__(
        self,
        graph: Graph,
        index: int,
        name: str,
        call_site: CallSite,
        body: Body,
        operands: tuple[Operand, ...],
        on: object = None,
        priority: int = 0,
    ) -> None:
        self.graph = graph
        self.index = index
        self.name = name
        self.call_site = call_site
        self.body = body
        self.operands = operands
        self.on = on
        self.priority = priority

    def __repr__(self) -> str:
        return f"<Op {self.index} {self.name!r} at {self.call_site}>"

    def _why(self) -> str:
        return (
            f"the call of {self.name!r} at {self.call_site} was captured and has no value: it runs when the program "
            "is replayed. Let tasks write their results to arrays, and use those as arguments of other tasks"
        )


class Previous:
    """An op, some steps before; made by `previous`."""

    __slots__ = ("distance", "op")

    def __init__(self, op: Op, distance: int) -> None:
        self.op = op
        self.distance = distance

    def __repr__(self) -> str:
        return f"<{self.distance} step{'s' * (self.distance > 1)} before, {self.op!r}>"


def previous(op: Op | Previous) -> Previous:
    """Return what stands in ``after=`` for `op` in the step before; twice, for the step before that.

    Examples
    --------
    >>> import ostinato as ost
    >>> graph = ost.Graph()
    >>> first = graph.task(print, access=())
    >>> second = graph.task(print, access=(), after=[first, ost.previous(first)])
    >>> [(a.index, b.index, distance) for a, b, distance in graph.given_edges]
    [(0, 1, 0), (0, 1, 1)]
    """
    if isinstance(op, Previous):
        return Previous(op.op, op.distance + 1)
    if not isinstance(op, Op):
        raise TypeError(f"previous() takes an op, not {type(op).__name__}")
    return Previous(op, 1)
