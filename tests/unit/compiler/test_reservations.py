"""Acquires and releases of one reservation keep program order, and no more than that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.graphs import body
from compiler.unrolled import closure, unroll
from ostinato.compiler.dependences import find_dependences, infer_dependences, order_holders
from ostinato.compiler.flatten import flatten
from ostinato.compiler.summary import summarize
from ostinato.errors import GraphError
from ostinato.events import Reservation
from ostinato.graph.graph import Graph

STEPS = 4


def triples(edges):
    return list(zip(*(values.tolist() for values in edges), strict=True))


def graph_of(kinds: str, reservation: Reservation) -> Graph:
    """Exclusive requests, shared ones and releases, as E, S and R."""
    graph = Graph(infer=False)
    for kind in kinds:
        if kind == "R":
            graph.release(reservation)
        else:
            graph.acquire(reservation, exclusive=kind == "E")
    return graph


def order_in(graph: Graph) -> list[tuple[int, int, int]]:
    return triples(order_holders(summarize(graph.ops), find_dependences(flatten(graph))))


def order_of(kinds: str) -> np.ndarray:
    edges = order_in(graph_of(kinds, Reservation()))
    return closure(STEPS * len(kinds), unroll(len(kinds), STEPS, edges))


balanced = st.lists(st.sampled_from(["ER", "SR", "SSRR", "SSRSRR", "ER"]), min_size=1, max_size=4).map("".join)


@given(balanced)
def test_exclusive_requests_keep_program_order_with_everything(kinds: str) -> None:
    reach = order_of(kinds)
    whole = kinds * STEPS
    for i, kind in enumerate(whole):
        if kind == "E":
            assert reach[:i, i].all()
            assert reach[i, i + 1 :].all()


@given(balanced)
def test_however_shared_requests_are_ordered_there_are_enough_of_them(kinds: str) -> None:
    # The releases that can come first, each with all that it comes after, never outnumber the requests.
    reach = order_of(kinds)
    whole = np.array(list(kinds * STEPS))
    releases = np.flatnonzero(whole == "R")
    for last in releases:
        before = reach[:, last]
        assert (whole[before] != "R").sum() >= (whole[before] == "R").sum() + 1


@given(balanced)
def test_shared_requests_keep_program_order_but_wait_for_no_shared_release(kinds: str) -> None:
    reach = order_of(kinds)
    whole = kinds * STEPS
    for j, kind in enumerate(whole):
        if kind == "S":
            for i in range(j):
                released = "E" in whole[max(i - 1, 0) : j]  # in these, an exclusive hold is released at once
                assert reach[i, j] == (whole[i] == "S" or released)


def test_a_hold_may_reach_into_the_next_step() -> None:
    assert order_in(graph_of("RE", Reservation())) == [(1, 0, 1), (0, 1, 0)]


def test_a_release_goes_with_the_request_that_it_depends_on() -> None:
    reservation, graph = Reservation(), Graph(infer=False)
    first, second = (graph.acquire(reservation, exclusive=False) for _ in range(2))
    between = graph.task(body, access=(), after=second)
    graph.release(reservation, after=between)
    graph.release(reservation, after=first)
    assert order_in(graph) == [(1, 0, 1), (0, 1, 0), (1, 3, 0), (0, 4, 0)]


def test_each_reservation_has_an_order_of_its_own() -> None:
    graph = Graph(infer=False)
    for reservation in (Reservation(), Reservation()):
        graph.acquire(reservation)
        graph.release(reservation)
    assert order_in(graph) == [(1, 0, 1), (0, 1, 0), (3, 2, 1), (2, 3, 0)]


def test_the_order_is_no_dependence() -> None:
    graph = graph_of("ER", Reservation())
    step = infer_dependences(flatten(graph))
    assert triples(step.edges) == []
    assert triples(step.ordering) == [(1, 0, 1), (0, 1, 0)]


def test_nothing_is_added_where_there_is_nothing_to_order() -> None:
    graph = Graph()
    graph.task(body, access=())
    step = infer_dependences(flatten(graph))
    assert step.ordering is step.edges


def test_given_edges_against_program_order_are_told() -> None:
    reservation, graph = Reservation(), Graph(infer=False)
    acquired = graph.acquire(reservation)
    released = graph.release(reservation)
    graph.edge(released, acquired)
    with pytest.raises(GraphError, match=r"(?s)'acquire' at .*'release' at .*program order"):
        infer_dependences(flatten(graph))
