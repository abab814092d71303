"""Fences: the device is done before what is not in its order begins, and nothing waits for it needlessly."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from compiler.device_graphs import cases, op, reached, step_of
from ostinato.compiler.inserted import Fence
from ostinato.compiler.ir import Edges, Target, edges_of
from ostinato.compiler.streams.insert_fences import insert_fences


def made(case):
    step, device = step_of(case.ops, case.edges, case.device, np.zeros(len(case.ops), np.bool_))
    return insert_fences(step, Target(1, 1)), device, step.streams


def fences(found):
    return [op for op in found.nodes if isinstance(op.body, Fence) and op.body.waits]


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_device_is_done_before_what_is_not_in_its_order_begins(case):
    found, device, _ = made(case)
    own = {each.body.of[0]: each.index for each in fences(found) if len(each.body.of) == 1}
    edges = set(zip(*(column.tolist() for column in found.ordering), strict=True))
    for a, b, d in zip(*(column.tolist() for column in case.edges), strict=True):
        assert (a, b, d) in edges
        if device[a] >= 0 and device[a] != device[b]:
            assert (own[a], b, d) in edges


@settings(max_examples=300, deadline=None)
@given(cases())
def test_work_on_one_device_waits_for_no_fence_that_it_need_not(case):
    found, device, _ = made(case)
    n = len(case.ops)
    for each in fences(found):
        behind = reached(len(found.nodes), found.ordering, (each.index, 0))
        for after, step in behind:
            if after < n and device[after] >= 0:
                # Through something else, which needs the device to be done.
                assert any(
                    between < n and (device[between] < 0 or device[between] != device[each.body.of[0]])
                    for between, _ in behind
                ), (each.body.of, after, step)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_each_stream_is_fenced_at_the_end_of_the_step(case):
    found, _, streams = made(case)
    for stream in range(len(streams.device)):
        members = np.flatnonzero(streams.of == stream)
        inside = [
            (a, b) for a, b, d in zip(*case.edges, strict=True) if d == 0 and streams.of[a] == streams.of[b] == stream
        ]
        last = set(members.tolist()) - {int(a) for a, _ in inside}
        told = [set(each.body.of) for each in fences(found) if found.streams.of[each.index] == stream]
        # Whichever comes last in the order of the stream, a fence waits for it.
        assert all(any(op in of and (of == {op} or of >= last) for of in told) for op in last)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_poison_of_a_fence_reaches_all_that_depends_on_its_op_elsewhere(case):
    found, device, _ = made(case)
    n = len(case.ops)
    needed = set(found.ordering.src.tolist())  # others only end a step
    own = {each.body.of[0]: each.index for each in fences(found) if each.index in needed}
    for each in fences(found):
        source = each.body.of[0]
        if own.get(source) != each.index:
            continue
        wanted = {at for at in reached(n, case.edges, (source, 0)) if device[at[0]] != device[source]}
        wanted |= {(own[at], step) for at, step in reached(n, case.edges, (source, 0)) if at in own}
        got = reached(len(found.nodes), found.edges, (each.index, 0))
        assert wanted <= got


@settings(max_examples=200, deadline=None)
@given(cases())
def test_edges_stay_acyclic_within_a_step(case):
    found, _, _ = made(case)
    inside = found.ordering.distance == 0
    edges = Edges(*(column[inside] for column in found.ordering))
    for a, b, _ in zip(*(column.tolist() for column in edges), strict=True):
        assert (a, 0) not in reached(len(found.nodes), edges, (b, 0))


def test_a_chain_on_a_device_between_two_host_ops_has_one_fence():
    ops = tuple(map(op, range(6)))
    edges = edges_of(6, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0] * 5)
    device = np.array([-1, 0, 0, 0, 0, -1], np.int32)
    found = insert_fences(step_of(ops, edges, device, np.zeros(6, np.bool_))[0], Target(1, 1))
    assert [each.body.of for each in fences(found)] == [(4,)]
    assert (6, 5, 0) in set(zip(*(column.tolist() for column in found.ordering), strict=True))
