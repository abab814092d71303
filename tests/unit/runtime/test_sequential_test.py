"""Sequential A/B tests: what is not faster is taken for the better one as seldom as promised, whatever the noise."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from ostinato.runtime.retune import compare_within, plan_turns
from ostinato.runtime.sequential_test import ALPHA, ABTest

LOOSE = 1 / 20
TRIALS = 1000
MOST = 40  # pairs


def drift(draw, place, _):
    return 1 + place / 50 + draw.random() / 100


def burst(draw, place, _):
    return (3 if place // 7 % 2 else 1) + draw.random() / 10


def every_other(draw, place, _):
    return (1.3 if place % 2 else 1) + draw.random() / 100


def every_other_pair(draw, place, _):
    return (1.3 if place // 2 % 2 else 1) + draw.random() / 100


def heavy_tails(draw, place, _):
    return 1 + 0.05 * draw.paretovariate(0.8)


def ties(draw, place, _):
    return draw.choice((1.0, 1.0, 1.0, 2.0))


def growing(draw, place, _):
    return 2.0 ** (place / 4)


def adversary(draw, place, test):
    """Knows what became of the bets so far, earlier coins and all, and is rough where much is at stake."""
    bold = test.winnable(6)
    first = place % 2 == 0
    return (5.0 if first else 1.0) if bold else (1.0 if first else 1.0 + draw.random())


NOISES = [drift, burst, every_other, every_other_pair, heavy_tails, ties, growing, adversary]


def fought(noise, seed, ratio, alpha=LOOSE, most=MOST):
    """A test on a simulated machine, on which the new program takes `ratio` times what the old one would take then."""
    draw, test = random.Random(seed), ABTest(alpha, seed=seed + 1_000_000)
    places = itertools.count()
    while not test.verdict and test.pairs < most:
        new_first = test.new_first()
        first, second = noise(draw, next(places), test), noise(draw, next(places), test)
        old, new = (second, first) if new_first else (first, second)
        test.add(old, new * ratio)
    return test


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("ratio", [1.0, 1.03])
def test_what_is_not_faster_is_seldom_accepted(noise, ratio):
    accepted = sum(fought(noise, seed, ratio).verdict == "new" for seed in range(TRIALS))
    # Were it as likely as is allowed, so many or more would be accepted in one of a million such tests.
    assert accepted <= TRIALS * LOOSE + 5 * math.sqrt(TRIALS * LOOSE)


@pytest.mark.parametrize("noise", [drift, burst, every_other, every_other_pair, ties, heavy_tails])
def test_what_is_faster_is_found(noise):
    found = [fought(noise, seed, 0.7, ALPHA, 200) for seed in range(100)]
    assert sum(test.verdict == "new" for test in found) >= 95
    assert sorted(test.pairs for test in found)[50] <= 45


def test_a_clear_case_takes_twelve_pairs():
    for seed in range(100):
        test = fought(lambda *_: 1.0, seed, 0.9, ALPHA)
        assert (test.verdict, test.pairs) == ("new", 12)


def test_what_is_slower_is_soon_hopeless():
    for noise in NOISES[:4]:
        found = [fought(noise, seed, 1.5, ALPHA, 200) for seed in range(50)]
        assert {test.verdict for test in found} == {"hopeless"}
        assert sorted(test.pairs for test in found)[25] <= 25


def test_a_gain_that_matters_is_seldom_given_up():
    given_up = sum(fought(heavy_tails, seed, 0.95, ALPHA, 60).verdict == "hopeless" for seed in range(TRIALS))
    assert given_up <= TRIALS / 50


def test_coins_are_fair_and_differ():
    test = ABTest()
    assert 400 < sum(test.new_first() for _ in range(1000)) < 600
    one, other = ABTest(), ABTest()
    assert [one.new_first() for _ in range(64)] != [other.new_first() for _ in range(64)]
    one, other = ABTest(seed=3), ABTest(seed=3)
    assert [one.new_first() for _ in range(64)] == [other.new_first() for _ in range(64)]


def test_what_can_still_be_won():
    test = ABTest(ALPHA, seed=1)
    assert test.winnable(12)
    assert not test.winnable(11)


class FakeMachine:
    """Where programs take what is given, under noise; both may be run by numbers only."""

    def __init__(self, steps, ratio, noise, seed, busy=0.0):
        self.left = steps
        self.seconds = [0.0, 0.0]
        self.ran = [0, 0]
        self._ratio = ratio
        self._noise = noise
        self._draw = random.Random(seed)
        self._busy = busy
        self._places = itertools.count()
        self._present = 0

    def switch(self, program):
        if self._draw.random() < self._busy:
            return False
        self._present = program
        return True

    def run(self, steps):
        if steps > self.left:
            return None
        self.left -= steps
        self.ran[self._present] += steps
        seconds = steps * 1e-5 * self._noise(self._draw, next(self._places), ABTest(seed=0))
        seconds *= self._ratio if self._present else 1.0
        self.seconds[self._present] += seconds
        return seconds


@pytest.mark.parametrize("noise", [drift, burst, every_other, every_other_pair, heavy_tails, growing])
def test_a_comparison_never_makes_it_worse(noise):
    """With the turns as they are: what is run before the clock is read falls into the rhythm of the noise."""
    won = 0
    for seed in range(200):
        test = ABTest(LOOSE, seed=seed)
        compare_within(FakeMachine(2000, 1.02, noise, seed), (0, 1), 2000, 1e-5, test)
        won += test.verdict == "new"
    assert won <= 200 * LOOSE + 5 * math.sqrt(200 * LOOSE)


def test_a_comparison_finds_the_better_one_and_stops():
    for seed in range(50):
        machine = FakeMachine(20_000, 0.8, burst, seed)
        test = ABTest(seed=seed)
        times, why = compare_within(machine, (0, 1), 20_000, 1e-4, test)
        assert test.verdict == "new"
        assert len(times.one) == len(times.other) == test.pairs
        assert machine.left > 0
        assert "it was faster" in why


@pytest.mark.parametrize("steps", [0, 1, 23, 24, 30, 100, 1000])
@pytest.mark.parametrize("step_seconds", [1e-9, 1e-6, 1e-3, 10.0])
def test_a_comparison_keeps_to_its_steps(steps, step_seconds):
    machine = FakeMachine(steps + 17, 0.5, every_other, 1)
    test = ABTest(seed=1)
    _, why = compare_within(machine, (0, 1), steps, step_seconds, test)
    assert machine.left >= 17
    turn = max(1, math.ceil(1e-3 / step_seconds))  # a millisecond at least, and an eighth of it before
    enough = steps >= 24 * (turn + (math.ceil(turn / 8) if turn > 1 else 0))
    assert (test.verdict == "new") == (plan_turns(steps, step_seconds) != (0, 0)) == enough
    if not enough:
        assert "too few" in why


def test_a_comparison_on_a_busy_machine_ends():
    machine = FakeMachine(1000, 0.5, burst, 1, busy=1.0)
    test = ABTest(seed=1)
    times, why = compare_within(machine, (0, 1), 1000, 1e-3, test)
    assert not test.verdict
    assert "busy" in why
    assert not times.one
    assert not times.other


def test_turns_are_long_enough_and_pairs_many_enough():
    assert plan_turns(10**6, 1e-5) == (125, 1000)
    assert plan_turns(60, 1.0) == (0, 1)
    assert plan_turns(23, 1.0) == (0, 0)
    assert plan_turns(10_000, 1e-6) == (0, 0)
    for steps, step_seconds in ((24, 1e-3), (100, 1e-3), (1000, 1e-4), (10_000, 1e-4), (10**6, 1e-6)):
        warm, timed = plan_turns(steps, step_seconds)
        assert steps >= 12 * 2 * (warm + timed)
        assert timed * step_seconds >= 1e-3
