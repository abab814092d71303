"""`Graph.edges`: given and inferred dependences between the ops of a graph, nested graphs as one op each."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.events import Barrier, Reservation


@ost.task
def work(a: ost.ReadWrite): ...


@ost.task
def look(a: ost.Read): ...


@pytest.fixture
def graph():
    return ost.Graph()


def test_what_meets_the_outside_accesses_nothing(graph):
    barrier, reservation = Barrier(1), Reservation()
    first = graph.task(work, np.zeros(1))
    ready = graph.precondition("ready")
    graph.arrive(barrier)
    waited = graph.wait(barrier)
    acquired = graph.acquire(reservation, after=ready)
    last = graph.task(work, np.zeros(1), after=[waited, acquired])
    graph.release(reservation, after=last)
    done = graph.postcondition("done", after=last)
    given = {(a, b, d) for a, b, d in graph.given_edges}
    assert {(a, b, d) for a, b, d in graph.edges} == given | {(op, op, 1) for op in (first, last)}
    assert (last, done, 0) in given


def test_a_nested_graph_stands_for_all_that_is_in_it(graph):
    a, b = np.zeros(2), np.zeros(2)
    inner = ost.Graph()
    inner.task(work, a)
    inner.task(work, b)
    first = graph.task(work, a)
    nested = graph.subgraph(inner)
    last = graph.task(look, b)
    edges = graph.edges
    assert (first, nested, 0) in edges
    assert (nested, last, 0) in edges
    assert (nested, first, 1) in edges
    assert (nested, nested, 1) in edges
    assert (first, last, 0) not in edges
    assert not any(src is dst and distance == 0 for src, dst, distance in edges)
    assert {op for edge in edges for op in edge[:2]} <= set(graph.ops)


def test_given_edges_of_nested_graphs_are_among_them(graph):
    inner = ost.Graph()
    inner.postcondition("done", inner.task(work, np.zeros(1), after=inner.precondition("go")))
    first = graph.task(work, np.zeros(1))
    ready = graph.precondition("ready")
    nested = graph.subgraph(inner, preconditions={"go": [ready, ost.previous(first)]})
    last = graph.task(work, np.zeros(1), after=nested.posts["done"])
    other = graph.subgraph(inner, preconditions={"go": ()}, after=ost.previous(nested.posts["done"]))
    edges = graph.edges
    for edge in ((ready, nested, 0), (first, nested, 1), (nested, last, 0), (nested, other, 1)):
        assert edge in edges


def test_without_inference_those_given_are_all():
    a = np.zeros(1)
    inner, graph = ost.Graph(infer=False), ost.Graph(infer=False)
    inner.task(work, a)
    first = graph.subgraph(inner)
    second = graph.subgraph(inner)
    last = graph.subgraph(inner, after=[first, second])
    assert set(graph.edges) == {(first, last, 0), (second, last, 0)}


def test_a_circle_through_a_nested_graph_is_refused(graph):
    inner = ost.Graph()
    inner.postcondition("done", inner.task(work, np.zeros(1), after=inner.precondition("go")))
    first = graph.task(look, np.zeros(1))
    nested = graph.subgraph(inner, preconditions={"go": first})
    graph.edge(nested.posts["done"], first)
    with pytest.raises(GraphError, match=r"test_edges\.py"):
        _ = graph.edges


def test_what_was_nested_and_no_longer_fits_is_refused(graph):
    inner, flag = ost.Graph(), np.zeros(1)
    graph.subgraph(inner)
    graph.until(flag)
    inner.until(flag)
    with pytest.raises(GraphError, match="at most one until"):
        _ = graph.edges
    late = ost.Graph()
    outer = ost.Graph()
    outer.subgraph(late)
    late.precondition("go")
    with pytest.raises(GraphError, match="declares precondition 'go'"):
        _ = outer.edges
