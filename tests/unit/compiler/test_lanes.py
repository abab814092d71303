"""Splitting lanes: nothing stands behind a wait for something outside that it does not depend on."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.compiler.dependences import add_step_barrier
from ostinato.compiler.ir import Placement, Target, edges_of
from ostinato.compiler.pipeline.compile import compile
from ostinato.compiler.schedule.lanes import move_next_to_purpose, split
from ostinato.compiler.schedule.place import find_waits as waits_of

STEPS = 6
NO_TELLS = np.zeros(9, np.bool_)


@st.composite
def cases(draw):
    """Edges of a random graph, lanes, an order, and which ops wait for something outside; some of those only wait."""
    n = draw(st.integers(1, 9))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 2))
    edges = [(a, b, d) for a, b, d in draw(st.lists(pairs, max_size=14)) if d > 0 or a < b]
    outside = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    only_waits = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))) & outside
    lanes = draw(st.integers(1, 3))
    lane = np.array(draw(st.lists(st.integers(0, lanes - 1), min_size=n, max_size=n)), np.int32)
    affinity, pinned = np.arange(lanes, dtype=np.int32), np.zeros(lanes, np.bool_)
    found = np.array(edges, np.int64).reshape(-1, 3)
    return (
        edges_of(n, *found.T),
        Placement(lane, affinity, pinned, 0.0),
        np.arange(n, dtype=np.int32),
        outside,
        only_waits,
    )


def held_up(n, edges, lane, order, sources):
    """What waits, as (op, step), each op of each step comes after: by the edges, and by the order of lanes if given.

    Lanes run a step after the other in any case: without `order`, each op has a lane of its own.
    """
    before: dict[tuple[int, int], set[tuple[int, int]]] = {}
    position = {op: place for place, op in enumerate(order.tolist())}
    at_end: dict[int, tuple[int, int]] = {}
    for step in range(STEPS):
        for op in sorted(range(n), key=position.__getitem__):
            preds = [(int(a), step - int(d)) for a, b, d in zip(*edges, strict=True) if b == op and step >= d]
            own = int(lane[op])
            if own in at_end:
                preds.append(at_end[own])
            found = {(op, step)} if sources[op] else set()
            for pred in preds:
                found |= before[pred]
            before[op, step] = found
            at_end[own] = (op, step)
    return before


@settings(max_examples=400, deadline=None)
@given(cases())
def test_lane_order_adds_no_waits_to_what_does_something(case):
    edges, placement, order, outside, idle = case
    n = len(order)
    placement, order = move_next_to_purpose(edges, placement, order, idle, NO_TELLS[: len(order)])
    found = split(edges, placement, order, outside, idle)
    asked = held_up(n, edges, np.arange(n), order, outside)
    got = held_up(n, edges, found.lane, order, outside)
    followed = set(edges.src.tolist())
    for (op, step), waits in got.items():
        if idle[op] and op in followed:
            continue  # what it holds up is looked at itself
        # An op comes after its own waits of earlier steps anyway, and so do those of other ops that it comes after.
        earlier = {(wait, at) for wait, last in asked[op, step] for at in range(last + 1)}
        assert waits <= earlier, f"op {op} of step {step} waits for {waits - earlier}"


@settings(max_examples=200, deadline=None)
@given(cases())
def test_the_order_is_still_one_of_the_edges(case):
    edges, placement, order, outside, idle = case
    placement, order = move_next_to_purpose(edges, placement, order, idle, NO_TELLS[: len(order)])
    assert sorted(order.tolist()) == list(range(len(order)))
    place = np.argsort(order)
    inside = edges.distance == 0
    assert (place[edges.src[inside]] < place[edges.dst[inside]]).all()
    found = split(edges, placement, order, outside, idle)
    assert (placement.affinity[placement.lane] == found.affinity[found.lane]).all()


@ost.task
def add(x: ost.ReadWrite):
    x += 1


def lanes_of(graph):
    return len(compile(graph, Target(2, 1)).step.placement.affinity)


@pytest.fixture
def x():
    return np.zeros(1)


def test_a_graph_that_waits_for_nothing_outside_stays_on_one_lane(x):
    graph = ost.Graph()
    graph.postcondition("done", graph.task(add, x))
    graph.arrive(ost.Barrier(1))
    assert lanes_of(graph) == 1


def test_a_chain_with_conditions_stays_on_one_lane(x):
    graph = ost.Graph()
    first = graph.task(add, x, after=graph.precondition("first"))
    second = graph.task(add, x, after=[first, graph.precondition("second")])
    graph.postcondition("done", second)
    assert lanes_of(graph) == 1


def test_what_does_not_come_after_a_precondition_has_another_lane(x):
    graph = ost.Graph()
    graph.task(add, x, after=graph.precondition("input"))
    graph.task(add, np.zeros(1))
    assert lanes_of(graph) == 2


def test_a_barrier_that_one_op_waits_for_does_not_hold_up_another(x):
    graph = ost.Graph()
    graph.task(add, x, after=graph.wait(ost.Barrier(1)))
    graph.task(add, np.zeros(1))
    assert lanes_of(graph) == 2


def lanes_by_the_rule(edges, lane, order, outside, idle):
    """The lane of each op as `split` says it: of the lanes begun so far, the first whose ops all may come before it."""
    n = len(order)
    never = float("inf")
    back = np.where(np.eye(n, dtype=bool), 0.0, never)
    for _ in range(n):
        for src, dst, distance in zip(*edges, strict=True):
            back[dst] = np.minimum(back[dst], back[src] + distance)
    back = back[:, outside]
    for place, wait in enumerate(np.flatnonzero(outside)):
        after = edges.src == wait
        if idle[wait] and after.any():
            back[wait] = np.maximum((back[edges.dst[after]] - edges.distance[after][:, None]).max(axis=0), 0)
            back[wait, place] = 0
    lanes: list[list[int]] = []
    for op in order.tolist():
        for own in lanes:
            fits = all(((back[op] <= back[x]) & (back[x] <= back[op] + 1)).all() for x in own)
            if fits and lane[own[0]] == lane[op]:
                own.append(op)
                break
        else:
            lanes.append([op])
    return lanes


def with_barrier(edges, placement, order, outside, idle):
    """The same with only the edges within a step, and a barrier between each step and the next."""
    n = len(order)
    placement = placement._replace(lane=np.append(placement.lane, placement.lane[order[-1]]))
    outside, idle = np.append(outside, np.False_), np.append(idle, np.False_)
    return add_step_barrier(edges.within_a_step(), n), placement, np.append(order, np.int32(n)), outside, idle


@settings(max_examples=200, deadline=None)
@given(cases(), st.booleans())
def test_lanes_are_split_by_the_rule(case, serial):
    edges, placement, order, outside, idle = case
    if serial:
        edges, placement, order, outside, idle = with_barrier(edges, placement, order, outside, idle)
    found = split(edges, placement, order, outside, idle, serial)
    if outside.any():
        asked = lanes_by_the_rule(edges, placement.lane, order, outside, idle)
        assert [[op for op in order.tolist() if found.lane[op] == lane] for lane in range(len(found.affinity))] == asked
    else:
        assert found is placement


@ost.task(blocking=True)
def may_block(x: ost.ReadWrite):
    x += 1


def test_many_tasks_that_may_block_have_a_lane_each():
    graph = ost.Graph()
    for _ in range(300):
        graph.task(may_block, np.zeros(1))
    assert lanes_of(graph) == 300


def calls_to_schedule(graph):
    """How many calls of functions it takes, which does not depend on how busy the machine is."""
    found = 0

    def count(frame, event, arg):
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        compile(graph, Target(2, 2))
    finally:
        sys.setprofile(None)
    return found


def independent(n, **options):
    graph = ost.Graph(**options)
    for row in np.zeros((n, 1)):
        graph.fill(row, 1.0, after=graph.precondition(f"before {len(graph)}"))
    return graph


def with_one_in_common(n, **options):
    graph = ost.Graph(**options)
    common = graph.precondition("common")
    for row in np.zeros((n, 1)):
        graph.fill(row, 1.0, after=[common, graph.precondition(f"before {len(graph)}")])
    return graph


def with_nothing_after(n, **options):
    graph = ost.Graph(**options)
    for place in range(n):
        graph.precondition(str(place))
    return graph


@pytest.mark.parametrize("graph_of", [independent, with_one_in_common, with_nothing_after])
@pytest.mark.parametrize("infer", [True, False])
def test_compiling_takes_time_by_the_number_of_preconditions(graph_of, infer):
    few, many = (calls_to_schedule(graph_of(n, infer=infer)) for n in (200, 1000))
    assert many < 7 * few


def test_waits_of_thousands_of_lanes_are_all_kept():
    n = 3000
    edges = edges_of(n, np.zeros(n - 1), np.arange(1, n), np.zeros(n - 1))
    found = waits_of(edges, np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32))
    assert found.op.tolist() == [0] * (n - 1)
    assert np.diff(found.start).tolist() == [0] + [1] * (n - 1)
    assert np.flatnonzero(found.published).tolist() == [0]
