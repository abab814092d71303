"""The gate: device work waits for all preconditions, but for what a postcondition depends on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from compiler.device_graphs import cases, op, reached
from ostinato.compiler.ir import edges_of
from ostinato.compiler.streams.insert_fences import behind_preconditions
from ostinato.graph.body import Postcondition, Precondition


def of(ops, kind):
    return [each.index for each in ops if isinstance(each.body, kind)]


@settings(max_examples=300, deadline=None)
@given(cases())
def test_device_work_comes_after_all_preconditions_unless_a_postcondition_depends_on_it(case):
    n, on_device = len(case.ops), case.device >= 0
    found = behind_preconditions(case.ops, case.edges, on_device)
    posts, untimed = of(case.ops, Postcondition), case.edges._replace(distance=0 * case.edges.distance)
    for precondition in of(case.ops, Precondition):
        before = {at for at, step in reached(n, case.edges, (precondition, 0)) if step == 0}
        after = {at for at, step in reached(n, found, (precondition, 0)) if step == 0}
        for work in np.flatnonzero(on_device).tolist():
            told = any(at in posts for at, _ in reached(n, untimed, (work, 0)))
            assert (work in after) == (work in before or not told)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_nothing_else_comes_after_more_but_what_is_behind_device_work(case):
    n, on_device = len(case.ops), case.device >= 0
    found = behind_preconditions(case.ops, case.edges, on_device)
    more = set(zip(*map(np.ndarray.tolist, found), strict=True)) - set(
        zip(*map(np.ndarray.tolist, case.edges), strict=True)
    )
    assert all(a in of(case.ops, Precondition) and on_device[b] and d == 0 for a, b, d in more)
    posts = of(case.ops, Postcondition)
    for a, b, _ in more:
        assert a < n
        assert not any(at in posts for at, _ in reached(n, case.edges, (int(b), 0)))


def test_without_preconditions_or_devices_edges_are_the_same():
    ops = (op(0), op(1))
    edges = edges_of(2, [0], [1], [0])
    assert behind_preconditions(ops, edges, np.array([True, True])) is edges
    ops = (op(0, Precondition("p")), op(1))
    assert behind_preconditions(ops, edges, np.array([False, False])) is edges


def test_only_the_first_of_a_chain_is_gated():
    ops = (op(0, Precondition("p")), *map(op, range(1, 5)))
    edges = edges_of(5, [1, 2, 3], [2, 3, 4], [0, 0, 0])
    found = behind_preconditions(ops, edges, np.array([False, True, True, True, True]))
    assert set(zip(*map(np.ndarray.tolist, found), strict=True)) == {(1, 2, 0), (2, 3, 0), (3, 4, 0), (0, 1, 0)}
