"""Speeds of devices: what anchors say of the time between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tune.speeds import Place, Speeds


def anchored(*anchors):
    speeds = Speeds()
    for device, time in anchors:
        speeds.anchored(device, [time] * 7)
    return speeds


def test_without_an_anchor_a_device_counts_as_the_fastest():
    assert Speeds().factor(Place("cpu:0", 0)) == 1.0
    assert anchored(("cpu:1", 50.0)).factor(Place("cpu:0", 0)) == 1.0
    assert (Speeds().factors, Speeds().drift) == ({}, {})


def test_between_two_anchors_counts_their_geometric_mean_before_and_after_them_the_only_one():
    speeds = anchored(("cpu:0", 100.0), ("cpu:0", 144.0), ("cpu:1", 100.0))
    assert [speeds.factor(Place("cpu:0", epoch)) for epoch in (0, 1, 2)] == pytest.approx([1.0, 1.2, 1.44])


def test_bounds_are_carried_by_the_ends_of_intervals_of_the_anchors_around():
    speeds = anchored(("cpu:0", 100.0), ("cpu:0", 120.0), ("cpu:0", 110.0))
    first, second, now = (Place("cpu:0", epoch) for epoch in (1, 2, 3))
    assert speeds.carried(10.0, now, now) == 10.0
    assert speeds.carried(10.0, first, now) == pytest.approx(10 * 110 / 100)
    assert speeds.carried(10.0, first, second) == pytest.approx(10 * 120 / 100)
    assert speeds.carried(10.0, second, first) == pytest.approx(10 * 120 / 110)
    assert speeds.carried(10.0, Place("cpu:1", 0), now) is None
    assert speeds.carried(10.0, now, Place("cpu:1", 0)) is None


@given(
    st.lists(st.lists(st.floats(90, 110), min_size=1, max_size=9), min_size=2, max_size=5),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_a_bound_that_was_carried_there_and_back_is_no_tighter(anchors, one, other):
    speeds = Speeds()
    for index, samples in enumerate(anchors):
        speeds.anchored(f"cpu:{index % 2}", samples)
    here, there = Place("cpu:0", min(one, len(anchors) // 2)), Place("cpu:1", min(other, len(anchors) // 2))
    assert speeds.carried(speeds.carried(10.0, here, there), there, here) >= 10.0
