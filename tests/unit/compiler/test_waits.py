"""Waits that are left out are implied by those that are kept, whatever the lanes do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.unrolled import closure, unroll
from ostinato.compiler.ir import Edges, Waits, edges_of
from ostinato.compiler.schedule.place import check, find_waits

STEPS = 9


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Edges, np.ndarray, np.ndarray]:
    """Edges, lanes, and an order that keeps the edges."""
    ops = draw(st.integers(1, 7))
    order = np.array(draw(st.permutations(range(ops))), np.int32)
    op = st.integers(0, ops - 1)
    src, dst, distance = [], [], []
    for a, b, d in draw(st.lists(st.tuples(op, op, st.integers(0, 3)), max_size=12)):
        src.append(order[a])
        dst.append(order[b])
        distance.append(d if a < b else max(d, 1))
    lane = np.array(draw(st.lists(st.integers(0, 3), min_size=ops, max_size=ops)), np.int32)
    _, lane = np.unique(lane, return_inverse=True)
    return edges_of(ops, src, dst, distance), lane.astype(np.int32), order


def lane_steps(lane: np.ndarray, order: np.ndarray, steps: int) -> list[tuple[int, int]]:
    """Each lane runs its ops in order, step after step."""
    pairs = []
    for index in range(lane.max() + 1):
        own = [step * len(lane) + op for step in range(steps) for op in order.tolist() if lane[op] == index]
        pairs += list(pairwise(own))
    return pairs


def triples(found: Waits) -> list[tuple[int, int, int]]:
    return [
        (int(found.op[w]), op, int(found.distance[w]))
        for op in range(len(found.start) - 1)
        for w in range(found.start[op], found.start[op + 1])
    ]


@given(schedules())
def test_every_edge_holds_from_the_first_step_on(case: tuple[Edges, np.ndarray, np.ndarray]) -> None:
    edges, lane, order = case
    ops = len(lane)
    check(edges, lane, order)
    found = triples(find_waits(edges, lane, order))
    reach = closure(ops * STEPS, lane_steps(lane, order, STEPS) + unroll(ops, STEPS, found))
    assert not reach.diagonal().any()
    for before, after in unroll(ops, STEPS, zip(*edges, strict=True)):
        assert reach[before, after]


@given(schedules())
def test_no_wait_is_implied_by_others(case: tuple[Edges, np.ndarray, np.ndarray]) -> None:
    edges, lane, order = case
    ops = len(lane)
    result = find_waits(edges, lane, order)
    found = triples(result)
    assert len({(dst, lane[src]) for src, dst, _ in found}) == len(found)
    assert set(np.flatnonzero(result.published)) == {src for src, _, _ in found}
    pairs = lane_steps(lane, order, STEPS) + unroll(ops, STEPS, found)
    for src, dst, distance in found:
        wait = ((STEPS - 1 - distance) * ops + src, (STEPS - 1) * ops + dst)
        assert not closure(ops * STEPS, (pair for pair in pairs if pair != wait))[wait]


def test_a_stencil_on_two_lanes_waits_only_at_the_border() -> None:
    width = 16
    neighbours = [(i, j) for i in range(width) for j in (i - 1, i, i + 1) if 0 <= j < width]
    src, dst = np.array(neighbours, np.int32).T
    lane = np.repeat([0, 1], width // 2).astype(np.int32)
    found = find_waits(edges_of(width, src, dst, np.ones(len(src))), lane, np.arange(width, dtype=np.int32))
    assert triples(found) == [(8, 7, 1), (7, 8, 1)]


def test_what_a_lane_has_waited_for_needs_no_second_wait() -> None:
    lane = np.array([0, 0, 1, 1, 2], np.int32)
    edges = edges_of(5, [0, 1, 0, 3, 1], [2, 2, 3, 4, 4], [0, 0, 0, 0, 0])
    assert triples(find_waits(edges, lane, np.arange(5, dtype=np.int32))) == [(1, 2, 0), (3, 4, 0)]


def test_an_order_that_would_stop_is_found() -> None:
    edges = edges_of(4, [0, 2], [3, 1], [0, 0])
    lane = np.array([0, 0, 1, 1], np.int32)
    check(edges, lane, np.array([0, 2, 1, 3], np.int32))
    with pytest.raises(AssertionError, match=r"\[0, 1, 2, 3\]"):
        check(edges, lane, np.array([1, 0, 3, 2], np.int32))
    with pytest.raises(AssertionError, match="twice"):
        check(edges, lane, np.array([0, 0, 1, 2], np.int32))
