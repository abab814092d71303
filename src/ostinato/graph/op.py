"""One operation of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ostinato.errors import GraphError
from ostinato.graph.body import Nested, Postcondition, Precondition
from ostinato.graph.param import NoValue
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.graph.arrays import Operand
    from ostinato.graph.body import Body
    from ostinato.graph.context import CallSite
    from ostinato.graph.graph import Graph
    from ostinato.graph.variant import Variant


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

    @property
    def original(self) -> Op:
        """The op that was recorded: itself, but for the copies that a program makes."""
        return self

    @property
    def recorded(self) -> Body:
        """What it does by the task that was recorded: `body`, but for an op of a program that runs a variant."""
        return self.body

    @property
    def variant(self) -> Variant | None:
        """The variant that it runs; None for the task itself."""
        return None

    @property
    def rtol(self) -> float:
        """By what part the variant's results may differ from those of the task itself."""
        return 0.0

    @property
    def posts(self) -> Mapping[str, Port]:
        """The postconditions of a nested graph by name, to stand in ``after=``; other ops have none."""
        if not isinstance(self.body, Nested):
            return {}
        return {name: Port(self, name) for name in self.body.graph.postconditions}

    def __repr__(self) -> str:
        return f"<Op {self.index} {self.name!r} at {self.call_site}>"

    def why_unusable(self) -> str:
        return (
            f"the call of {self.name!r} at {self.call_site} was captured and has no value: it runs when the program "
            "is replayed. Let tasks write their results to arrays, and use those as arguments of other tasks"
        )


class Port(NoValue):
    """A postcondition of a nested graph: what stands in ``after=`` for that part of it; from `Op.posts`."""

    __slots__ = ("name", "op")

    def __init__(self, op: Op, name: str) -> None:
        self.op = op
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Port) and self.op is other.op and self.name == other.name

    def __hash__(self) -> int:
        return hash((self.op, self.name))

    def __repr__(self) -> str:
        return f"<postcondition {self.name!r} of {self.op!r}>"

    def why_unusable(self) -> str:
        return f"{self!r} has no value: it stands in after="


class Previous:
    """An op, or a postcondition of a nested graph, some steps before; made by `previous`."""

    __slots__ = ("distance", "op")

    def __init__(self, op: Op | Port, distance: int) -> None:
        self.op = op
        self.distance = distance

    def __repr__(self) -> str:
        return f"<{self.distance} step{'s' * (self.distance > 1)} before, {self.op!r}>"


After: TypeAlias = "Op | Port | Previous | Iterable[Op | Port | Previous]"
"""What ``after=`` takes."""


def previous(op: Op | Port | Previous) -> Previous:
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
    if not isinstance(op, Op | Port):
        raise TypeError(f"previous() must be given an op, got {brief(op)}")
    if isinstance(op, Op):
        check_reaches_back(op)
    return Previous(op, 1)


def format_op(op: Op) -> str:
    """Return the name of an op for messages, with the variant that it runs."""
    return repr(op.name) if op.variant is None else f"{op.name!r} (variant {op.variant.label})"


def check_reaches_back(op: Op) -> None:
    """Raise if there is no such op in the step before."""
    if isinstance(op.body, Precondition):
        raise GraphError(
            f"precondition {op.body.name!r}, at {op.call_site}, holds in a run's first step only, so there is none "
            "in the step before"
        )


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
    pairs = [(entry.op, entry.distance) if isinstance(entry, Previous) else (entry, 0) for entry in entries]
    return [source_of(graph, op, distance) for op, distance in pairs]


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
