"""The race: who is cut, who comes into the final, who wins; and how seldom it is the wrong one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.tune.racing.race import ROUNDS, Race, Verdict
from ostinato.tune.stopping import cut, lower_rank
from racing import entry, finished, screened

A, B, C, D = (entry(index) for index in range(4))


def new(default=None, **policy):
    return Race(default=default, policy=ost.Policy(**policy))


def with_times(times, default=None, samples=7, device="cpu:0"):
    """A race in whose screening every sample of an entry was the same."""
    race = new(default)
    for key, time in times.items():
        race.measured(key, device, [time] * samples)
    return race


def ended(race, times, *, failing=()):
    """The verdict after a final in which every sample of an entry is the same, and some fail."""
    for _ in range(1000):
        due = race.finalists()
        if not due:
            return race.verdict()
        if due[0] in failing:
            race.failed(due[0])
        else:
            race.final(due[0], [times[due[0]]])
    raise AssertionError("a final that does not end")


# Whatever happens


@given(st.lists(st.integers(1000, 1030), min_size=1, max_size=25), st.integers(0, 24), st.integers(1, 9))
def test_without_noise_the_least_time_wins(times, default, samples):
    known = {entry(index): float(time) for index, time in enumerate(times)}
    key = entry(default) if default < len(times) else None
    race = with_times(known, key, samples)
    verdict = ended(race, known)
    assert known[verdict.best] == min(known.values())
    assert {known[tied] for tied in verdict.ties} == {min(known.values())}
    if key is not None and known[key] == min(known.values()):
        assert verdict.best == key


statuses = st.sampled_from(["ok", "ok", "ok", "raced", "failed"])


@st.composite
def histories(draw):
    """A default, what became of each entry in the screening, and who fails in the final."""
    fates = draw(st.lists(st.tuples(statuses, st.integers(1, 5), st.integers(1, 3), st.integers(0, 2)), max_size=14))
    failing = draw(st.sets(st.integers(0, 13)))
    return draw(st.none() | st.integers(0, 13)), fates, failing, draw(st.randoms(use_true_random=False))


@given(histories())
def test_who_failed_never_wins_or_ties_and_who_wins_ties_first(history):
    default, fates, failing, rng = history
    race = new(None if default is None else entry(default))
    alive = set()
    for index, (fate, time, samples, workspace) in enumerate(fates):
        if fate == "failed":
            race.failed(entry(index))
        else:
            race.measured(entry(index), f"cpu:{index % 2}", [time * rng.uniform(1, 1.1)] * samples, workspace)
            alive.add(entry(index))
    while due := race.finalists():
        if int(due[0][0]) in failing:
            race.failed(due[0])
            alive.discard(due[0])
        else:
            race.final(due[0], [rng.uniform(1, 1.5)])
        verdict = race.verdict()  # at any time
        assert set(verdict.ties) <= alive
    verdict = race.verdict()
    assert set(verdict.ties) <= alive
    assert verdict.best == (verdict.ties[0] if alive else None)
    assert len(set(verdict.ties)) == len(verdict.ties)
    if race.default in verdict.ties:
        assert verdict.best == race.default


@given(histories())
def test_the_order_of_events_means_nothing(history):
    default, fates, _, rng = history
    events = [
        (f"cpu:{index % 2}", index, fate, [time + rng.random() for _ in range(samples * 3)], workspace)
        for index, (fate, time, samples, workspace) in enumerate(fates)
    ]
    references = {"cpu:0": [2.0, 2.1, 2.2], "cpu:1": [4.0, 4.1, 4.1]}
    found = set()
    for _ in range(3):
        rng.shuffle(events)
        race = new(None if default is None else entry(default))
        for device in rng.sample(sorted(references), 2):
            race.add_reference(device, references[device])
        for device, index, fate, samples, workspace in events:
            if fate == "failed":
                race.failed(entry(index))
            else:
                race.measured(entry(index), device, samples, workspace)
        finalists = tuple(race.finalists())
        times = {entry(index): samples[0] for _, index, _, samples, _ in events}
        found.add((finalists, race.bound("cpu:0"), race.bound("cpu:1"), ended(race, times)))
    assert len(found) == 1


def test_devices_take_their_turns_as_they_come():
    def events(device, speed):
        yield "add_reference", device, [10.0 * speed] * 7
        for index in range(10):
            key = entry(2 * index + (device == "cpu:1"))
            yield "measured", key, device, [(20.0 + index) * speed * (1 + index / 100)] * 7
            if index % 4 == 3:
                yield "add_reference", device, [10.0 * speed * (1 + index / 100)] * 7

    found = set()
    for seed in range(10):
        rng = random.Random(seed)
        queues = [list(events("cpu:0", 1.0)), list(events("cpu:1", 1.7))]
        race = new()
        while any(queues):
            name, *rest = rng.choice([queue for queue in queues if queue]).pop(0)
            getattr(race, name)(*rest)
        found.add((tuple(race.finalists()), race.bound("cpu:0"), race.bound("cpu:1"), race.verdict()))
    assert len(found) == 1


# Cutting


@pytest.mark.parametrize("n", range(1, 60))
def test_the_rank_of_the_lower_bound_is_where_the_stake_is_twentyfold(n):
    def stake(below):
        bets = [(0.0, 1 / 2), (1 / 8, 1 / 6), (1 / 4, 1 / 6), (3 / 8, 1 / 6)]
        return sum(part * (2 * share) ** below * (2 - 2 * share) ** (n - below) for share, part in bets)

    assert lower_rank(n) == sum(stake(below) >= 20 for below in range(n + 1))


def test_a_fair_coin_is_called_unfair_in_less_than_one_of_twenty_sequences_however_long_one_looks():
    rng = random.Random(8)
    wrong = 0
    for _ in range(1000):
        below = 0
        for n in range(1, 400):
            below += rng.random() < 0.5
            if below < lower_rank(n):
                wrong += 1
                break
    assert 0.01 < wrong / 1000 <= 1 / 20  # the lower limit: a rule that never cuts would pass, too


NOISES = {
    "gauss": lambda rng, index: math.exp(rng.gauss(0, 0.05)),
    "skewed": lambda rng, index: 1 + rng.expovariate(10) + (rng.expovariate(1) if rng.random() < 0.05 else 0),
    "unlike": lambda rng, index: math.exp(rng.gauss(0, 0.01 + 0.1 * (index % 3))),
    "two modes": lambda rng, index: rng.choice([1.0, 1.3]) * math.exp(rng.gauss(0, 0.005)),
}


def wrong_cuts(noise, others, slower, races=300, seed=1):
    """Return in which part of races the fastest is cut, that comes somewhere among others."""
    wrong = 0
    for number in range(races):
        rng = random.Random(f"{seed} {number}")
        race = new()
        order = list(range(others + 1))
        rng.shuffle(order)
        for index in order:
            time = 1000.0 if index == 0 else 1000.0 * (1 + slower)
            screened(race, entry(index), "cpu:0", lambda index=index, time=time, rng=rng: time * noise(rng, index), 60)
        wrong += cut(race._screened[entry(0)].ordered, race.bound("cpu:0"))
    return wrong / races


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("others", [1, 30])
def test_one_that_is_as_fast_as_all_others_is_cut_as_seldom_as_stated(noise, others):
    stated = 1 / 20 + others / 128
    assert wrong_cuts(NOISES[noise], others, 0.0) <= stated + 3 * math.sqrt(stated * (1 - stated) / 300)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gauss", "skewed", "unlike"])
def test_one_that_is_faster_by_a_tenth_is_hardly_ever_cut(noise):
    assert wrong_cuts(NOISES[noise], 30, 0.1) <= 0.01


def test_the_bound_is_the_least_upper_bound_and_the_precision():
    race = new(rel_ci=0.02)
    assert race.bound("cpu:0") is None
    race.measured(A, "cpu:0", [10.0, 14.0, 11.0, 12.0, 13.0, 10.0, 10.0])
    assert race.bound("cpu:0") == pytest.approx(14 * 1.02)
    race.measured(B, "cpu:0", [20.0] * 7)
    assert race.bound("cpu:0") == pytest.approx(14 * 1.02)
    race.measured(C, "cpu:0", [9.0] * 7)
    assert race.bound("cpu:0") == pytest.approx(9 * 1.02)


@pytest.mark.parametrize("samples", [1, 2])
def test_one_or_two_samples_cut_nobody(samples):
    race = new()
    race.measured(A, "cpu:0", [10.0] * samples)
    assert race.bound("cpu:0") is None


def test_who_was_cut_by_one_that_fails_later_is_in_the_race_again():
    race = with_times({A: 1.0, B: 10.0})
    race.measured(C, "cpu:0", [11.0, 11.0])  # cut: hopeless beside A
    assert race.finalists() == []
    assert race.verdict() == Verdict(A, (A,))
    race.failed(A)
    assert race.bound("cpu:0") == pytest.approx(10.1)
    assert race.finalists() == [B, C]
    assert ended(race, {B: 10.0, C: 9.0}) == Verdict(C, (C,))


def test_the_one_that_failed_after_it_was_measured_sets_no_bound():
    race = with_times({A: 1.0})
    race.failed(A)
    assert race.bound("cpu:0") is None
    assert race.verdict() == Verdict(None, ())
    race.measured(A, "cpu:0", [2.0] * 7)  # tried once more, and well
    assert race.verdict() == Verdict(A, (A,))


def test_samples_that_are_no_times_are_refused():
    for samples in ([], [1.0, math.nan], [math.inf], [1.0, -1.0]):
        with pytest.raises(ValueError, match=r"samples|finite"):
            new().measured(A, "cpu:0", samples)


def test_a_time_of_nothing_is_a_time():
    race = with_times({A: 0.0, B: 1.0, C: 0.0})
    assert set(ended(race, {A: 0.0, B: 1.0, C: 0.0}).ties) == {A, C}


# Devices


def test_another_device_sets_no_bound_before_both_have_measured_the_anchor():
    race = with_times({A: 100.0})
    assert race.bound("cpu:1") is None
    race.add_reference("cpu:0", [50.0] * 7)
    assert race.bound("cpu:1") is None
    race.add_reference("cpu:1", [100.0] * 7)
    assert race.bound("cpu:1") == pytest.approx(200 * 1.05 * 1.01)
    assert race.bound("cpu:0") == pytest.approx(100 * 1.01)


def test_a_noisy_anchor_widens_the_bound():
    race = with_times({A: 100.0})
    race.add_reference("cpu:0", [48.0, 50.0, 52.0])
    race.add_reference("cpu:1", [90.0, 100.0, 110.0])
    assert race.bound("cpu:1") == pytest.approx(100 * 110 / 48 * 1.05 * 1.01)


def test_a_device_that_has_become_slower_is_given_a_greater_bound():
    race = new()
    race.add_reference("cpu:0", [50.0] * 7)
    race.measured(A, "cpu:0", [100.0] * 7)
    race.add_reference("cpu:0", [60.0] * 7)
    assert race.bound("cpu:0") == pytest.approx(100 * 60 / 50 * 1.01)


def test_the_final_gets_the_best_of_all_devices_by_their_speed():
    race = new()
    race.add_reference("fast", [10.0] * 7)
    race.add_reference("slow", [30.0] * 7)
    for index in range(20):
        device, speed = ("fast", 1) if index % 2 else ("slow", 3)
        race.measured(entry(index), device, [100.0 * (1 + index / 100) * speed, 140.0 * speed])
    assert sorted(race.finalists()) == [entry(index) for index in range(8)]


def test_a_drift_between_two_anchors_is_divided_out():
    race = new()
    for index in range(21):
        now = 1 + index / 100
        if index % 5 == 0:
            race.add_reference("cpu:0", [10.0 * now] * 7)
        # Later ones are better, but the device is slower: by itself the first would look best.
        race.measured(entry(index), "cpu:0", [100.0 * (1 - index * 0.0075) * now, 150.0 * now])
    assert entry(20) in race.finalists()
    assert entry(0) not in race.finalists()


def test_results_of_another_time_are_ranked_and_cut_nobody_until_an_anchor_relates_them():
    race = new()
    race.measured(A, "store:cpu:0", [5.0] * 7)
    assert race.bound("cpu:0") is None
    race.measured(B, "cpu:0", [6.0] * 7)
    race.measured(C, "cpu:0", [50.0] * 7)
    assert race.bound("cpu:0") == pytest.approx(6.06)
    assert sorted(race.finalists()) == [A, B]
    race.add_reference("store:cpu:0", [1.0] * 7)
    race.add_reference("cpu:0", [1.0] * 7)
    assert race.bound("cpu:0") == pytest.approx(5 * 1.05 * 1.01)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_devices_of_unlike_speed_find_the_fastest(seed):
    rng = random.Random(seed)
    times = {entry(index): 100.0 * (1 + index / 20) for index in range(40)}
    speeds = {f"sim:{number}": rng.uniform(0.5, 4) for number in range(3)}
    race = new()
    for device, speed in speeds.items():
        race.add_reference(device, [500.0 * speed * math.exp(rng.gauss(0, 0.01)) for _ in range(7)])
    for key in rng.sample(sorted(times), len(times)):
        device = rng.choice(sorted(speeds))
        draw = lambda key=key, device=device: times[key] * speeds[device] * math.exp(rng.gauss(0, 0.01))  # noqa: E731
        screened(race, key, device, draw, 60)
    finished(race, lambda key, number: [times[key] * math.exp(rng.gauss(0, 0.01)) for _ in range(3)])
    assert race.verdict().best == entry(0)


# The final


def test_the_default_is_in_the_final_however_slow_and_wins_unless_it_is_beaten():
    race = with_times({A: 10.0, B: 30.0}, default=B)
    assert sorted(race.finalists()) == [A, B]
    assert ended(race, {A: 10.0, B: 9.9}) == Verdict(B, (B,))


def test_the_final_has_eight_at_most_and_the_default():
    times = {entry(index): 100.0 + index / 100 for index in range(30)}
    race = with_times(times, default=entry(29))
    assert len(race.finalists()) == 8
    assert entry(29) in race.finalists()
    assert with_times(times).finalists() == [entry(index) for index in range(8)]


def test_the_median_decides_who_comes_into_the_final_not_luck():
    race = new()
    for index in range(8):
        race.measured(entry(index), "cpu:0", [9.0, 10.0, 11.0])
    race.measured(entry(8), "cpu:0", [5.0, 10.5, 10.5])  # once fast by chance
    race.measured(entry(9), "cpu:0", [9.9, 9.9, 50.0])  # once slow
    assert sorted(race.finalists()) == [*map(entry, range(7)), entry(9)]


@pytest.mark.parametrize("default", [None, A])
def test_there_is_no_final_of_one(default):
    race = with_times({A: 10.0, B: 30.0}, default=default)
    assert race.finalists() == []
    assert not race.finalists()
    assert race.verdict() == Verdict(A, (A,))


def test_of_ties_the_default_wins_then_less_workspace_then_the_smaller_id():
    def best(default, spaces):
        race = new(default)
        for key, workspace in spaces.items():
            race.measured(key, "cpu:0", [10.0] * 7, workspace)
        verdict = ended(race, dict.fromkeys(spaces, 10.0))
        assert set(verdict.ties) == set(spaces)
        return verdict.ties

    assert best(C, {A: 0, B: 0, C: 9}) == (C, A, B)
    assert best(None, {A: 5, B: 3, C: 9}) == (B, A, C)
    assert best(None, {C: 3, B: 3, A: 5}) == (B, C, A)


def test_less_workspace_does_not_make_up_for_more_than_the_precision():
    race = new(rel_ci=0.01)
    for key, workspace in {A: 0, B: 1, C: 2}.items():
        race.measured(key, "cpu:0", [10.0, 10.1] * 4, workspace)
    times = {A: 10.3, B: 10.05, C: 10.0}
    taken = dict.fromkeys(times, 0)
    while due := race.finalists():
        key = due[0]
        race.final(key, [times[key] * (0.9, 1.0, 1.1)[(taken[key] + int(key[0])) % 3]])
        taken[key] += 1
    assert race.verdict() == Verdict(B, (B, C, A))


def test_who_always_takes_the_same_number_of_ns_is_not_asked_again():
    race = with_times({A: 10.0, B: 10.0, C: 10.0}, samples=1)
    assert race.finalists() == []
    assert race.verdict() == Verdict(A, (A, B, C))
    race = with_times({A: 10.0, B: 10.0, C: 10.1}, samples=1)
    assert len(race.finalists()) == 3


def test_one_that_fails_in_the_final_is_out_and_the_others_begin_anew():
    race = with_times({A: 10.0, B: 10.01, C: 10.02})
    for _ in range(4):
        for key in race.finalists():
            race.final(key, [{A: 10.0, B: 10.5, C: 9.0}[key]])
    race.failed(C)
    assert race.finalists() == [A, B]
    assert ended(race, {A: 10.0, B: 10.5}) == Verdict(A, (A,))


def test_all_may_fail_in_the_final():
    times = {entry(index): 10.0 + index / 1000 for index in range(12)}
    race = with_times(times, default=A)
    last = ended(race, times, failing=times).best  # against whom there is nobody left to be measured
    assert last not in (None, A)
    race.failed(last)
    assert race.verdict() == Verdict(None, ())
    assert race.finalists() == []


def test_in_place_of_one_that_fails_comes_the_next():
    times = {entry(index): 10.0 + index / 1000 for index in range(12)}
    race = with_times(times)
    race.failed(entry(3))
    assert race.finalists() == [entry(index) for index in range(9) if index != 3]


def test_a_final_that_was_broken_off_leaves_the_screenings_verdict():
    race = with_times({A: 10.0, B: 10.05, C: 20.0})
    race.final(race.finalists()[0], [1.0])
    assert race.verdict() == Verdict(A, (A,))


def test_one_sample_each_is_enough_for_a_screening():
    times = {entry(index): 100.0 + index for index in range(40)}
    rng = random.Random(4)
    race = new()
    for key, time in times.items():
        race.measured(key, "cpu:0", [time * rng.uniform(0.98, 1.02)])
    assert race.bound("cpu:0") is None
    verdict = ended(race, times)
    assert verdict.best == entry(0)


def test_ops_of_one_candidate_race_each_by_itself_and_share_turns():
    race = new()
    for op, time in (("nn", 10.0), ("nt", 10.01), ("tt", 30.0)):
        race.measured(("a", op), "cpu:0", [time] * 7)
    turns = 0
    while due := race.finalists():
        turns += 1
        for op, time in (("nn", 10.0), ("nt", 9.0), ("tt", 30.0)):  # one run of the command reports all
            race.final(("a", op), [time])
        assert len(due) == 2
    assert turns == 6
    assert race.verdict().best == ("a", "nt")


def test_turns_of_the_final_are_short():
    policy = new(max_seconds=3.0, rel_ci=0.001, min_samples=50, cache="cold").turn
    assert policy.min_samples == 3
    assert policy.max_seconds == pytest.approx(3.0 / ROUNDS)
    assert policy.cache == "cold"
    assert new(min_samples=1).turn.min_samples == 1


def outcome(seed, default_time, noise):
    """How much slower than the default the winner of a race with noise is; negative if it is faster."""
    rng = random.Random(seed)
    times = {entry(index): 1000.0 * (1 + rng.random() ** 2) for index in range(1, 30)}
    times[A] = default_time
    race = new(A)
    for key in rng.sample(sorted(times), len(times)):
        screened(race, key, "cpu:0", lambda key=key: times[key] * noise(rng, int(key[0])), 30)
    finished(race, lambda key, number: [times[key] * noise(rng, int(key[0])) for _ in range(3)])
    best = race.verdict().best
    return times[best] / default_time - 1


@pytest.mark.parametrize("noise", ["gauss", "skewed", "unlike"])
def test_the_winner_is_hardly_ever_slower_than_the_default(noise):
    worse = [outcome(seed, 1000.0, NOISES[noise]) for seed in range(60)]
    assert sum(slower > 0.02 for slower in worse) <= 1
    assert max(worse) < 0.1


@pytest.mark.parametrize("noise", ["gauss", "skewed"])
def test_a_default_that_is_far_slower_never_wins(noise):
    assert max(outcome(seed, 2500.0, NOISES[noise]) for seed in range(30)) < -0.5
