"""Intervals by order statistics against sums of binomials and by simulation, and the rules that use them."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tune.stopping import MOST_SAMPLES, Stopping, cut, interval, lower_rank, median, rank, upper

samples = st.lists(st.floats(0.1, 1e9), min_size=1, max_size=60)


def fewer_than(r: int, n: int) -> Fraction:
    """The probability that fewer than r of n samples lie below the median."""
    return Fraction(sum(math.comb(n, k) for k in range(r)), 2**n)


@pytest.mark.parametrize("n", [*range(1, 130), 500, 1000, 2000])
def test_the_rank_is_the_largest_that_covers(n: int) -> None:
    r = rank(n)
    assert 2 * fewer_than(r, n) <= Fraction(5, 100) < 2 * fewer_than(r + 1, n)


def test_the_rank_of_many_agrees_with_the_normal_distribution() -> None:
    for n in (5000, MOST_SAMPLES):
        assert abs(rank(n) - (n / 2 - 1.96 * math.sqrt(n) / 2)) < 1.5


@pytest.mark.parametrize("n", [6, 7, 20, 101])
@pytest.mark.parametrize("draw", ["normal", "exponential", "two modes", "rounded"])
def test_the_interval_covers_the_median(n: int, draw: str) -> None:
    random = np.random.default_rng(n)
    shape = (4000, n)
    values, true = {
        "normal": (random.normal(5, 1, shape), 5.0),
        "exponential": (random.exponential(1, shape), math.log(2)),
        "two modes": (random.normal(5, 1, shape) + 100 * (random.random(shape) < 0.5), 55.0),  # half of all are below
        "rounded": (np.round(random.normal(5, 1, shape)), 5.0),
    }[draw]
    covered = sum(low <= true <= high for low, high in map(interval, np.sort(values, axis=1).tolist())) / len(values)
    assert covered >= 0.95 - 0.012  # three standard deviations of the simulation
    assert covered < 0.95 + 2 * fewer_than(rank(n) + 1, n) or draw == "rounded"  # and is no wider than it must be


def test_the_lower_bound_holds_at_all_times_at_once() -> None:
    below = np.cumsum(np.random.default_rng(1).random((20_000, 400)) < 0.5, axis=1)
    ranks = np.array([lower_rank(n) for n in range(1, 401)])
    once = (below < ranks).mean(axis=0).max()
    ever = (below < ranks).any(axis=1).mean()
    assert 0.01 < ever <= 0.05
    assert once < ever  # else looking often would cost nothing, and this test would test nothing


def test_ranks_do_not_depend_on_the_order_of_the_questions() -> None:
    assert [(rank(n), lower_rank(n)) for n in (300, 7, 299)] == [
        (rank(300), lower_rank(300)), (1, 1), (rank(299), lower_rank(299)),
    ]  # fmt: skip


@given(samples)
def test_the_median_is_the_median(values: list[float]) -> None:
    assert median(sorted(values)) == statistics.median(values)


@given(samples)
def test_the_interval_encloses_the_median_and_lies_in_the_range(values: list[float]) -> None:
    ordered = sorted(values)
    low, high = interval(ordered)
    assert ordered[0] <= low <= median(ordered) <= high <= ordered[-1]
    if len(ordered) < 6:
        assert (low, high) == (ordered[0], ordered[-1])


@given(samples)
def test_upper_is_a_sample_above_the_median(values: list[float]) -> None:
    ordered = sorted(values)
    if len(ordered) < 3:
        assert upper(ordered) == math.inf
    else:
        assert median(ordered) <= upper(ordered) <= ordered[-1]
    if len(ordered) >= 7:  # so many of n are at most the median with a probability of 1/128
        r = ordered[::-1].index(upper(ordered)) + 1
        assert fewer_than(r, len(ordered)) <= Fraction(1, 128)


@given(samples, st.floats(0.1, 1e9))
def test_who_is_not_slower_than_the_bound_is_not_cut(values: list[float], bound: float) -> None:
    ordered = sorted(values)
    if ordered[0] <= bound and len(ordered) < 12:
        assert not cut(ordered, bound)
    if ordered[0] > bound and len(ordered) >= 5:
        assert cut(ordered, bound)


@given(samples, st.floats(1e-3, 1), st.integers(1, 20))
def test_sampling_stops_when_the_interval_is_narrow(values: list[float], rel_ci: float, min_samples: int) -> None:
    stopping = Stopping(rel_ci, min_samples)
    for count, value in enumerate(values, 1):
        enough = stopping.add(value) == "enough"
        ordered = sorted(values[:count])
        low, high = interval(ordered)
        half = max(high - median(ordered), median(ordered) - low)
        assert enough == (count >= min_samples and half <= rel_ci * median(ordered))


def test_both_sides_must_be_narrow() -> None:
    stopping = Stopping(rel_ci=0.1, min_samples=3)
    assert [stopping.add(sample) for sample in (10.0, 10.0, 12.0)] == ["", "", ""]


def test_what_is_below_the_resolution_is_narrow_enough() -> None:
    stopping = Stopping(rel_ci=0.01, min_samples=2, resolution=3.0)
    assert [stopping.add(sample) for sample in (1.0, 6.0)] == ["", "enough"]
    assert Stopping(rel_ci=0.01, min_samples=2, resolution=2.0).add(1.0) == ""


def test_sampling_ends_after_so_many() -> None:
    stopping = Stopping(rel_ci=1e-9, min_samples=1)
    stopping.add(1.0)
    count = 1
    while not stopping.add(1.0 + count % 2):
        count += 1
    assert count + 1 == MOST_SAMPLES


def test_who_cannot_win_is_cut_before_there_are_enough_samples() -> None:
    stopping = Stopping(rel_ci=0.01, min_samples=100, bound=10.0)
    assert [stopping.add(sample) for sample in (11.0, 12.0, 11.0, 12.0, 11.0)] == ["", "", "", "", "raced"]
    stopping = Stopping(rel_ci=0.01, min_samples=100, bound=10.0)
    assert [stopping.add(sample) for sample in (15.1, 15.1)] == ["", "raced"]
