"""Streams as lanes: one lane issues a stream's work, and nothing else; the host stands behind no device for nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from compiler.device_graphs import Case, cases, op, step_of
from ostinato.compiler.ir import Target, edges_of
from ostinato.compiler.pipeline.compile import compile
from ostinato.compiler.schedule.lanes import split
from ostinato.compiler.schedule.place import check, find_order, find_placement
from ostinato.compiler.streams.assign_streams import (
    add_stream_lanes,
    isolate_streams,
    order_fences,
    split_host_lanes,
    streams_of,
)
from ostinato.compiler.streams.insert_fences import insert_fences
from support import fake_device as fake


def lanes_of(case: Case, outside: np.ndarray, threads: int):
    """All that a schedule does with streams, for a random graph."""
    step, _ = step_of(case.ops, case.edges, case.device, outside)
    found = insert_fences(step, Target(1, 1))
    streams, n = found.streams, len(found.nodes)
    seconds, none = np.full(n, 1e-6), np.zeros(n, np.bool_)
    thread_of = np.full(n, -1, np.int32)
    edges = found.ordering
    placement = find_placement(edges, seconds, threads=threads, thread_of=thread_of, gil_bound=none, takes_gil=none)
    placement = add_stream_lanes(placement, streams)
    in_order = find_order(edges, seconds, placement, np.zeros(n, np.int32), none)
    in_order = order_fences(in_order, streams)
    placement = isolate_streams(placement, streams)
    outside = np.append(outside, np.zeros(n - len(outside), np.bool_))
    placement = split(edges, placement, in_order, outside, none)
    placement = split_host_lanes(edges, placement, in_order, streams)
    return found, streams, placement, in_order


@settings(max_examples=200, deadline=None)
@given(cases(), st.data())
def test_a_lane_issues_one_stream_and_nothing_else(case, data):
    n = len(case.ops)
    flags = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    outside = np.array(flags) & (case.device < 0)
    found, streams, placement, in_order = lanes_of(case, outside, data.draw(st.integers(1, 3)))
    issued = streams.issued
    waits = (streams.of >= 0) & ~issued
    for stream in range(len(streams.device)):
        for kind in (issued, waits):
            members = np.flatnonzero((streams.of == stream) & kind)
            lanes = np.unique(placement.lane[members])
            assert len(lanes) <= 1
            assert all((placement.lane == lane).sum() == len(members) for lane in lanes)
    assert (np.unique(placement.lane) == np.arange(len(placement.affinity))).all()
    check(found.ordering, placement.lane, in_order)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_fences_come_in_the_order_of_their_stream(case):
    found, streams, _, in_order = lanes_of(case, np.zeros(len(case.ops), np.bool_), 2)
    place_of = np.empty(len(in_order), np.int64)
    place_of[in_order] = np.arange(len(in_order))
    for stream in range(len(streams.device)):
        told = [each for each in found.streams.fences if each[1].waits and streams.of[each[0]] == stream]
        told.sort(key=lambda each: place_of[each[0]])
        last = [place_of[list(fence.of)].max() for _, fence in told]
        assert last == sorted(last)


def test_ops_behind_different_waits_for_outside_have_streams_of_their_own():
    ops = tuple(map(op, range(4)))
    edges = edges_of(4, [0, 1], [2, 3], [0, 0])
    device = np.array([-1, -1, 0, 0], np.int32)
    streams = streams_of(ops, edges, device, np.array([True, False, False, False]))
    assert streams.of[2] != streams.of[3]
    assert streams_of(ops, edges, device, np.zeros(4, np.bool_)).of[2:].tolist() == [0, 0]


@ost.task
def decode(x: ost.Write, step): ...


@ost.task
def encode(x: ost.Read, y: ost.ReadWrite): ...


@ost.task
def blur(stream: ost.Stream, x: ost.Read, y: ost.Write): ...


def test_the_next_image_is_decoded_while_the_device_has_this_one():
    with fake.install() as devices:
        raw, out = (ost.ring(np.zeros(2), np.zeros(2), np.zeros(2)) for _ in range(2))
        with ost.capture() as graph:
            decode(raw[0], ost.step)
            blur(raw[0], out[0])
            encode(out[0], np.zeros(1))
        found = compile(graph, Target(1, 1, find_devices=lambda: devices))
        lane = {each.name: found.step.placement.lane[each.index] for each in found.step.nodes}
        assert lane["decode"] != lane["encode"]


def test_many_tiles_take_few_lanes():
    with fake.install() as devices:
        count = np.zeros(1)
        with ost.capture() as graph:
            for _ in range(50):
                raw, out = (ost.ring(np.zeros(2), np.zeros(2)) for _ in range(2))
                decode(raw[0], ost.step)
                blur(raw[0], out[0])
                encode(out[0], count)
        found = compile(graph, Target(2, 2, find_devices=lambda: devices))
        assert len(found.step.placement.affinity) <= 12


def test_graphs_without_devices_ask_for_none():
    def devices():
        raise AssertionError("nobody needs them")

    with ost.capture() as graph:
        decode(np.zeros(3), ost.step)
    assert not compile(graph, Target(2, 2, find_devices=devices)).step.uses_devices
