"""Edges say what line-by-line execution says, and nothing more."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given

from compiler.graphs import Access, body, conflict, graphs
from compiler.unrolled import closure, unroll
from ostinato.compiler.dependences import add_step_barrier, find_dependences
from ostinato.compiler.flatten import flatten
from ostinato.compiler.ir import edges_of
from ostinato.errors import GraphError
from ostinato.graph.access import Read, ReadWrite, Write
from ostinato.graph.graph import Graph
from ostinato.graph.ring import ring

STEPS = 7


def triples(edges):
    return list(zip(*(values.tolist() for values in edges), strict=True))


@given(graphs())
def test_edges_reach_exactly_what_accesses_reach(case: tuple[Graph, list[list[Access]]]) -> None:
    graph, accesses = case
    ops = len(graph)
    hidden = object()
    accesses = [some or [Access(hidden, 3)] for some in accesses]
    nodes = list(product(range(STEPS), range(ops)))
    expected = [
        (step * ops + a, later * ops + b)
        for (step, a), (later, b) in product(nodes, nodes)
        if (step, a) < (later, b) and any(conflict(x, y, step, later) for x, y in product(accesses[a], accesses[b]))
    ]
    expected += unroll(ops, STEPS, graph.explicit_edges)
    found = unroll(ops, STEPS, triples(find_dependences(flatten(graph))))
    assert np.array_equal(closure(STEPS * ops, found), closure(STEPS * ops, expected))


def test_a_chain_has_one_edge_an_op() -> None:
    graph, array = Graph(), np.zeros(3)
    for _ in range(1000):
        graph.task(body, array, access=(ReadWrite,))
    assert len(find_dependences(flatten(graph)).src) == 1000


def test_readers_of_all_do_not_pile_up() -> None:
    graph, array = Graph(), np.zeros(64)
    for _ in range(20):
        for tile in range(64):
            graph.task(body, array[tile : tile + 1], access=(ReadWrite,))
        graph.task(body, array, access=(Read,))
    assert len(find_dependences(flatten(graph)).src) <= 20 * 64 * 3


def test_distinct_rings_over_the_same_arrays_are_one() -> None:
    a, b = np.zeros(4), np.zeros(4)
    graph = Graph()
    graph.task(body, ring(a, b)[0], ring(a, b)[1], access=(Read, Write))
    assert triples(find_dependences(flatten(graph))) == [(0, 0, 1), (0, 0, 2)]


def test_a_ring_over_a_view_of_what_others_use_elsewhere_stays_exact() -> None:
    stack = np.zeros((3, 4))
    turns = ring(stack[0], stack[1])
    graph = Graph()
    graph.task(body, turns[0], access=(Read,))
    graph.task(body, turns[1], access=(Write,))
    graph.task(body, stack[2], access=(Write,))
    assert triples(find_dependences(flatten(graph))) == [(1, 0, 1), (0, 1, 1), (1, 1, 2), (2, 2, 1)]


def test_ops_without_operands_keep_their_order() -> None:
    graph = Graph()
    for _ in range(3):
        graph.task(body, access=())
    assert triples(find_dependences(flatten(graph))) == [(2, 0, 1), (0, 1, 0), (1, 2, 0)]


def test_without_inference_only_given_edges_hold() -> None:
    array = np.zeros(3)
    graph = Graph(infer=False)
    first = graph.task(body, array, access=(Write,))
    second = graph.task(body, array, access=(Write,), after=first)
    assert triples(find_dependences(flatten(graph))) == [(0, 1, 0)]
    assert flatten(graph).serial
    graph.edge(second, first, 1)
    assert not flatten(graph).serial


def test_a_cycle_is_told_op_by_op() -> None:
    graph = Graph(infer=False)
    ops = [graph.task(body, access=(), name=name) for name in ("one", "two", "three", "apart")]
    graph.edge(ops[0], ops[1])
    graph.edge(ops[1], ops[2])
    graph.edge(ops[2], ops[0])
    with pytest.raises(GraphError) as error:
        find_dependences(flatten(graph))
    lines = str(error.value).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["'one'", "'two'", "'three'"]
    assert all(str(op.call_site) in line for op, line in zip(ops, lines[1:4], strict=False))
    assert "apart" not in str(error.value)


def test_an_inferred_and_a_given_edge_can_make_a_cycle() -> None:
    array = np.zeros(3)
    graph = Graph()
    first, second = (graph.task(body, array, access=(Write,)) for _ in range(2))
    graph.edge(second, first)
    with pytest.raises(GraphError):
        find_dependences(flatten(graph))


def test_a_barrier_op_separates_steps() -> None:
    edges = add_step_barrier(edges_of(3, [0], [1], [0]), 3)
    reach = closure(12, unroll(4, 3, triples(edges)))
    steps = np.arange(12) // 4
    ops = np.arange(12) % 4 < 3
    later = steps[:, None] < steps[None, :]
    assert reach[np.ix_(ops, ops)][later[np.ix_(ops, ops)]].all()
    assert reach[0, 1]
    assert not reach[0, 2]


def test_an_empty_graph_has_no_edges() -> None:
    assert triples(find_dependences(flatten(Graph()))) == []
