"""Preconditions and postconditions: what is recorded and what is refused."""

from contextlib import suppress

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.graph.body import Postcondition, Precondition


@ost.task
def work(a: ost.ReadWrite): ...


@pytest.fixture
def graph():
    return ost.Graph()


@pytest.fixture
def op(graph):
    return graph.task(work, np.zeros(1))


def refused(message, call, *args, **options):
    with pytest.raises(GraphError, match=message):
        call(*args, **options)


def test_a_precondition_is_an_op_that_others_come_after(graph):
    ready = graph.precondition("ready")
    first = graph.task(work, np.zeros(1), after=ready)
    second = graph.fill(np.zeros(1), 0, after=[first, ready])
    assert isinstance(ready.body, Precondition)
    assert (ready.name, ready.body.name, ready.operands) == ("ready", "ready", ())
    assert graph.ops == (ready, first, second)
    assert graph.preconditions == {"ready": ready}
    assert graph.explicit_edges == [(0, 1, 0), (1, 2, 0), (0, 2, 0)]


def test_a_postcondition_comes_after_ops(graph, op):
    other = graph.task(work, np.zeros(1))
    done = graph.postcondition("done", [op, ost.previous(other)])
    alone = graph.postcondition("alone", after=iter([other]))
    assert isinstance(done.body, Postcondition)
    assert (done.name, done.body.name, done.operands) == ("done", "done", ())
    assert graph.postconditions == {"done": done, "alone": alone}
    assert graph.given_edges == [(op, done, 0), (other, done, 1), (other, alone, 0)]


def test_a_name_may_be_of_one_precondition_and_one_postcondition(graph, op):
    assert graph.precondition("x") is not graph.postcondition("x", op)


@pytest.mark.parametrize("call", ["precondition", "postcondition"])
def test_names(graph, op, call):
    def declare(name):
        return graph.precondition(name) if call == "precondition" else graph.postcondition(name, op)

    refused("not be empty", declare, "")
    for name in (3, None, b"x"):
        with pytest.raises(TypeError, match=r"name of a .* must be a str"):
            declare(name)
    assert len(graph) == 1
    declare("x")
    refused(f"has a {call} 'x' already, at test_conditions.py", declare, "x")
    assert len(graph) == 2


def test_a_postcondition_comes_after_something_and_not_after_a_precondition(graph, op):
    ready = graph.precondition("ready")
    refused("comes after nothing", graph.postcondition, "done", ())
    refused("comes after nothing", graph.postcondition, "done", iter([]))
    refused("cannot come after precondition 'ready'", graph.postcondition, "done", ready)
    refused("cannot come after precondition 'ready'", graph.postcondition, "done", [op, ready])
    assert graph.postconditions == {}
    assert graph.explicit_edges == []
    done = graph.postcondition("done", op)
    refused("cannot come after precondition 'ready'", graph.edge, ready, done)
    assert graph.explicit_edges == [(0, 2, 0)]


def test_nothing_comes_after_a_postcondition(graph, op):
    done = graph.postcondition("done", op)
    for after in (done, [op, done], ost.previous(done)):
        refused("nothing in a graph comes after postcondition 'done'", graph.task, work, np.zeros(1), after=after)
    refused("nothing in a graph comes after", graph.postcondition, "other", done)
    refused("nothing in a graph comes after", graph.edge, done, op)
    refused("nothing in a graph comes after", graph.edge, done, op, 1)
    refused("nothing in a graph comes after", graph.edge, done, done, 1)
    assert graph.explicit_edges == [(0, 1, 0)]
    assert len(graph) == 2


def test_a_precondition_comes_after_nothing(graph, op):
    ready = graph.precondition("ready")
    with pytest.raises(TypeError):
        graph.precondition("other", after=op)
    refused("comes after nothing in the graph", graph.edge, op, ready)
    refused("comes after nothing in the graph", graph.edge, op, ready, 1)
    refused("comes after nothing in the graph", graph.edge, ready, ready)
    assert graph.explicit_edges == []


def test_a_precondition_is_of_no_step_before(graph, op):
    ready = graph.precondition("ready")
    refused("first step only", ost.previous, ready)
    refused("first step only", graph.edge, ready, op, 1)
    graph.edge(ready, op)
    assert graph.given_edges == [(ready, op, 0)]


def test_edges_to_a_postcondition_may_be_added(graph, op):
    other = graph.task(work, np.zeros(1))
    done = graph.postcondition("done", op)
    graph.edge(other, done, 1)
    assert graph.given_edges == [(op, done, 0), (other, done, 1)]


def test_conditions_of_other_graphs_are_refused(graph, op):
    other = ost.Graph()
    refused("another graph", graph.task, work, np.zeros(1), after=other.precondition("ready"))
    refused("another graph", other.postcondition, "done", op)
    assert other.postconditions == {}


def test_in_a_capture_they_mix_with_calls():
    a = np.zeros(2)
    with ost.capture() as graph:
        first = work(a)
        ready = graph.precondition("ready")
        second = graph.task(work, a, after=ready)
        done = graph.postcondition("done", second)
    assert graph.ops == (first, ready, second, done)
    lines = [op.call_site.line for op in graph.ops]
    assert lines == list(range(lines[0], lines[0] + 4))


def test_an_exception_in_a_capture_leaves_none_behind():
    with suppress(KeyError), ost.capture() as graph:
        ready = graph.precondition("ready")
        graph.postcondition("done", graph.task(work, np.zeros(1), after=ready))
        raise KeyError
    assert (len(graph), graph.preconditions, graph.postconditions) == (0, {}, {})
    assert graph.precondition("ready").index == 0


def test_conditions_have_no_value(graph, op):
    for condition in (graph.precondition("ready"), graph.postcondition("done", op)):
        with pytest.raises(TypeError, match="has no value"):
            bool(condition)
        with pytest.raises(TypeError, match="has no value"):
            graph.task(work, condition)
