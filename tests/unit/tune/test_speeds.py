"""Speeds of devices: what references say of the time between them."""

from __future__ import annotations

import pytest

from ostinato.tune.racing.race import Place, Speeds


def with_references(*references):
    speeds = Speeds()
    for device, time in references:
        speeds.add_reference(device, [time] * 7)
    return speeds


def test_without_a_reference_a_device_counts_as_the_fastest():
    assert Speeds().factor(Place("cpu:0", 0)) == 1.0
    assert with_references(("cpu:1", 50.0)).factor(Place("cpu:0", 0)) == 1.0
    two = with_references(("cpu:0", 100.0), ("cpu:1", 200.0))
    assert [two.factor(two.place(device)) for device in ("cpu:0", "cpu:1")] == [1.0, 2.0]


def test_between_two_references_counts_their_geometric_mean_before_and_after_them_the_only_one():
    speeds = with_references(("cpu:0", 100.0), ("cpu:0", 144.0), ("cpu:1", 100.0))
    assert [speeds.factor(Place("cpu:0", epoch)) for epoch in (0, 1, 2)] == pytest.approx([1.0, 1.2, 1.44])


def test_the_scale_of_a_place_reaches_over_the_references_around_it_and_all_of_their_noise():
    speeds = Speeds()
    for samples in ([98.0, 100.0, 103.0], [120.0, 118.0], [110.0]):
        speeds.add_reference("cpu:0", samples)
    scales = [speeds.scale(Place("cpu:0", epoch)) for epoch in range(4)]
    assert scales == [(98.0, 103.0), (98.0, 120.0), (110.0, 120.0), (110.0, 110.0)]
    assert speeds.scale(Place("cpu:1", 0)) is None
