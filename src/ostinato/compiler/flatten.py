"""Flat graphs: the ops of nested graphs in place of these, with values in place of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import Node
from ostinato.errors import GraphError
from ostinato.graph.body import Body, Join, Nested, Postcondition, Precondition, Until
from ostinato.graph.op import Op
from ostinato.graph.operations import check_given
from ostinato.graph.param import REQUIRED, Param
from ostinato.ranks.channels import NOTHING_IN_COMMON, Common
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Source

Triple: TypeAlias = tuple[int, int, int]  # Index of the earlier op, of the later one, distance in steps.


class Inference(NamedTuple):
    """Ops among which dependences follow from accesses."""

    low: int
    high: int  # The ops are those from `low` on, without `high`.
    apart: tuple[tuple[int, int], ...]  # Ranges within; of two ops of the same one, neither follows from the other.


class Flat(NamedTuple):
    """A graph without nested graphs, before dependences follow from accesses."""

    ops: tuple[Op, ...]
    explicit_edges: Sequence[Triple]
    params: Mapping[str, Param]  # Those of the outermost graph.
    serial: bool  # Whether each step begins when the one before has ended.
    inferences: tuple[Inference, ...]
    step_order: Sequence[Triple] = ()
    """Edges that keep steps of nested graphs apart; they order ops, but make none depend on another."""
    outer: Sequence[int] | None = None
    """By op, the op of the outermost graph that it is, or is nested in; None where no graph is nested."""
    common: Common = NOTHING_IN_COMMON
    """What must be the same on all ranks."""

    def __str__(self) -> str:
        before: list[list[str]] = [[] for _ in self.ops]
        for src, dst, distance in sorted(self.explicit_edges):
            before[dst].append(f"{src}-{distance}" if distance else f"{src}")
        lines = (
            f"{op.index}  {op.name}  {type(op.body).__name__}  after {' '.join(earlier) or 'nothing'}  {op.call_site}"
            for op, earlier in zip(self.ops, before, strict=True)
        )
        return "\n".join([f"{counted(len(self.ops), 'op')}{', serial' * self.serial}; edges that were given:", *lines])


def flatten(graph: Graph) -> Flat:
    """Return a graph with the ops of nested graphs in place of these.

    Parameters of inner graphs become constants, or parameters of the outermost. Their conditions, and the begin and the
    end of each nested graph, become joins, if joining the edges at once would take more of them.

    Raises GraphError if ops come after themselves, or a nested graph has changed: what it is given no longer fits.
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
    """One use of a graph.

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
        stays = np.ones(len(self._bodies) + 1, np.int64)
        stays[list(gone)] = 0
        new_index = (np.cumsum(stays) - stays).tolist()
        kept = [node for node in range(len(self._bodies)) if node not in gone]
        ops = [self._flat_node(node, index) for index, node in enumerate(kept)]
        outer = [self._outer[node] for node in kept]
        explicit = [(new_index[src], new_index[dst], distance) for src, dst, distance in edges]
        step_order = self._step_order(ops, outer, explicit, new_index)
        inferences = tuple(self._inferences(new_index))
        serial = self._scopes[0].shape.serial
        return Flat(tuple(ops), explicit, self._graph.params, serial, inferences, step_order, outer)

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
                inner_values = find_inner_values(body, values)
                scope.entry.append(self._add(op, self._join, outer))
                inner = self._scope(body.graph, scope, inner_values, outer)
                inner.begin = scope.entry[-1]
                scope.scopes[op.index] = inner
                return inner
            if values is not None:
                body = self._join if isinstance(body, Precondition | Postcondition) else replace_params(op, values)
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
        cycle = _core.passes.find_cycle(len(self._bodies), tuple(np.ascontiguousarray(edges)))
        raise GraphError(tell_cycle(self._originals[node] for node in cycle.tolist()))

    def _inferences(self, new_index: list[int]) -> Iterator[Inference]:
        """Two ops belong together if the innermost graph that has both infers."""
        apart: dict[_Scope, list[tuple[int, int]]] = {}
        outermost: dict[_Scope, _Scope] = {}  # of scopes that infer: the outermost up to which all infer
        for scope in self._scopes:
            above = scope.parent is not None and scope.parent.graph.infer
            if scope.graph.infer:
                outermost[scope] = outermost[scope.parent] if above and scope.parent is not None else scope
                apart.setdefault(outermost[scope], [])
            elif above and scope.parent is not None:
                apart[outermost[scope.parent]].append((new_index[scope.low], new_index[scope.high]))
        for scope, ranges in apart.items():
            yield Inference(new_index[scope.low], new_index[scope.high], tuple(r for r in ranges if r[0] < r[1]))

    def _step_order(self, ops: list[Node], outer: list[int], edges: list[Triple], new_index: list[int]) -> list[Triple]:
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
            for op in ops[new_index[scope.low] : new_index[scope.high]]:
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


class Combined(Param):
    """A parameter of a nested graph which combines its default with a parameter of the graph outside.

    Its name is that of the outermost graph's parameter, which is what a run gives.
    """

    __slots__ = ("_outer",)

    def __init__(self, inner: Param, outer: Param) -> None:
        super().__init__(outer.name, inner.default, inner.combine)
        self._outer = outer

    def value_in(self, given: Mapping[str, Any]) -> Any:
        """Return what tasks get in a run that gives these values by name; `REQUIRED` where it lacks one."""
        value = self._outer.value_in(given)
        assert self.combine is not None
        return value if value is REQUIRED else self.combine(self.default, value)


def find_inner_values(nested: Nested, outer: Mapping[str, object] | None) -> dict[str, object]:
    """Return by name what the parameters of a nested graph are: values, or parameters of the outermost graph.

    `outer` is the same for the graph that it is nested in; None for the outermost.
    """
    values: dict[str, object] = {}
    for name, param in nested.graph.params.items():
        if name not in nested.params:
            values[name] = param.default
            continue
        given = nested.params[name]
        if isinstance(given, Param) and outer is not None:
            given = outer[given.name]
        if not isinstance(given, Param):
            values[name] = param.value_in({name: given})
        elif param.combine is None or param.default is REQUIRED:
            values[name] = given
        else:
            values[name] = Combined(param, given)
    return values


def replace_params(op: Op, values: Mapping[str, object]) -> Body:
    """Return the body of an op with values, or other parameters, in place of its parameters.

    Raises TypeError, ValueError, OverflowError if a value is not of the kind that the op takes.
    """

    def find_value(arg: Any, convert: Callable[[Any, str], Any] | None = None) -> Any:
        if not isinstance(arg, Param):
            return arg
        value = values[arg.name]
        if convert is None or isinstance(value, Param):
            return value
        return convert(value, f"parameter {arg.name!r} of a nested graph, used by {op.name!r} at {op.call_site},")

    return op.body.map_params(find_value)


_Ends: TypeAlias = "dict[tuple[int, int], None]"
"""Nodes at the other end of edges, with the distance; in the order in which they were found."""


def splice(
    edges: Iterable[tuple[int, int, int]], joins: Collection[int]
) -> tuple[list[tuple[int, int, int]], set[int]]:
    """Return edges that order all nodes but the joins as before, and the joins that are gone.

    A join goes, with its edges joined and their distances added, where that makes no more edges. One that comes after
    itself stays: it carries order from step to step.
    """
    before: dict[int, _Ends] = {join: {} for join in joins}
    after: dict[int, _Ends] = {join: {} for join in joins}
    plain: dict[tuple[int, int, int], None] = {}

    def add(src: int, dst: int, distance: int) -> None:
        if src in after:
            after[src][dst, distance] = None
        if dst in before:
            before[dst][src, distance] = None
        elif src not in after:
            plain[src, dst, distance] = None

    for src, dst, distance in edges:
        add(src, dst, distance)
    gone: set[int] = set()
    waiting = list(joins)
    while waiting:
        join = waiting.pop()
        if join in gone:
            continue
        sources, targets = before[join], after[join]
        if len(sources) * len(targets) > len(sources) + len(targets) or any(src == join for src, _ in sources):
            continue
        gone.add(join)
        del before[join], after[join]
        for src, distance in sources:
            if src in after:
                del after[src][join, distance]
                waiting.append(src)
        for dst, distance in targets:
            if dst in before:
                del before[dst][join, distance]
                waiting.append(dst)
        for src, first in sources:
            for dst, second in targets:
                add(src, dst, first + second)
    kept = [(src, join, distance) for join, sources in before.items() for src, distance in sources if src not in after]
    kept += [(join, dst, distance) for join, targets in after.items() for dst, distance in targets]
    return [*plain, *kept], gone
