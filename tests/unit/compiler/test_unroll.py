"""Several steps as one: dependences, arrays and orders are those of the steps one after the other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato import _core
from ostinato.compiler.ir import Placement, Target, edges_of
from ostinato.compiler.pipeline.compile import compile, schedule_unrolled
from ostinato.compiler.schedule.caches import (
    Footprints,
    count_fetched_bytes,
    find_footprints,
    find_order_for_caches,
)
from ostinato.compiler.schedule.place import check
from ostinato.compiler.unroll import _unroll_edges, find_ring_period, unroll, why_not_unrolled


@ost.task(releases_gil=True)
def add(src: ost.Read, dst: ost.ReadWrite):
    dst += src[: len(dst)]


@ost.task
def number(x: ost.ReadWrite, step):
    x += step


def compiled(record):
    with ost.capture() as captured:
        record(captured)
    return compile(captured, Target(2, 2))


X = np.zeros(64)
U = ost.ring(np.zeros(64), np.zeros(64))
V = ost.ring(np.zeros(64), np.zeros(64), np.zeros(64))


@st.composite
def edge_lists(draw):
    n = draw(st.integers(1, 6))
    found = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 5)), max_size=12))
    return n, sorted({(src, dst, distance) for src, dst, distance in found if distance or src < dst})


@given(edge_lists(), st.integers(1, 6))
def test_edges_are_those_between_the_same_ops_of_the_same_steps(edges, times):
    n, rows = edges
    whole = _unroll_edges(edges_of(n, *np.array(rows, np.int32).reshape(-1, 3).T), n, times)
    steps = 6 * times

    def found(all_edges, of_a_step, first):
        rows = zip(*(column.tolist() for column in all_edges), strict=True)
        pairs = itertools.product(range(first), rows)
        return {
            ((at - distance) * of_a_step + src, at * of_a_step + dst)
            for at, (src, dst, distance) in pairs
            if at >= distance
        }

    assert found(whole, n * times, steps // times) == found(edges_of(n, *np.array(rows).reshape(-1, 3).T), n, steps)


def test_ring_elements_become_the_arrays_of_their_turn():
    step = compiled(lambda graph: (add(U[0], V[1]), add(X, X[:32]))).step
    assert find_ring_period(step) == 6
    whole = unroll(step, 6)
    for turn in range(6):
        first, second = whole.nodes[2 * turn : 2 * turn + 2]
        assert [
            each.array is views[(turn + k) % len(views)]
            for each, views, k in zip(first.operands, (U.arrays, V.arrays), (0, 1), strict=True)
        ] == [True, True]
        assert first.body.args == first.operands
        assert second.operands == step.nodes[1].operands
        assert (first.index, second.index) == (2 * turn, 2 * turn + 1)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (lambda graph: number(X, ost.param("by")), "parameters"),
        (lambda graph: number(X, ost.step), "number of the step"),
        (lambda graph: (add(X, X), graph.until(X[:1])), "may be the last"),
        (lambda graph: (add(X, X), graph.acquire(ost.Reservation())), "waits for what is outside"),
        (lambda graph: graph.task(add, X, X, on="cpu:1"), "bound to processors"),
        (lambda graph: graph.task(add, X, X, priority=1), "priorities"),
    ],
)
def test_what_is_not_unrolled(record, why):
    with ost.capture() as graph:
        record(graph)
    assert why in why_not_unrolled(compile(graph, Target(2, 2)).step)


def test_steps_that_end_one_by_one_are_not_unrolled():
    graph = ost.Graph(infer=False)
    graph.task(add, X, X)
    assert "the one before has ended" in why_not_unrolled(compile(graph, Target(2, 2)).step)


def test_plain_steps_are_unrolled():
    assert not why_not_unrolled(compiled(lambda graph: (add(U[0], U[1]), graph.copy(X, X[::-1]))).step)


def naive_fetches(lane, order, footprints, capacity, steps=2):
    """What caches fetch that evict the cell used longest ago, op by op."""
    start, cell, size, _ = footprints
    caches = {each: {} for each in set(lane)}
    for _ in range(steps):
        fetched = 0
        for op in order:
            cache = caches[lane[op]]
            for i in range(start[op], start[op + 1]):
                there = cache.pop(cell[i], 0)
                fetched += max(0, size[i] - there)
                cache[cell[i]] = max(size[i], there)
            while sum(cache.values()) > capacity:
                del cache[next(iter(cache))]
    return fetched


@st.composite
def footprints_of_ops(draw):
    ops = draw(st.integers(1, 8))
    rows = [draw(st.dictionaries(st.integers(0, 5), st.integers(1, 9), max_size=4)) for _ in range(ops)]
    start = np.append(0, np.cumsum([len(row) for row in rows])).astype(np.int64)
    cells = [cell for row in rows for cell in row]
    sizes = [size for row in rows for size in row.values()]
    lane = [draw(st.integers(0, 1)) for _ in range(ops)]
    order = draw(st.permutations(range(ops)))
    return lane, order, Footprints(start, np.array(cells, np.int32), np.array(sizes, np.int64), 6)


@given(footprints_of_ops(), st.integers(1, 40))
def test_fetched_bytes_are_those_of_caches_that_evict_what_was_used_longest_ago(given_ops, capacity):
    lane, order, footprints = given_ops
    placement = Placement(np.array(lane, np.int32), np.arange(2, dtype=np.int32), np.zeros(2, np.bool_))
    found = count_fetched_bytes(placement, np.array(order, np.int32), footprints, capacity)
    assert found == naive_fetches(lane, order, footprints, capacity)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 24), st.booleans()), min_size=1, max_size=8))
def test_footprints_have_all_bytes_of_what_ops_use_and_share_cells_where_they_overlap(rows):
    x = np.zeros((70, 4))
    with ost.capture() as graph:
        for begin, length, left in rows:
            view = x[begin : begin + length, : 2 if left else 4]
            add(view, view)
    nodes = compile(graph, Target(2, 2)).step.nodes
    start, cell, size, cells = find_footprints(nodes)
    assert cell.max(initial=0) < cells
    used = []
    for op, (_, length, left) in enumerate(rows):
        own = slice(start[op], start[op + 1])
        assert size[own].sum() == 2 * 8 * length * (2 if left else 4)  # it is used twice
        used.append(set(cell[own].tolist()))
    for one, other in itertools.combinations(range(len(rows)), 2):
        views = (nodes[one].operands[0].array, nodes[other].operands[0].array)
        if np.shares_memory(*views):
            assert used[one] & used[other]


def stencil(rings, tiles, width):
    old, new = rings[0], rings[1]
    for tile in range(1, tiles - 1):
        add(old[(tile - 1) * width : (tile + 2) * width], new[tile * width : (tile + 1) * width])


@settings(deadline=None)
@given(st.integers(3, 12), st.integers(1, 4), st.integers(200, 4000))
def test_orders_for_caches_keep_all_edges(tiles, half, capacity):
    ring = ost.ring(np.zeros(tiles * 16), np.zeros(tiles * 16))
    made = compiled(lambda graph: stencil(ring, tiles, 16))
    executable, _ = schedule_unrolled(made, 2 * half, capacity)
    found = executable.step.operations
    check(found.ordering, executable.step.placement.lane, executable.step.order)
    assert executable.unrolled == 2 * half
    assert executable.ring_period == 2


def test_a_stencil_larger_than_the_cache_is_fetched_once_in_several_steps():
    ring = ost.ring(np.zeros(66 * 16), np.zeros(66 * 16))
    made = compiled(lambda graph: stencil(ring, 66, 16))
    _, share = schedule_unrolled(made, 8, 64 * 128)
    assert share < 0.4


def test_an_order_for_caches_of_ops_without_edges_groups_what_uses_the_same():
    placement = Placement(np.zeros(6, np.int32), np.zeros(1, np.int32), np.zeros(1, np.bool_))
    footprints = Footprints(
        np.arange(7, dtype=np.int64), np.array([0, 1, 2, 0, 1, 2], np.int32), np.full(6, 8, np.int64), 3
    )
    none = edges_of(6, [], [], [])
    order = find_order_for_caches(none, np.ones(6), placement, footprints, 8)
    assert order.tolist() == [0, 3, 1, 4, 2, 5]
    assert count_fetched_bytes(placement, order, footprints, 8) == 24
    assert count_fetched_bytes(placement, np.arange(6, dtype=np.int32), footprints, 8) == 48


def test_steps_as_one_name_ops_and_steps_as_they_were_recorded():
    made = compiled(lambda graph: (add(U[0], U[1]), add(X, X[:32])))
    whole, _ = schedule_unrolled(made, 4, 1 << 20)
    assert isinstance(whole.core, _core.Schedule)
    assert len(whole.step.nodes) == 8
    assert [op.original.index for op in whole.step.nodes] == [0, 1] * 4
