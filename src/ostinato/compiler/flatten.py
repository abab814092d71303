"""Nested graphs in place of their ops: one flat graph for the passes that follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ostinato import _core
from ostinato.compiler.bound import given_values, with_values
from ostinato.compiler.ir import Node
from ostinato.compiler.joins import splice
from ostinato.errors import GraphError
from ostinato.graph.body import Join, Nested, Postcondition, Precondition, Until
from ostinato.graph.nested import check_given

if TYPE_CHECKING:
    from ostinato.graph.body import Body
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op
    from ostinato.graph.param import Param
    from ostinato.graph.sources import Source

__all__ = ["Flat", "Inference", "flatten", "is_serial", "ports_in", "tell_cycle"]

Triple: TypeAlias = tuple[int, int, int]
"""Index of the earlier op, of the later one, distance in steps."""


class Inference(NamedTuple):
    """Ops among which dependences follow from accesses."""

    low: int
    high: int
    """The ops are those from `low` on, without `high`."""
    apart: tuple[tuple[int, int], ...]
    """Ranges within; of two ops of the same one, neither follows from the other."""


@dataclass(frozen=True)
class Flat:
    """A graph without nested graphs, before dependences follow from accesses."""

    ops: tuple[Op, ...]
    explicit_edges: Sequence[Triple]
    params: Mapping[str, Param]
    """Those of the outermost graph."""
    serial: bool
    """Whether each step begins when the one before has ended."""
    inferences: tuple[Inference, ...]
    step_order: Sequence[Triple] = ()
    """Edges that keep steps of nested graphs apart; they order ops, but make none depend on another."""
    outer: Sequence[int] | None = None
    """By op, the op of the outermost graph that it is, or is nested in; None where no graph is nested."""


def flatten(graph: Graph) -> Flat:
    """Return a graph with the ops of nested graphs in place of these.

    Parameters of inner graphs become constants, or parameters of the outermost. Their conditions, and the begin and the
    end of each nested graph, become joins, if joining the edges at once would take more of them.

    Raises
    ------
    GraphError
        Ops come after themselves, or a nested graph has changed so that what it is given no longer fits.
    """
    if graph.nested:
        return _Flattening(graph).flat()
    ops = graph.ops
    inferences = (Inference(0, len(ops), ()),) if graph.infer else ()
    return Flat(ops, graph.explicit_edges, graph.params, is_serial(graph), inferences)


def is_serial(graph: Graph) -> bool:
    """Whether each step of a graph begins when the one before has ended: no inference, no edges between steps."""
    return not graph.infer and not any(
        distance
        for distance in (
            *(edge[2] for edge in graph.explicit_edges),
            *(edge[3] for edge in graph.port_edges),
            *(source.distance for _, _, source in ports_in(graph)),
        )
    )


def tell_cycle(cycle: Iterable[Op]) -> str:
    """Return a message that names ops which come after each other in a circle."""
    named = dict.fromkeys(op.original for op in cycle)
    return "\n".join(
        [
            "these ops wait for each other within one step, each for the one before it and the first for the last:",
            *(f"  {op.name!r} at {op.call_site}" for op in named),
            "give one of the edges between them a distance of 1 or more, or leave it out",
        ]
    )


def ports_in(graph: Graph) -> Iterator[tuple[int, str, Source]]:
    """Yield what preconditions of nested graphs come after: index of the nested op, name, source."""
    if graph.nested:
        for op in graph.ops:
            if isinstance(op.body, Nested):
                for name, sources in op.body.preconditions.items():
                    for source in sources:
                        yield op.index, name, source


class _Shape:
    """What is the same wherever a graph is nested.

    `first` are the ops that come after all of no other op in a step, `last` those that no op comes after all of: what
    comes after a postcondition of a nested graph may, through that, come after steps before only.
    """

    def __init__(self, graph: Graph) -> None:
        self.ops = graph.ops
        self.serial = is_serial(graph)
        self.ports = list(ports_in(graph))
        bodies = [op.body for op in self.ops]
        entered, left = set(), set()
        for src, dst, distance in graph.explicit_edges:
            if distance == 0:
                if not isinstance(bodies[src], Precondition):
                    entered.add(dst)
                if not isinstance(bodies[dst], Postcondition):
                    left.add(src)
        left.update(source.op for _, _, source in self.ports if source.post is None and source.distance == 0)
        inside = [op.index for op in self.ops if not isinstance(op.body, Postcondition)]
        self.first = [i for i in inside if i not in entered and not isinstance(bodies[i], Precondition)]
        self.last = [i for i in inside if i not in left]


class _Scope:
    """A graph in one of its places.

    `entry` and `exit` are, by op, the nodes that edges to it and from it go to: one node, but for nested graphs.
    """

    def __init__(
        self, graph: Graph, shape: _Shape, parent: _Scope | None, values: Mapping[str, object] | None, outer: int
    ) -> None:
        self.graph = graph
        self.shape = shape
        self.parent = parent
        self.values = values  # of parameters by name; None for the outermost graph, whose parameters stay
        self.outer = outer
        self.entry: list[int] = []
        self.exit: list[int] = []
        self.scopes: dict[int, _Scope] = {}  # by op
        self.low = self.high = 0  # nodes
        self.begin = self.end = -1

    def node(self, op: int, post: str | None) -> int:
        """The node that an edge from an op, or from a postcondition of it, comes from."""
        if post is None:
            return self.exit[op]
        inner = self.scopes[op]
        if post not in inner.graph.postconditions:
            raise GraphError(f"{self.graph.ops[op]!r} has no postcondition {post!r} any more: the graph was discarded")
        return inner.exit[inner.graph.postconditions[post].index]


class _Flattening:
    """Nodes are the ops of all graphs in program order, and joins, of which most go in the end."""

    def __init__(self, graph: Graph) -> None:
        self._originals: list[Op] = []
        self._bodies: list[Body] = []
        self._outer: list[int] = []
        self._edges: list[Triple] = []
        self._scopes: list[_Scope] = []  # outer ones first
        self._shapes: dict[Graph, _Shape] = {}
        self._graph = graph
        self._join = Join()

    def flat(self) -> Flat:
        """Return the flat graph."""
        self._add_nodes()
        self._add_edges()
        self._check_stops()
        joins = [node for node, body in enumerate(self._bodies) if isinstance(body, Join)]
        edges, gone = splice(self._edges, joins)
        if any(src == dst and distance == 0 for src, dst, distance in edges):
            self._raise_cycle()
        place = np.ones(len(self._bodies) + 1, np.int64)
        place[list(gone)] = 0
        place = np.cumsum(place) - place
        places = place.tolist()
        kept = [node for node in range(len(self._bodies)) if node not in gone]
        ops = [self._flat_node(node, index) for index, node in enumerate(kept)]
        outer = [self._outer[node] for node in kept]
        explicit = [(places[src], places[dst], distance) for src, dst, distance in edges]
        step_order = self._step_order(ops, outer, explicit, places)
        return Flat(
            tuple(ops),
            explicit,
            self._graph.params,
            self._scopes[0].shape.serial,
            tuple(self._inferences(places)),
            step_order,
            outer,
        )

    def _add_nodes(self) -> None:
        top = self._scope(self._graph, None, None, -1)
        waiting = [(top, iter(top.shape.ops))]
        while waiting:
            scope, rest = waiting[-1]
            inner = self._add_ops(scope, rest)
            if inner is not None:
                waiting.append((inner, iter(inner.shape.ops)))
                continue
            waiting.pop()
            scope.high = len(self._bodies)
            if scope.parent is not None:
                scope.end = self._add(self._originals[scope.begin], self._join, scope.outer)
                scope.parent.exit.append(scope.end)

    def _add_ops(self, scope: _Scope, rest: Iterator[Op]) -> _Scope | None:
        """Add ops up to the next nested graph; return the scope of that."""
        values = scope.values
        for op in rest:
            outer = op.index if scope.parent is None else scope.outer
            body = op.body
            if isinstance(body, Nested):
                check_given(body)
                inner_values = given_values(body, values)
                scope.entry.append(self._add(op, self._join, outer))
                inner = self._scope(body.graph, scope, inner_values, outer)
                inner.begin = scope.entry[-1]
                scope.scopes[op.index] = inner
                return inner
            if values is not None:
                body = self._join if isinstance(body, Precondition | Postcondition) else with_values(op, values)
            node = self._add(op, body, outer)
            scope.entry.append(node)
            scope.exit.append(node)
        return None

    def _scope(self, graph: Graph, parent: _Scope | None, values: Mapping[str, object] | None, outer: int) -> _Scope:
        shape = self._shapes.get(graph)
        if shape is None:
            shape = self._shapes[graph] = _Shape(graph)
        scope = _Scope(graph, shape, parent, values, outer)
        scope.low = len(self._bodies)
        self._scopes.append(scope)
        return scope

    def _add(self, original: Op, body: Body, outer: int) -> int:
        self._originals.append(original)
        self._bodies.append(body)
        self._outer.append(outer)
        return len(self._bodies) - 1

    def _flat_node(self, node: int, index: int) -> Node:
        body = self._bodies[node]
        return Node(self._originals[node], index, body, recorded=body)

    def _add_edges(self) -> None:
        edges = self._edges
        reached, used = bytearray(len(self._bodies)), bytearray(len(self._bodies))
        for scope in self._scopes:
            graph, shape, entry, leave = scope.graph, scope.shape, scope.entry, scope.exit
            first = len(edges)
            edges += [(leave[src], entry[dst], distance) for src, dst, distance in graph.explicit_edges]
            edges += [(scope.node(src, post), entry[dst], distance) for src, post, dst, distance in graph.port_edges]
            for index, name, source in shape.ports:
                inner = scope.scopes[index]
                condition = inner.entry[inner.graph.preconditions[name].index]
                edges.append((scope.node(source.op, source.post), condition, source.distance))
            if scope.begin >= 0 and reached[scope.begin]:
                edges += [(scope.begin, entry[i], 0) for i in shape.first]
                if not shape.first:
                    edges.append((scope.begin, scope.end, 0))
            if scope.begin >= 0 and used[scope.end]:
                edges += [(leave[i], scope.end, 0) for i in shape.last]
            for src, dst, _ in edges[first:]:
                used[src] = reached[dst] = 1

    def _check_stops(self) -> None:
        stops = [op for op, body in zip(self._originals, self._bodies, strict=True) if isinstance(body, Until)]
        if len(stops) > 1:
            sites = " and ".join(str(op.call_site) for op in stops[:2])
            raise GraphError(f"a graph has at most one until(), nested graphs included, but there are those at {sites}")

    def _raise_cycle(self) -> None:
        edges = np.array(self._edges, np.int32).T
        cycle = _core.passes.find_cycle(len(self._bodies), *(np.ascontiguousarray(row) for row in edges))
        raise GraphError(tell_cycle(self._originals[node] for node in cycle.tolist()))

    def _inferences(self, places: list[int]) -> Iterator[Inference]:
        """Two ops belong together if the innermost graph that has both infers."""
        apart: dict[_Scope, list[tuple[int, int]]] = {}
        home: dict[_Scope, _Scope] = {}  # of scopes that infer: the outermost up to which all infer
        for scope in self._scopes:
            above = scope.parent is not None and scope.parent.graph.infer
            if scope.graph.infer:
                home[scope] = home[scope.parent] if above and scope.parent is not None else scope
                apart.setdefault(home[scope], [])
            elif above and scope.parent is not None:
                apart[home[scope.parent]].append((places[scope.low], places[scope.high]))
        for scope, ranges in apart.items():
            yield Inference(places[scope.low], places[scope.high], tuple(r for r in ranges if r[0] < r[1]))

    def _step_order(self, ops: list[Node], outer: list[int], edges: list[Triple], places: list[int]) -> list[Triple]:
        """Keep the steps of nested graphs apart where each begins when the one before has ended."""
        alone: list[_Scope] = []
        within: set[_Scope] = set()
        for scope in self._scopes:
            if scope.parent in within:
                within.add(scope)
            elif scope.shape.serial:
                within.add(scope)
                if scope.parent is not None:
                    alone.append(scope)
        if not alone:
            return []
        of = [-1] * len(ops)
        for number, scope in enumerate(alone):
            for op in ops[places[scope.low] : places[scope.high]]:
                if not isinstance(op.body, Join):
                    of[op.index] = number
        last: list[list[int]] = [[] for _ in alone]
        first: list[list[int]] = [[] for _ in alone]
        inside = [(src, dst) for src, dst, distance in edges if distance == 0 and of[src] == of[dst]]
        left, entered = {src for src, _ in inside}, {dst for _, dst in inside}
        for index, number in enumerate(of):
            if number >= 0:
                if index not in left:
                    last[number].append(index)
                if index not in entered:
                    first[number].append(index)
        found: list[Triple] = []
        for scope, before, after in zip(alone, last, first, strict=True):
            if len(before) * len(after) <= len(before) + len(after):
                found += [(src, dst, 1) for src in before for dst in after]
                continue
            between = len(ops)
            ops.append(self._flat_node(scope.begin, between))
            outer.append(scope.outer)
            found += [(src, between, 0) for src in before] + [(between, dst, 1) for dst in after]
        return found
