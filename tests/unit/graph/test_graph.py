"""The explicit graph: ops, edges, and what is refused."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError


@ost.task
def work(a: ost.ReadWrite, factor=1.0): ...


def call(*args):
    return args


@pytest.fixture
def graph():
    return ost.Graph()


def test_tasks_and_callables(graph):
    a, b = np.zeros(3), np.zeros(3)
    first = graph.task(work, a, 2.0, name="mine", on="cpu:0", priority=3)
    second = graph.task(call, a, b, 5, access=(ost.Read, ost.Write, None))
    third = graph.task(print, "text", access=(str,))
    assert (first.name, first.on, first.priority) == ("mine", "cpu:0", 3)
    assert (second.name, second.body.function, second.body.args[2]) == ("call", call, 5)
    assert [operand.mode for operand in second.operands] == [1, 2]
    assert third.operands == ()
    assert graph.ops == (first, second, third)


def test_after_takes_ops_and_iterables_and_previous_steps(graph):
    a = graph.fill(np.zeros(1), 0)
    b = graph.fill(np.zeros(1), 0, after=a)
    c = graph.fill(np.zeros(1), 0, after=[a, ost.previous(b)])
    graph.fill(np.zeros(1), 0, after=iter((ost.previous(ost.previous(c)), b)))
    assert graph.explicit_edges == [(0, 1, 0), (0, 2, 0), (1, 2, 1), (2, 3, 2), (1, 3, 0)]


def test_edges(graph):
    a, b = (graph.fill(np.zeros(1), 0) for _ in range(2))
    graph.edge(a, b)
    graph.edge(b, a, distance=1)
    graph.edge(a, a, 2)
    assert graph.given_edges == [(a, b, 0), (b, a, 1), (a, a, 2)]
    with pytest.raises(GraphError, match="cannot come after itself"):
        graph.edge(a, a)
    with pytest.raises(ValueError, match="distance"):
        graph.edge(a, b, -1)
    with pytest.raises(TypeError):
        graph.edge(a, b, 0.5)
    with pytest.raises(TypeError, match="an edge must join ops"):
        graph.edge(a, 3)


def test_ops_of_other_graphs_are_refused(graph):
    other = ost.Graph().fill(np.zeros(1), 0)
    own = graph.fill(np.zeros(1), 0)
    for after in (other, [own, other], ost.previous(other)):
        with pytest.raises(GraphError, match="another graph"):
            graph.fill(np.zeros(1), 0, after=after)
    with pytest.raises(GraphError, match="another graph"):
        graph.edge(own, other)
    with pytest.raises(TypeError, match="an edge must join ops"):
        graph.fill(np.zeros(1), 0, after=["own"])
    with pytest.raises(TypeError):
        graph.fill(np.zeros(1), 0, after=3)
    with pytest.raises(TypeError, match="previous"):
        ost.previous("own")
    with pytest.raises(TypeError):
        graph.fill(np.zeros(1), 0, after=own, priority=1.5)
    assert len(graph) == 1
    assert graph.explicit_edges == []


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((call, 1), {}, "come with access="),
        ((3,), {"access": ()}, "must be callable"),
        ((work, np.zeros(1)), {"access": (ost.Read,)}, "leave out access="),
        ((call, 1), {"access": ()}, "takes 0 arguments"),
        ((call, 1), {"access": (None,), "on": 3}, "on must be a processor"),
        ((call, 1), {"access": (None,), "priority": 1.5}, "priority must be an integer, got 1.5"),
    ],
)
def test_wrong_tasks(graph, args, options, message):
    with pytest.raises(TypeError, match=message):
        graph.task(*args, **options)
    assert len(graph) == 0


def test_a_bare_access_marker_is_no_tuple(graph):
    with pytest.raises(TypeError):
        graph.task(call, 1, access=ost.Read)


def test_until(graph):
    flag = np.zeros(1)
    op = graph.until(flag, every=3)
    assert graph.stop is op
    assert (op.name, op.body.every, op.body.flag.value) == ("until", 3, flag)
    with pytest.raises(GraphError, match="has an until"):
        graph.until(flag)


def test_until_takes_elements_of_rings_and_no_dimensions():
    u = ost.ring(np.zeros(4), np.zeros(4))
    assert ost.Graph().until(u[0][2]).body.flag.ring is not None
    assert ost.Graph().until(np.array(False)).body.flag.array.shape == ()


@pytest.mark.parametrize(
    ("flag", "every", "error"),
    [
        (np.zeros(2), 1, GraphError),
        (np.zeros(0), 1, GraphError),
        (np.array(["a"]), 1, GraphError),
        (True, 1, TypeError),
        (np.zeros(1), 0, ValueError),
        (np.zeros(1), 1.5, TypeError),
    ],
)
def test_wrong_flags(graph, flag, every, error):
    with pytest.raises(error):
        graph.until(flag, every)
    assert graph.stop is None
    assert len(graph) == 0


def test_an_empty_graph(graph):
    assert graph
    assert len(graph) == 0
    assert graph.ops == ()
    assert graph.infer
    assert not ost.Graph(infer=False).infer


def test_edges_come_from_accesses(graph):
    pytest.importorskip("ostinato.compiler.dependences")
    a = np.zeros(3)
    first, second = graph.task(work, a), graph.task(work, a)
    assert (first, second, 0) in graph.edges
    assert (second, first, 1) in graph.edges
