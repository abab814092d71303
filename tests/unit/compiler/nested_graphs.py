"""Random graphs inside graphs, and what comes after what in them, found the slow way: each graph a node of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from compiler.graphs import MODES, Access, body, conflict
from ostinato.graph.body import Nested, Postcondition, Precondition
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op, Port, previous
from ostinato.graph.ring import ring

DEPTH = 3


@st.composite
def nested_graphs(draw: st.DrawFn) -> Graph:
    """A graph with graphs inside, of which some occur several times."""
    line = np.zeros(6)
    pool: list[Any] = [line[:4], line[2:], np.zeros(2), ring(np.zeros(2), np.zeros(2)), object()]
    if draw(st.booleans()):
        pool.append(ring(line[:3], line[3:]))
    known: list[Graph] = []
    for depth in range(DEPTH + 1):
        for _ in range(2 if 0 < depth < DEPTH else 1):
            known.append(_graph(draw, pool, known))
    return known[-1]


def _graph(draw: st.DrawFn, pool: list[Any], known: list[Graph]) -> Graph:
    graph = Graph(infer=draw(st.booleans()))
    sources: list[Op | Port] = []

    def some(least: int = 0) -> list[Any]:
        if len(sources) < 1:
            return []
        chosen = draw(st.lists(st.sampled_from(sources), min_size=least, max_size=2))
        return [each if is_precondition(each) or draw(st.integers(0, 4)) else previous(each) for each in chosen]

    for number in range(draw(st.sampled_from([3, 4, 2, 1, 0]))):
        kind = draw(st.sampled_from(["nested", "task", "nested", "task", "before", "after"]))
        if kind == "before":
            sources.append(graph.precondition(f"before {number}"))
        elif kind == "after":
            after = [each for each in some(1) if not is_precondition(each)]
            if after:
                graph.postcondition(f"after {number}", after)
        elif kind == "nested" and known:
            inner = draw(st.sampled_from(known))
            op = graph.subgraph(inner, {}, {name: some() for name in inner.preconditions}, some())
            sources += [op, *op.posts.values()]
        else:
            accesses = []
            for _ in range(draw(st.integers(0, 2))):
                value = draw(st.sampled_from(pool))
                accesses.append(Access(value[draw(st.integers(0, 1))] if hasattr(value, "arrays") else value, 0))
            modes = [draw(st.integers(1, 3)) for _ in accesses]
            values = [access.value for access in accesses]
            sources.append(graph.task(body, *values, access=tuple(MODES[mode] for mode in modes), after=some()))
    ends = [op for op in graph.ops if not isinstance(op.body, Precondition | Postcondition)]
    for _ in range(draw(st.integers(0, 2)) if ends else 0):
        src = draw(st.sampled_from([source for source in sources if not is_precondition(source)]))
        graph.edge(src, draw(st.sampled_from(ends)), draw(st.integers(1, 2)))
    return graph


def is_precondition(source: object) -> bool:
    return isinstance(source, Op) and isinstance(source.body, Precondition)


class Node(NamedTuple):
    """An op in one of its places: indices of nested ops from the outermost, then its own; or an end of such a place."""

    path: tuple[int, ...]
    what: str  # "op", "begin" or "end"


class Oracle:
    """Nodes in program order, and edges between them, with the graphs that they are in."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: dict[Node, Op] = {}
        self.edges: list[tuple[Node, Node, int]] = []
        self.serial: list[tuple[int, ...]] = []
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._walk(graph, ())
        self.number = {node: index for index, node in enumerate(self.nodes)}
        self.real = [node for node, op in self.nodes.items() if node.what == "op" and not self._is_condition(node, op)]

    def given(self) -> list[tuple[int, int, int]]:
        return [(self.number[src], self.number[dst], distance) for src, dst, distance in self.edges]

    def conflicts(self, steps: int) -> Iterator[tuple[int, int]]:
        """Pairs of nodes, steps written out, that come after each other for what they access."""
        accesses = {node: self._accesses(self.nodes[node]) for node in self.real}
        for a, b in product(self.real, self.real):
            common = next(i for i in count() if i == len(a.path) - 1 or a.path[: i + 1] != b.path[: i + 1])
            if not self._graphs[a.path[:common]].infer:
                continue
            for s, t in product(range(steps), range(steps)):
                ordered = (s, self.number[a]) < (t, self.number[b])
                if ordered and any(conflict(x, y, s, t) for x, y in product(accesses[a], accesses[b])):
                    yield s * len(self.nodes) + self.number[a], t * len(self.nodes) + self.number[b]

    def kept_apart(self) -> Iterator[tuple[int, int, int]]:
        """Edges from each step to the next within graphs that begin a step when the one before has ended."""
        for path in self.serial:
            inside = [self.number[node] for node in self.real if node.path[: len(path)] == path]
            yield from ((a, b, 1) for a, b in product(inside, inside))

    def _walk(self, graph: Graph, path: tuple[int, ...]) -> None:
        self._graphs[path] = graph
        distances = []

        def after(op: int, post: str | None) -> Node:
            place = (*path, op)
            if post is not None:
                return Node((*place, graph.ops[op].body.graph.postconditions[post].index), "op")
            return Node(place, "end" if isinstance(graph.ops[op].body, Nested) else "op")

        def before(op: int) -> Node:
            return Node((*path, op), "begin" if isinstance(graph.ops[op].body, Nested) else "op")

        for op in graph.ops:
            place = (*path, op.index)
            if not isinstance(op.body, Nested):
                self.nodes[Node(place, "op")] = op
                continue
            inner = op.body.graph
            self.nodes[Node(place, "begin")] = op
            self._walk(inner, place)
            self.nodes[Node(place, "end")] = op
            self.edges.append((Node(place, "begin"), Node(place, "end"), 0))
            for each in inner.ops:
                own = Node((*place, each.index), "op")
                first, last = (own, own) if own in self.nodes else (own._replace(what=w) for w in ("begin", "end"))
                if not isinstance(each.body, Precondition | Postcondition):
                    self.edges.append((Node(place, "begin"), first, 0))
                if not isinstance(each.body, Postcondition):
                    self.edges.append((last, Node(place, "end"), 0))
            for name, sources in op.body.preconditions.items():
                for source in sources:
                    condition = Node((*place, inner.preconditions[name].index), "op")
                    self.edges.append((after(source.op, source.post), condition, source.distance))
                    distances.append(source.distance)
        self.edges += [(after(src, None), before(dst), d) for src, dst, d in graph.explicit_edges]
        self.edges += [(after(src, post), before(dst), d) for src, post, dst, d in graph.port_edges]
        distances += [edge[-1] for edge in (*graph.explicit_edges, *graph.port_edges)]
        if not graph.infer and not any(distances):
            self.serial.append(path)

    def _is_condition(self, node: Node, op: Op) -> bool:
        return len(node.path) > 1 and isinstance(op.body, Precondition | Postcondition)

    def _accesses(self, op: Op) -> list[Access]:
        if isinstance(op.body, Precondition | Postcondition):
            return []
        return [Access(operand.value, operand.mode) for operand in op.operands] or [Access(_ORDER, 3)]


_ORDER = object()
