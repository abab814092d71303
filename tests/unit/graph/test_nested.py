"""Graphs inside graphs: what is recorded and what is refused."""

import operator
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.graph.body import Nested
from ostinato.graph.operations import check_given, graphs_in


@ost.task
def work(a: ost.ReadWrite, factor=1.0): ...


@pytest.fixture
def graph():
    return ost.Graph()


@pytest.fixture
def inner():
    """With one array, a precondition "go", and a postcondition "done"."""
    inner = ost.Graph()
    inner.postcondition("done", inner.task(work, np.zeros(2), after=inner.precondition("go")))
    return inner


@pytest.fixture
def plain():
    plain = ost.Graph()
    plain.task(work, np.zeros(2))
    return plain


def refused(message, call, *args, **options):
    with pytest.raises(GraphError, match=message):
        call(*args, **options)


def test_a_nested_graph_is_one_op(graph, plain):
    first = graph.task(work, np.zeros(1))
    op = graph.subgraph(plain, after=[first, ost.previous(first)])
    last = graph.task(work, np.zeros(1), after=[op, ost.previous(op)])
    assert isinstance(op.body, Nested)
    assert (op.name, op.operands, op.body.graph) == ("subgraph", (), plain)
    assert (op.body.params, op.body.preconditions, op.posts) == ({}, {}, {})
    assert graph.ops == (first, op, last)
    assert graph.explicit_edges == [(0, 1, 0), (0, 1, 1), (1, 2, 0), (1, 2, 1)]
    assert graph.port_edges == []


def test_the_same_graph_many_times_and_at_any_depth(graph, plain):
    middle = ost.Graph()
    ops = [middle.subgraph(plain) for _ in range(3)]
    assert len(set(ops)) == 3
    graph.subgraph(middle)
    graph.subgraph(plain)
    assert list(graph.nested) == [middle, plain]
    assert list(graphs_in(graph)) == [graph, plain, middle]


def test_what_is_no_graph_is_refused(graph):
    for wrong in (None, "graph", work, graph.task(work, np.zeros(1))):
        with pytest.raises(TypeError, match="must be an ostinato"):
            graph.subgraph(wrong)
    assert len(graph) == 1


# Preconditions


def test_preconditions_take_what_after_takes(graph, inner):
    first = graph.task(work, np.zeros(1))
    outside = graph.precondition("go")
    nested = graph.subgraph(inner, preconditions={"go": outside})
    ops = [
        graph.subgraph(inner, preconditions={"go": given})
        for given in (first, [first, ost.previous(nested)], iter([nested.posts["done"]]), ost.previous(first), ())
    ]
    assert [op.body.preconditions["go"] for op in ops] == [
        ((0, None, 0),),
        ((0, None, 0), (2, None, 1)),
        ((2, "done", 0),),
        ((0, None, 1),),
        (),
    ]
    assert nested.body.preconditions == {"go": ((1, None, 0),)}
    assert graph.explicit_edges == []


def test_every_precondition_is_given_and_no_other(graph, inner, plain):
    inner.precondition("more")
    refused("declares precondition 'go', so give it in preconditions=", graph.subgraph, inner)
    refused("declares precondition 'more'", graph.subgraph, inner, preconditions={"go": ()})
    refused("no precondition 'no'; it has none", graph.subgraph, plain, preconditions={"no": ()})
    refused(
        "no precondition 'no'; it has 'go', 'more'",
        graph.subgraph,
        inner,
        preconditions={"go": (), "more": (), "no": ()},
    )
    assert len(graph) == 0
    graph.subgraph(inner, preconditions={"go": (), "more": ()})


def test_preconditions_take_nothing_else(graph, inner):
    other = ost.Graph().task(work, np.zeros(1))
    done = graph.postcondition("done", graph.task(work, np.zeros(1)))
    refused("another graph", graph.subgraph, inner, preconditions={"go": other})
    refused("nothing in a graph comes after", graph.subgraph, inner, preconditions={"go": done})
    for wrong in (3, "op", None):
        with pytest.raises(TypeError):
            graph.subgraph(inner, preconditions={"go": wrong})
    with pytest.raises(TypeError):
        graph.subgraph(inner, preconditions=3)
    assert len(graph) == 2


# Postconditions


def test_posts_stand_in_after(graph, inner):
    op = graph.subgraph(inner, preconditions={"go": ()})
    port = op.posts["done"]
    last = graph.task(work, np.zeros(1), after=[port, ost.previous(port), ost.previous(ost.previous(port)), op])
    graph.copy(np.zeros(1), np.zeros(1), after=port)
    done = graph.postcondition("done", port)
    graph.edge(port, last)
    graph.edge(port, op, 1)
    assert graph.port_edges == [
        (0, "done", 1, 0),
        (0, "done", 1, 1),
        (0, "done", 1, 2),
        (0, "done", 2, 0),
        (0, "done", 3, 0),
        (0, "done", 1, 0),
        (0, "done", 0, 1),
    ]
    assert graph.explicit_edges == [(0, 1, 0)]
    assert (op, done, 0) in graph.given_edges
    refused("cannot come after itself", graph.edge, port, op)


def test_posts_are_those_of_the_nested_graph(graph, inner):
    op = graph.subgraph(inner, preconditions={"go": ()})
    assert list(op.posts) == ["done"]
    with pytest.raises(KeyError):
        op.posts["other"]
    inner.postcondition("other", inner.ops[1])
    assert list(op.posts) == ["done", "other"]
    assert op.posts["done"] == op.posts["done"]
    assert len({op.posts["done"], op.posts["done"], op.posts["other"]}) == 2
    assert op.posts["done"] != op
    assert graph.task(work, np.zeros(1)).posts == {}


def test_a_port_has_no_value(graph, inner):
    port = graph.subgraph(inner, preconditions={"go": ()}).posts["done"]
    for use in (bool, lambda port: port + 1, lambda port: graph.task(work, port), lambda port: captured(port)):
        with pytest.raises(TypeError, match="has no value"):
            use(port)


def captured(value):
    with ost.capture():
        work(np.zeros(1), value)


def test_ports_of_other_graphs_are_refused(graph, inner):
    port = ost.Graph().subgraph(inner, preconditions={"go": ()}).posts["done"]
    refused("another graph", graph.task, work, np.zeros(1), after=port)
    refused("another graph", graph.edge, port, graph.task(work, np.zeros(1)))
    with pytest.raises(TypeError, match="an edge must join ops"):
        graph.edge(graph.ops[0], graph.subgraph(inner, preconditions={"go": ()}).posts["done"])


# Parameters


def parametrised(*args, **options):
    inner = ost.Graph()
    inner.task(work, np.zeros(1), inner.param(*args, **options))
    return inner


def test_params_are_values_or_outer_parameters(graph):
    inner = parametrised("p", 1.0)
    outer = graph.param("q", 2.0)
    array = np.arange(3)
    for value in (3.0, None, "text", [1, 2], outer, array, object()):
        assert graph.subgraph(inner, {"p": value}).body.params["p"] is value
    assert graph.subgraph(inner).body.params == {}
    assert list(graph.params) == ["q"]


def test_the_params_of_a_nested_graph_are_not_those_of_the_outer(graph):
    inner = parametrised("p", 1.0)
    graph.param("p", 2.0)
    graph.subgraph(inner, {"p": graph.param("p")})
    assert graph.params["p"].default == 2.0
    assert inner.params["p"].default == 1.0


def test_required_params_are_given_and_unknown_ones_refused(graph, plain):
    required = parametrised("p")
    refused("declares parameter 'p', so give it in params=", graph.subgraph, required)
    refused("no parameter 'q'; it has 'p'", graph.subgraph, required, {"p": 1, "q": 2})
    refused("no parameter 'q'; it has none", graph.subgraph, plain, {"q": 2})
    assert len(graph) == 0
    graph.subgraph(required, {"p": 1})
    graph.subgraph(parametrised("p", 1, operator.add))
    refused("declares parameter 'p'", graph.subgraph, parametrised("p", combine=operator.add))


def test_params_take_nothing_else(graph, plain):
    inner = parametrised("p", 1.0)
    op, ring = graph.task(work, np.zeros(1)), ost.ring(np.zeros(1))
    for wrong in (op, ost.step, ring, ring[0]):
        with pytest.raises(TypeError, match="parameter 'p' of subgraph"):
            graph.subgraph(inner, {"p": wrong})
    refused("parameter 'q' belongs to another graph", graph.subgraph, inner, {"p": ost.Graph().param("q")})
    refused("parameter 'p' belongs to another graph", graph.subgraph, inner, {"p": inner.param("p")})
    with pytest.raises(TypeError):
        graph.subgraph(inner, 3)
    assert len(graph) == 1


def test_what_a_nested_graph_declares_later_is_missing(graph, inner):
    op = graph.subgraph(inner, preconditions={"go": ()})
    check_given(op.body)
    inner.precondition("late")
    refused("declares precondition 'late'", check_given, op.body)


# What cannot be nested


def test_a_graph_does_not_contain_itself(graph, plain):
    refused("cannot contain itself", graph.subgraph, graph)
    middle = ost.Graph()
    middle.subgraph(plain)
    graph.subgraph(middle)
    for outermost in (middle, graph):
        refused("cannot contain itself", plain.subgraph, outermost)
    refused("cannot contain itself", middle.subgraph, graph)
    assert [len(each) for each in (plain, middle, graph)] == [1, 1, 1]


def test_a_graph_that_is_being_captured_is_not_nested(graph):
    with ost.capture() as inner:
        work(np.zeros(1))
        with pytest.raises(GraphError, match="still being captured"):
            graph.subgraph(inner)
        with pytest.raises(GraphError, match="cannot contain itself"):
            inner.subgraph(inner)
    graph.subgraph(inner)
    assert len(graph) == 1


def test_there_is_one_until_over_everything(graph, plain):
    flag = np.zeros(1)
    stopping, above = ost.Graph(), ost.Graph()
    stopping.until(flag)
    above.subgraph(stopping)
    refused("at most one until", above.subgraph, stopping)
    refused(r"has an until\(\) already, at test_nested.py", above.until, flag)
    graph.subgraph(above)
    refused(r"has an until\(\) already", graph.until, flag)
    refused("at most one until", graph.subgraph, stopping)
    graph.subgraph(plain)
    own = ost.Graph()
    own.until(flag)
    refused("at most one until", own.subgraph, above)
    own.subgraph(plain)
    assert [len(each) for each in (above, graph, own)] == [1, 2, 2]
    assert graph.stop is None


PAIRS = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(nestings=st.lists(PAIRS, max_size=25), stops=st.sets(st.integers(0, 4), max_size=2))
def test_exactly_those_nestings_are_refused_that_make_a_circle_or_two_untils(nestings, stops):
    graphs = [ost.Graph() for _ in range(5)]
    for stop in stops:
        graphs[stop].until(np.zeros(1))
    below = {place: {place} for place in range(5)}  # itself and all that is nested in it
    untils = {place: int(place in stops) for place in range(5)}
    inside = {place: [] for place in range(5)}

    def count(place):
        return untils[place] + sum(count(other) for other in inside[place])

    for outer, inner in nestings:
        fits = outer not in below[inner] and not (count(outer) and count(inner))
        try:
            graphs[outer].subgraph(graphs[inner])
        except GraphError:
            assert not fits
            continue
        assert fits
        inside[outer].append(inner)
        for place in range(5):
            if outer in below[place]:
                below[place] |= below[inner]


# In captures


def test_in_a_capture_a_nested_graph_mixes_with_calls(inner):
    a = np.zeros(2)
    with ost.capture() as graph:
        first = work(a)
        op = graph.subgraph(inner, preconditions={"go": first})
        last = graph.task(work, a, after=op.posts["done"])
    assert graph.ops == (first, op, last)
    assert op.call_site.line == first.call_site.line + 1


def test_the_arrays_of_a_nested_graph_are_guarded_while_a_capture_is_open():
    a, b, c, d = (np.zeros(2) for _ in range(4))
    inner, middle = ost.Graph(), ost.Graph()
    inner.task(work, a)
    inner.copy(ost.ring(b, c)[0], memoryview(d))
    middle.subgraph(inner)
    with ost.capture() as graph:
        assert a.flags.writeable
        graph.subgraph(middle)
        assert not any(array.flags.writeable for array in (a, b, c))
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1
        work(a)
    assert all(array.flags.writeable for array in (a, b, c))


def test_without_a_capture_nothing_is_guarded(graph):
    a, inner = np.zeros(2), ost.Graph()
    inner.task(work, a)
    graph.subgraph(inner)
    assert a.flags.writeable


def test_an_exception_in_a_capture_leaves_nothing_behind(inner):
    with suppress(KeyError), ost.capture() as graph:
        op = graph.subgraph(inner, preconditions={"go": ()})
        graph.task(work, np.zeros(1), after=op.posts["done"])
        raise KeyError
    assert (len(graph), graph.port_edges, list(graph.nested)) == (0, [], [])
    inner.subgraph(graph)
