"""Races over recorded times, against measuring every configuration equally often.

The records are of real kernels on a busy machine: see ``benchmarks/record_spaces.py``. What is compared has the same
order of configurations and the same first visits.
"""

from __future__ import annotations

from statistics import mean

import pytest

from ostinato.tune.stopping import hopeless
from racing import Space, recorded

SPACES = {space.name: space for space in recorded()}
RACES = 40


@pytest.fixture(params=sorted(SPACES))
def space(request) -> Space:
    return SPACES[request.param]


def found(space, way):
    return [way(seed) for seed in range(RACES)]


def mean_slower(space, of):
    return mean(space.slower(each.verdict.best) for each in of)


def test_there_are_spaces():
    assert len(SPACES) == 4
    assert all(len(space.configs) > 100 for space in SPACES.values())


def test_a_race_finds_what_forty_repetitions_find_with_a_third_of_the_samples(space):
    raced, fixed = found(space, space.race), found(space, lambda seed: space.fixed(seed, 40))
    for race, other in zip(raced, fixed, strict=True):
        assert race.samples <= other.samples / 3
    shared = mean(
        bool(set(race.verdict.ties) & set(other.verdict.ties)) for race, other in zip(raced, fixed, strict=True)
    )
    assert shared >= 0.95
    assert mean_slower(space, raced) <= mean_slower(space, fixed) + 0.01


def test_a_race_chooses_better_than_as_many_samples_equally_shared(space):
    raced = found(space, space.race)
    repetitions = round(mean(race.samples for race in raced) / len(space.configs))
    fixed = found(space, lambda seed: space.fixed(seed, repetitions))
    assert mean_slower(space, raced) < mean_slower(space, fixed)
    assert mean(len(race.verdict.ties) for race in raced) < mean(len(each.verdict.ties) for each in fixed) / 2


@pytest.mark.parametrize("n", [2, 3, 4])
def test_noise_that_makes_first_samples_hopeless_would_hardly_ever_be_gone_with_the_fifth(space, n):
    def slower(samples):
        return mean(
            min(visit[:samples]) > hopeless(n) * time
            for visits, time in zip(space.visits, space.times, strict=True)
            for visit in visits
        )

    assert slower(n) - slower(5) < 0.005
