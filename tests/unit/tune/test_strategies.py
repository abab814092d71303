"""Strategies: what is offered, in which order, and what is learnt from results."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.tune.result import Result
from ostinato.tune.strategies import Exhaustive, Listed, Optuna, Random, Strategy


def made(config):
    return ost.Candidate.command(["./run"], config)


def configs(strategy):
    return [candidate.config for candidate in iter(strategy.ask, None)]


def frozen(found):
    return Counter(tuple(sorted(config.items())) for config in found)


def result(candidate, time_ns=None, status="ok", op="op"):
    return Result(candidate=candidate, op=op, status=ost.Status(status), time_ns=time_ns)


spaces = st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
    lambda sizes: st.integers(1, 7).map(
        lambda modulus: ost.Space(
            {f"p{index}": range(size) for index, size in enumerate(sizes)},
            where=lambda config: sum(config.values()) % modulus != 1,
        )
    )
)


@given(spaces)
def test_exhaustive_offers_the_space_in_its_order(space):
    assert configs(Exhaustive(space, made)) == list(space)


@given(spaces, st.integers(0, 3))
def test_random_offers_every_configuration_once(space, seed):
    assert frozen(configs(Random(space, made, seed=seed))) == frozen(space)


@given(spaces, st.integers(1, 20))
def test_random_offers_as_many_as_asked_for(space, n):
    offered = frozen(configs(Random(space, made, n)))
    assert offered.total() == min(n, len(list(space)))
    assert offered <= frozen(space)


def test_random_draws_each_configuration_equally_often_at_each_turn():
    space = ost.Space({"p": range(4)})
    turns = [Counter() for _ in range(4)]
    for seed in range(2000):
        for turn, config in zip(turns, configs(Random(space, made, seed=seed)), strict=True):
            turn[config["p"]] += 1
    assert all(400 < turn[value] < 600 for turn in turns for value in range(4))  # 500 expected, deviation 19


def test_random_is_the_same_for_the_same_seed_and_another_for_another():
    space = ost.Space({"p": range(50), "q": range(50)})
    first, again, other = (configs(Random(space, made, 20, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_random_draws_from_a_space_larger_than_memory():
    space = ost.Space({f"p{index}": range(10) for index in range(60)})
    offered = configs(Random(space, made, 100))
    assert len(frozen(offered)) == 100
    assert all(config in space for config in offered)


def test_a_generator_is_asked_only_when_a_candidate_is_wanted():
    taken = []

    def endless():
        for n in itertools.count():
            taken.append(n)
            yield made({"n": n})

    listed = Listed(endless())
    assert listed.ask().config == {"n": 0}
    assert taken == [0]
    assert list(listed.rest()) == []  # without end, so they are not all promised


def test_a_list_promises_all_of_its_candidates():
    listed = Listed([made({"n": n}) for n in range(3)])
    listed.ask()
    assert [candidate.config["n"] for candidate in listed.rest()] == [1, 2]
    assert listed.ask() is None


@pytest.mark.parametrize("n", [0, -1])
def test_a_number_of_candidates_is_positive(n):
    with pytest.raises(ValueError, match="at least 1"):
        Random(ost.Space({"p": [1]}), made, n)


@pytest.mark.parametrize("n", [1.5, True, "3"])
def test_a_number_of_candidates_is_whole(n):
    with pytest.raises(TypeError, match="must be an integer"):
        Random(ost.Space({"p": [1]}), made, n)


def test_without_optuna_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "import ostinato as ost\n"
        "from ostinato.tune.strategies import Optuna\n"
        "try: Optuna(ost.Space({'p': [1]}), lambda config: None, 1)\n"
        "except ImportError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'ostinato[optuna]'" in told.stdout


class TestOptuna:
    @pytest.fixture(autouse=True)
    def _optuna(self):
        pytest.importorskip("optuna")

    @settings(max_examples=15, deadline=None)
    @given(spaces, st.integers(1, 30))
    def test_it_offers_distinct_configurations_of_the_space_until_there_are_no_more(self, space, n):
        offered = frozen(configs(Optuna(space, made, n)))  # nothing is told: as if all were measured at once
        assert offered.total() == min(n, len(list(space)))
        assert offered <= frozen(space)

    @settings(max_examples=10, deadline=None)
    @given(spaces, st.randoms(use_true_random=False))
    def test_it_goes_on_whatever_it_is_told_and_whenever(self, space, rng):
        strategy = Optuna(space, made, 1000)
        running, offered = [], []
        while (candidate := strategy.ask()) is not None:
            offered.append(candidate.config)
            running.append(candidate)
            while running and rng.random() < 0.6:
                candidate = running.pop(rng.randrange(len(running)))
                status = rng.choice(["ok", "raced", "crash", "invalid", "cancelled"])
                strategy.tell(result(candidate, rng.choice([0.0, 5.0]) if status in ("ok", "raced") else None, status))
        assert frozen(offered) == frozen(space)

    def test_it_finds_the_best_sooner_than_chance(self):
        space = ost.Space({"x": range(0, 200, 5), "y": [2**k for k in range(12)], "kind": ["a", "b", "c"]})

        def time_of(config):
            return 100 + (config["x"] - 120) ** 2 + (config["y"].bit_length() - 7) ** 2 * 50 + ord(config["kind"][0])

        def best(strategy):
            found = []
            while (candidate := strategy.ask()) is not None:
                found.append(time_of(candidate.config))
                strategy.tell(result(candidate, float(found[-1])))
            return min(found)

        learnt = sum(best(Optuna(space, made, 60, seed=seed)) for seed in range(3))
        by_chance = sum(best(Random(space, made, 60, seed=seed)) for seed in range(3))
        assert learnt < by_chance

    def test_what_failed_is_avoided(self):
        space = ost.Space({"x": range(100), "y": range(100)})
        strategy = Optuna(space, made, 80, seed=3)
        failed = []
        while (candidate := strategy.ask()) is not None:
            wrong = candidate.config["x"] < 50
            failed.append(wrong)
            strategy.tell(result(candidate, None if wrong else 7.0, "crash" if wrong else "ok"))
        assert sum(failed[40:]) < 10  # 20 by chance

    def test_the_same_seed_and_results_give_the_same_candidates(self):
        def run(seed):
            strategy = Optuna(ost.Space({"x": range(30), "y": range(30)}), made, 30, seed=seed)
            offered = []
            while (candidate := strategy.ask()) is not None:
                offered.append(candidate.config)
                strategy.tell(result(candidate, 1.0 + candidate.config["x"] * candidate.config["y"]))
            return offered

        assert run(1) == run(1) != run(2)

    def test_a_candidate_that_was_measured_before_it_is_proposed_counts_and_is_not_offered(self):
        space = ost.Space({"x": [1, 2, 3]})
        strategy = Optuna(space, made, 10)
        strategy.tell(result(made({"x": 2}), 5.0))  # the default: it comes first, whatever the strategy would offer
        assert frozen(configs(strategy)) == frozen([{"x": 1}, {"x": 3}])

    def test_of_the_ops_of_a_command_the_fastest_counts(self):
        import optuna

        class Watched(optuna.samplers.RandomSampler):
            def after_trial(self, study, trial, state, values):
                ends.append((state, values))

        ends = []
        strategy = Optuna(ost.Space({"x": [1, 2, 3]}), made, 3, sampler=Watched(seed=0))
        candidate = strategy.ask()
        for op, time_ns in (("slow", 100.0), ("fast", 1.0), ("broken", None)):
            strategy.tell(result(candidate, time_ns, "ok" if time_ns else "crash", op))
        strategy.ask()
        assert ends == [(optuna.trial.TrialState.COMPLETE, [0.0])]

    def test_it_says_nothing_and_leaves_optunas_messages_as_they_are(self, capfd):
        import optuna

        before = optuna.logging.get_verbosity()
        assert before < optuna.logging.WARNING
        strategy = Optuna(ost.Space({"x": [1, 2, 3]}), made, 3)
        strategy.tell(result(strategy.ask(), 1.0))
        strategy.ask()
        assert capfd.readouterr() == ("", "")
        assert optuna.logging.get_verbosity() == before


def test_a_strategy_of_ones_own_needs_only_ask():
    class One(Strategy):
        def ask(self):
            return None

    strategy = One()
    strategy.tell(result(made({}), 1.0))
    assert list(strategy.rest()) == []


def test_combinations_by_number_are_those_of_the_space_in_its_order():
    rng = random.Random(5)
    for _ in range(20):
        space = ost.Space(
            {name: range(rng.randint(1, 4)) for name in "abc"}, where=lambda config: config["a"] != config["b"]
        )
        found = [space.at(number) for number in range(space.size)]
        assert [config for config in found if config is not None] == list(space)
        for number in (-1, space.size):
            with pytest.raises(IndexError):
                space.at(number)
