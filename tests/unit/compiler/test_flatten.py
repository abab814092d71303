"""Nested graphs, inlined, order what they ordered before."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given, settings

from compiler.graphs import body
from compiler.nested_graphs import Oracle, nested_graphs
from compiler.unrolled import closure, unroll
from ostinato.compiler.dependences import find_dependences, find_outer_edges, infer_dependences
from ostinato.compiler.flatten import Flat, flatten
from ostinato.errors import GraphError
from ostinato.events import Barrier
from ostinato.graph.access import Read, ReadWrite, Write
from ostinato.graph.body import Join
from ostinato.graph.graph import Graph
from ostinato.graph.native import native
from ostinato.graph.op import previous

STEPS = 4


def triples(edges):
    return list(zip(*(values.tolist() for values in edges), strict=True))


def reach_of(graph: Flat | Graph, edges) -> np.ndarray:
    """What comes after what, joins left out."""
    ops = len(graph.ops)
    found = closure(STEPS * ops, unroll(ops, STEPS, edges))
    real = np.array([not isinstance(op.body, Join) for op in graph.ops], np.bool_)
    kept = np.flatnonzero(np.tile(real, STEPS))
    return found[np.ix_(kept, kept)]


def reach_in(oracle: Oracle, pairs) -> np.ndarray:
    nodes = len(oracle.nodes)
    found = closure(STEPS * nodes, pairs)
    real = np.array([oracle.number[node] for node in oracle.real], int)
    kept = (np.arange(STEPS)[:, None] * nodes + real).ravel()
    return found[np.ix_(kept, kept)]


@settings(max_examples=60)
@given(nested_graphs())
def test_a_flat_graph_orders_what_the_nested_ones_do(graph: Graph) -> None:
    flat, oracle = flatten(graph), Oracle(graph)
    assert [op.original for op in flat.ops if not isinstance(op.body, Join)] == [
        oracle.nodes[node] for node in oracle.real
    ]
    nodes = len(oracle.nodes)
    given_edges = unroll(nodes, STEPS, oracle.given())
    edges = find_dependences(flat)
    pairs = [*given_edges, *oracle.conflicts(STEPS)]
    assert np.array_equal(reach_of(flat, triples(edges)), reach_in(oracle, pairs))

    kept_apart = unroll(nodes, STEPS, oracle.kept_apart())
    order = triples(infer_dependences(flat).ordering)
    if flat.serial:
        real = [op.index for op in flat.ops if not isinstance(op.body, Join)]
        order += [(a, b, 1) for a in real for b in real]
    assert np.array_equal(reach_of(flat, order), reach_in(oracle, [*pairs, *kept_apart]))


@settings(max_examples=60)
@given(nested_graphs())
def test_edges_of_a_graph_join_its_own_ops(graph: Graph) -> None:
    oracle, ops = Oracle(graph), len(graph)
    outer = np.array([node.path[0] for node in oracle.nodes], int)
    nodes = len(oracle.nodes)

    def contracted(pairs) -> np.ndarray:
        steps = [
            (src // nodes * ops + outer[src % nodes], dst // nodes * ops + outer[dst % nodes]) for src, dst in pairs
        ]
        return closure(STEPS * ops, {(src, dst) for src, dst in steps if src != dst})

    pairs = [*unroll(nodes, STEPS, oracle.given()), *oracle.conflicts(STEPS)]
    real = np.flatnonzero(np.tile([node in set(oracle.real) for node in oracle.nodes], STEPS))
    between_real = [(src, dst) for src, dst in np.argwhere(closure(STEPS * nodes, pairs)) if {src, dst} <= {*real}]
    given_edges = [(src.index, dst.index, distance) for src, dst, distance in graph.given_edges]
    found = triples(find_outer_edges(graph))
    assert all(src != dst or distance for src, dst, distance in found)
    assert set(given_edges) <= set(found)
    reach = closure(STEPS * ops, unroll(ops, STEPS, found))
    assert not (contracted(between_real) & ~reach).any()
    assert not (reach & ~contracted(pairs)).any()  # ends of nested graphs may count as something of theirs


def test_a_graph_without_nested_ones_is_left_as_it_is() -> None:
    graph = Graph()
    graph.task(body, access=())
    assert flatten(graph).ops == graph.ops


def test_nested_graphs_that_nothing_orders_need_no_joins() -> None:
    inner, graph = Graph(), Graph()
    inner.task(body, np.zeros(2), access=(Write,))
    for _ in range(3):
        graph.subgraph(inner)
    flat = flatten(graph)
    assert [op.original for op in flat.ops] == [*inner.ops] * 3
    assert [op.index for op in flat.ops] == [0, 1, 2]
    assert flat.explicit_edges == []
    assert triples(find_outer_edges(graph)) == [(2, 0, 1), (0, 1, 0), (1, 2, 0)]


def test_the_same_graph_very_often_takes_a_join_each() -> None:
    inner, graph = Graph(infer=False), Graph(infer=False)
    for _ in range(10):
        inner.task(body, access=())
    last = ()
    for _ in range(1000):
        last = graph.subgraph(inner, after=last)
    flat = flatten(graph)
    assert len(flat.ops) == 1000 * 11 - 1
    assert len(find_dependences(flat).src) == 999 * 20


def test_graphs_within_graphs_far_down() -> None:
    graph = Graph()
    first = graph.task(body, np.zeros(2), access=(Write,))
    for _ in range(1100):
        graph, inner = Graph(), graph
        graph.subgraph(inner)
    flat = flatten(graph)
    assert [op.original for op in flat.ops] == [first]


def test_order_goes_through_empty_graphs() -> None:
    graph = Graph(infer=False)
    first = graph.task(body, access=())
    through = graph.subgraph(Graph(), after=graph.subgraph(Graph(), after=first))
    last = graph.task(body, access=(), after=previous(through))
    assert flatten(graph).explicit_edges == [(0, 1, 1)]
    assert {(first, graph.ops[1], 0), (graph.ops[1], through, 0), (through, last, 1)} <= set(graph.edges)


def test_ports_go_three_graphs_deep() -> None:
    innermost = Graph(infer=False)
    ops = [innermost.task(body, access=(), name=name) for name in ("left", "right")]
    ready = innermost.precondition("ready")
    innermost.edge(ready, ops[0])
    innermost.postcondition("done", after=ops[0])
    graph = innermost
    for _ in range(2):
        graph, inner = Graph(infer=False), graph
        op = graph.subgraph(inner, {}, {"ready": graph.precondition("ready")})
        graph.postcondition("done", after=op.posts["done"])
    outermost = Graph(infer=False)
    before = outermost.task(body, access=(), name="before")
    op = outermost.subgraph(graph, {}, {"ready": previous(before)})
    outermost.task(body, access=(), name="after", after=op.posts["done"])
    flat = flatten(outermost)
    assert [op.name for op in flat.ops] == ["before", "left", "right", "after"]
    assert sorted(flat.explicit_edges) == [(0, 1, 1), (1, 3, 0)]


def test_conditions_of_the_outermost_graph_stay() -> None:
    inner = Graph(infer=False)
    inner.postcondition("done", after=inner.task(body, access=(), after=inner.precondition("ready")))
    graph = Graph(infer=False)
    op = graph.subgraph(inner, {}, {"ready": graph.precondition("ready")})
    graph.postcondition("done", after=op.posts["done"])
    flat = flatten(graph)
    assert [op.name for op in flat.ops] == ["ready", "body", "done"]
    assert sorted(flat.explicit_edges) == [(0, 1, 0), (1, 2, 0)]


def test_only_tasks_that_access_nothing_keep_their_order() -> None:
    graph, barrier = Graph(), Barrier(1)
    graph.task(body, access=())
    graph.arrive(barrier)
    graph.wait(barrier)
    graph.precondition("p")
    graph.task(body, access=())
    assert triples(find_dependences(flatten(graph))) == [(4, 0, 1), (0, 4, 0)]


def test_what_infers_nothing_inside_still_conflicts_outside() -> None:
    array, inner = np.zeros(2), Graph(infer=False)
    for _ in range(2):
        inner.task(body, array, access=(Write,))
    graph = Graph()
    graph.task(body, array, access=(Read,))
    graph.subgraph(inner)
    edges = find_dependences(flatten(graph))
    assert triples(edges) == [(1, 0, 1), (2, 0, 1), (0, 1, 0), (0, 2, 0)]


def test_blocks_of_ops_that_infer_nothing_inside_do_not_pile_up() -> None:
    array, inner, graph = np.zeros(2), Graph(infer=False), Graph()
    for mode in (Read, Read, Write):
        inner.task(body, array, access=(mode,))
    for _ in range(1000):
        graph.subgraph(inner)
    assert len(find_dependences(flatten(graph)).src) < 1000 * 20


def test_chains_that_are_given_take_an_edge_from_end_to_begin() -> None:
    array, inner, graph = np.zeros(2), Graph(infer=False), Graph()
    last = ()
    for _ in range(50):
        last = inner.task(body, array, access=(ReadWrite,), after=last)
    for _ in range(50):
        graph.subgraph(inner)
    assert len(find_dependences(flatten(graph)).src) == 50 * 50


def test_steps_of_a_graph_that_infers_nothing_are_apart_but_not_poisoned() -> None:
    inner, graph = Graph(infer=False), Graph()
    for _ in range(4):
        inner.task(body, access=())
    graph.subgraph(inner)
    flat = flatten(graph)
    edges = find_dependences(flat)
    assert triples(edges) == []
    assert isinstance(flat.ops[4].body, Join)
    assert triples(infer_dependences(flat).ordering) == [(4, i, 1) for i in range(4)] + [(i, 4, 0) for i in range(4)]


def test_a_cycle_through_nested_graphs_is_told_op_by_op() -> None:
    inner, graph = Graph(infer=False), Graph(infer=False)
    inner.postcondition("done", after=inner.task(body, access=(), after=inner.precondition("ready"), name="within"))
    before = graph.task(body, access=(), name="before")
    nested = graph.subgraph(inner, {}, {"ready": before})
    graph.edge(nested.posts["done"], before)
    with pytest.raises(GraphError, match=r"(?s)'before' at .*'within' at "):
        find_dependences(flatten(graph))


def test_empty_graphs_in_a_circle_are_told() -> None:
    graph = Graph(infer=False)
    first = graph.subgraph(Graph())
    second = graph.subgraph(Graph(), after=first)
    graph.edge(second, first)
    with pytest.raises(GraphError, match="wait for each other") as error:
        flatten(graph)
    assert str(error.value).count("'subgraph' at ") == 2


def test_until_in_a_graph_that_is_nested_twice_is_refused() -> None:
    inner, graph = Graph(), Graph()
    graph.subgraph(inner)
    graph.subgraph(inner)
    inner.until(np.zeros(1))
    with pytest.raises(GraphError, match="at most one until"):
        flatten(graph)


def test_what_a_nested_graph_declares_later_must_be_given_too() -> None:
    inner, graph = Graph(), Graph()
    graph.subgraph(inner)
    inner.precondition("late")
    with pytest.raises(GraphError, match="late"):
        flatten(graph)


def args_of(graph: Graph) -> list[object]:
    return [op.body.args[0] for op in flatten(graph).ops]


def test_parameters_of_nested_graphs_become_values_or_those_outside() -> None:
    inner = Graph()
    inner.task(body, inner.param("x", 1), access=(None,))
    graph = Graph()
    x = graph.param("y", 2)
    for params in ({}, {"x": 7}, {"x": x}):
        graph.subgraph(inner, params)
    assert args_of(graph) == [1, 7, x]


def test_parameters_compose_at_any_depth() -> None:
    graph = Graph()
    graph.task(body, graph.param("x", "a", operator.add), access=(None,))
    for default in ("b", "c"):
        graph, inner = Graph(), graph
        graph.subgraph(inner, {"x": graph.param("x", default, operator.add)})
        graph.subgraph(inner, {"x": default.upper()})
        graph.subgraph(inner)
    args = args_of(graph)
    assert args[0].value_in({"x": "!"}) == "abc!"
    assert args[0].value_in({}) == "abc"
    assert args[1:] == ["aB", "a", "abC", "aB", "a", "ab", "aB", "a"]


def test_values_of_nested_graphs_are_what_ops_take() -> None:
    inner, barrier = Graph(), Barrier(3, reduce="+", initial=0)
    x = inner.param("x", 1)
    inner.task(native(0x1000, (float, int), name="native"), x, x)
    inner.fill(np.zeros((2, 3), np.float32), x)
    inner.arrive(inner.param("barrier"), count=x, value=x)
    inner.wait(inner.param("barrier"))
    graph = Graph()
    graph.subgraph(inner, {"x": np.int64(2), "barrier": barrier})
    called, filled, arrived, waited = (op.body for op in flatten(graph).ops)
    assert [(type(arg), arg) for arg in called.args] == [(float, 2.0), (int, 2)]
    assert filled.value.dtype == np.float32
    assert filled.value == 2
    assert (arrived.barrier, arrived.count, arrived.value) == (barrier, 2, 2)
    assert waited.barrier is barrier


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"x": "two"}, TypeError),
        ({"count": 0}, ValueError),
        ({"barrier": 3}, TypeError),
        ({"fill": [1, 2]}, GraphError),
    ],
)
def test_values_that_ops_cannot_take_are_refused(params, error) -> None:
    inner, barrier = Graph(), Barrier(3)
    inner.task(native(0x1000, (float,), name="native"), inner.param("x"))
    inner.arrive(inner.param("barrier"), count=inner.param("count"))
    inner.fill(np.zeros(3), inner.param("fill"))
    graph = Graph()
    graph.subgraph(inner, {"x": 1.0, "barrier": barrier, "count": 1, "fill": 0.0} | params)
    with pytest.raises(error):
        flatten(graph)
