"""The final: whose turn it is, when somebody is beaten, and how seldom the wrong one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tune.racing.race import ROUNDS, Final


def finalists(count):
    return [(str(index), "op") for index in range(count)]


def played(final, sample):
    """Play a final with ``sample(index, round)`` as the only sample of each turn."""
    while due := final.due():
        final.turn(due[0], [sample(int(due[0][0]), final.rounds)])
    return final


@pytest.mark.parametrize("count", range(2, 9))
def test_everybody_has_one_turn_a_round_and_two_rounds_make_up_for_who_is_early(count):
    final = Final(finalists(count), 1e-9)
    firsts = set()
    while not final.confirmed:
        places = dict.fromkeys(final.field, 0)
        for _ in range(2):
            order = final.due()
            firsts.add(order[0])
            for place, entry in enumerate(order):
                places[entry] += place
                final.turn(entry, [1.0 + 0.01 * ((int(entry[0]) + final.rounds) % 2)])
        assert set(places.values()) == {count - 1}
        if final.rounds == ROUNDS - 1:
            break
    assert len(firsts) == count


def test_the_order_of_turns_in_a_round_means_nothing():
    rng = random.Random(2)
    times = [[1 + index / 50 + 0.02 * rng.random() for index in range(5)] for _ in range(ROUNDS)]
    outcomes = set()
    for seed in range(20):
        shuffle = random.Random(seed)
        final = Final(finalists(5), 0.001)
        while due := final.due():
            entry = shuffle.choice(due)
            final.turn(entry, [times[final.rounds][int(entry[0])]])
        outcomes.add((final.rounds, tuple(sorted(final.standing))))
    assert len(outcomes) == 1


@given(st.lists(st.integers(1000, 1010), min_size=2, max_size=8), st.floats(0.1, 10))
def test_without_noise_the_fastest_are_left_whatever_all_share(times, drift):
    final = played(Final(finalists(len(times)), 0.001), lambda index, number: times[index] * drift**number)
    assert final.standing == [entry for entry in final.field if times[int(entry[0])] == min(times)]
    assert final.rounds == 6 or len(set(times)) == 1


def spread(final, places, sample, rng):
    """Play a final at several places at once, which are quick by chance; now and then one goes away."""
    playing = {}
    while not final.confirmed:
        for place in range(places):
            if place not in playing and (due := final.due(str(place))):
                number = final._playing[str(place)]
                assert number not in [other for other, _ in playing.values()]
                playing[place] = number, due[0]
        assert playing, "a final that does not end"
        place = rng.choice(list(playing))
        number, entry = playing.pop(place)
        if rng.random() < 0.05:
            final.leave(str(place))
        else:
            final.turn(entry, [sample(int(entry[0]), number)], str(place))
    return final


@given(st.integers(2, 8), st.integers(1, 17), st.sampled_from([0.0, 0.001, 0.03, 0.3]), st.integers())
def test_at_several_places_the_same_is_found_as_at_one(count, places, noise, seed):
    rng = random.Random(seed)
    speeds = [rng.uniform(1, 1.5) for _ in range(count)]
    slow = [math.exp(rng.gauss(0, 0.1)) for _ in range(ROUNDS)]
    times = [[own * each * math.exp(rng.gauss(0, noise)) for own in speeds] for each in slow]
    one = played(Final(finalists(count), 0.01), lambda index, number: times[number][index])
    several = spread(Final(finalists(count), 0.01), places, lambda index, number: times[number][index], rng)
    assert (several.rounds, several.standing, several.times()) == (one.rounds, one.standing, one.times())


def test_rounds_that_may_not_be_needed_begin_late():
    final = Final(finalists(3), 0.01)
    begun = [final.due(str(place)) for place in range(9)]
    assert [bool(due) for due in begun] == [True] * 6 + [False] * 3
    for place, due in enumerate(begun[:6]):
        for entry in due:
            final.turn(entry, [100 + 10 * ((int(entry[0]) + place) % 3)], str(place))
    assert (final.rounds, final.confirmed) == (6, False)
    assert all(final.due(str(place)) for place in range(9))


def test_twice_as_slow_is_beaten_after_two_rounds():
    final = Final(finalists(3), 0.01)
    for _ in range(2):
        for entry in final.due():
            final.turn(entry, [{"0": 1.0, "1": 2.0, "2": 1.01}[entry[0]]])
    assert final.standing == [("0", "op"), ("2", "op")]
    assert not final.confirmed


def test_what_is_the_same_twice_is_not_asked_again():
    final = Final(finalists(3), 0.01)
    for number in range(2):
        for entry in final.due():
            final.turn(entry, [1.0 + 1e-5 * number])
    assert final.confirmed
    assert final.decides
    assert final.standing == finalists(3)


def test_once_twice_as_slow_is_not_beaten():
    final = Final(finalists(2), 0.01)
    for number in range(4):
        for entry in final.due():
            final.turn(entry, [2.0 if entry[0] == "1" and number == 0 else 1.0])
    assert len(final.standing) == 2


def test_finalists_that_are_equal_within_the_precision_are_not_measured_longer():
    final = played(Final(finalists(4), 0.01), lambda index, number: 100 + ((index + number) % 3) / 10)
    assert final.rounds == 6
    assert len(final.standing) == 4


def test_finalists_that_cannot_be_told_apart_are_left_after_the_last_round():
    final = played(Final(finalists(4), 0.01), lambda index, number: 100 + 10 * ((index + number) % 4))
    assert final.rounds == ROUNDS
    assert len(final.standing) == 4
    assert final.due() == []


def test_of_one_turn_the_median_counts_and_more_samples_of_a_round_belong_to_its_turn():
    final = Final(finalists(2), 0.01)
    for number in range(6):
        first, second = final.due()
        time = 1.0 + number / 1000
        final.turn(first, [time, 90.0])
        final.turn(first, [time])
        assert final.due() == [second]
        final.turn(second, [time])
    assert final.rounds == 6
    assert final.times()["0", "op"] == pytest.approx((1.0025, 1.0025, 1.0025))


def test_turns_of_others_and_after_the_end_change_nothing():
    final = played(Final(finalists(2), 0.01), lambda index, number: 1.0 + index)
    before = final.times()
    final.turn(("0", "op"), [50.0])
    final.turn(("7", "op"), [50.0])
    assert (final.times(), final.standing) == (before, [("0", "op")])


@pytest.mark.parametrize("count", [0, 1])
def test_of_fewer_than_two_nothing_is_to_be_decided(count):
    final = Final(finalists(count), 0.01)
    assert (final.due(), final.standing, final.decides) == ([], finalists(count), False)


def beaten(count, faster, noise, finals=150, seed=0):
    """Return in which part of finals the first of `count` is beaten that is faster than the others by a part."""
    lost = 0
    for number in range(finals):
        rng = random.Random(f"{seed} {number}")
        shared = [math.exp(rng.gauss(0, 0.1)) for _ in range(ROUNDS)]

        def sample(index, number, rng=rng, shared=shared):
            return shared[number] * noise(rng, index) * (1 if index == 0 else 1 + faster)

        lost += ("0", "op") not in played(Final(finalists(count), 0.001), sample).standing
    return lost / finals


SPREAD = 0.03


def gauss(rng, index):
    return math.exp(rng.gauss(0, SPREAD))


def skewed(rng, index):
    return gauss(rng, index) * (1 + rng.expovariate(3) if rng.random() < 0.1 else 1)


def unlike(rng, index):
    return math.exp(rng.gauss(0, SPREAD * (3 if index % 2 else 1)))


# The rates that Final's docstring names, with three standard deviations of what 150 finals show.
@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize(("noise", "rate"), [(gauss, 1 / 20), (skewed, 1 / 20), (unlike, 1 / 10)])
def test_one_of_equals_is_seldom_beaten(count, noise, rate):
    assert beaten(count, 0.0, noise) <= rate + 3 * math.sqrt(rate / 150)


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("noise", [gauss, skewed])
def test_one_that_is_faster_by_the_noise_of_a_turn_is_hardly_ever_beaten(count, noise):
    assert beaten(count, SPREAD, noise) <= 1 / 50 + 3 * math.sqrt(1 / 50 / 150)


def missed(places, suits, finals=120):
    """Return in how many finals on devices of different speeds the fastest, by 1 %, has not the least time.

    Each device suits each finalist a little differently: `suits` is by how much.
    """
    count = 0
    for seed in range(finals):
        rng = random.Random(seed)
        speeds = [math.exp(rng.gauss(0, 0.03)) for _ in range(places)]
        own = [[math.exp(rng.gauss(0, suits)) * (1.0 if not index else 1.01) for index in range(8)] for _ in speeds]
        final = Final(finalists(8), 0.001)
        while not final.confirmed:
            for place in range(places):
                if due := final.due(str(place)):
                    time = own[place][int(due[0][0])] * speeds[place] * math.exp(rng.gauss(0, 0.01))
                    final.turn(due[0], [time], str(place))
        times = final.times()
        count += min(final.standing, key=lambda entry: times[entry][1]) != ("0", "op")
    return count


@pytest.mark.slow
@pytest.mark.parametrize("places", [2, 6, 16])
def test_several_devices_miss_the_fastest_no_more_often_than_one(places):
    assert missed(places, 0.0) <= missed(1, 0.0) + 3 * math.sqrt(0.08 * 120)
    assert missed(places, 0.01) < missed(1, 0.01)


def test_a_difference_of_twice_the_noise_is_found():
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        final = played(Final(finalists(3), 0.001), lambda index, _, rng=rng: gauss(rng, index) * (1 + 0.06 * index))
        found += final.standing == [("0", "op")]
    assert found > 45
