"""The contract on tuning: spaces, candidates, policies, budgets, statuses."""

from __future__ import annotations

import contextlib
import copy
import enum
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from naming import stable_str

NAMES = st.text("abcdefgh_", min_size=1, max_size=5)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def canonical(value):
    return json.dumps(value, sort_keys=True)


# Status


def test_statuses_are_those_of_the_contract():
    names = ["ok", "raced", "invalid", "compile_error", "compile_timeout", "crash", "hang_killed", "oom"]
    names += ["wrong_result", "bad_output", "contended", "device_lost", "cancelled"]
    assert [status.value for status in ost.Status] == names
    for name in names:
        status = ost.Status(name)
        assert isinstance(status, str)
        assert status == name
        assert status is ost.Status[name.upper()]
        assert str(status) == f"{status}" == name
        assert json.dumps(status) == f'"{name}"'
        assert {name: 1}[status] == 1
    with pytest.raises(ValueError, match="failed"):
        ost.Status("failed")


# Policy and budget


def test_policy_is_frozen():
    policy = ost.Policy(cache="cold", rel_ci=0.02, min_samples=3, max_seconds=0.5)
    assert (policy.cache, policy.rel_ci, policy.min_samples, policy.max_seconds) == ("cold", 0.02, 3, 0.5)
    with pytest.raises(AttributeError):
        policy.cache = "warm"
    assert policy == ost.Policy("cold", 0.02, 3, 0.5) != ost.Policy()
    assert hash(policy) == hash(copy.copy(policy))
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_policy_defaults():
    policy = ost.Policy()
    assert policy.cache in ("cold", "warm")
    assert policy.rel_ci == 0.01
    assert policy.min_samples >= 1
    assert policy.max_seconds > 0


def test_equal_policies_look_equal():
    policy = ost.Policy(rel_ci=np.float32(0.5), min_samples=np.int64(3), max_seconds=2)
    assert repr(policy) == repr(ost.Policy(rel_ci=0.5, min_samples=3, max_seconds=2.0))
    assert type(policy.min_samples) is int
    assert type(policy.max_seconds) is type(policy.rel_ci) is float


@pytest.mark.parametrize(
    "wrong",
    [
        {"cache": "hot"},
        {"cache": None},
        {"rel_ci": 0},
        {"rel_ci": -0.1},
        {"rel_ci": float("nan")},
        {"rel_ci": "0.1"},
        {"rel_ci": True},
        {"min_samples": 0},
        {"min_samples": 2.5},
        {"min_samples": True},
        {"max_seconds": 0},
        {"max_seconds": float("inf")},
        {"max_seconds": None},
        {"max_minutes": 1},
    ],
    ids=stable_str,
)
def test_wrong_policies(wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        ost.Policy(**wrong)


def test_budget():
    assert ost.Budget() == ost.Budget(seconds=None, candidates=None)
    budget = ost.Budget(2, np.int64(5))
    assert (budget.seconds, budget.candidates) == (2.0, 5)
    assert type(budget.candidates) is int
    with pytest.raises(AttributeError):
        budget.seconds = 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": "1"},
        {"candidates": 0},
        {"candidates": 1.5},
        {"candidates": True},
        {"minutes": 1},
    ],
    ids=stable_str,
)
def test_wrong_budgets(wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        ost.Budget(**wrong)


# Spaces


@given(st.dictionaries(NAMES, st.lists(PLAIN, min_size=1, max_size=4, unique_by=canonical), max_size=4))
def test_a_space_is_the_product_of_its_values(parameters):
    configurations = [dict(zip(parameters, values, strict=True)) for values in itertools.product(*parameters.values())]
    assert list(ost.Space(parameters)) == configurations


@given(
    st.dictionaries(NAMES, st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True), min_size=1, max_size=3),
    st.integers(1, 5),
)
def test_a_constraint_excludes_configurations(parameters, modulus):
    def where(config):
        return sum(config.values()) % modulus == 0

    every = list(ost.Space(parameters))
    allowed = list(ost.Space(parameters, where=where))
    assert allowed == [config for config in every if where(config)]
    space = ost.Space(parameters, where)
    assert all((config in space) == (config in allowed) for config in every)


def test_a_space_is_iterated_again_and_again_and_side_by_side():
    space = ost.Space({"a": (value for value in range(3)), "b": ["x", "y"]})
    first, second = iter(space), iter(space)
    assert next(first) == next(second) == {"a": 0, "b": "x"}
    assert list(space) == list(space)
    assert len(list(first)) == len(list(second)) == 5


def test_a_space_may_be_larger_than_memory():
    space = ost.Space({f"p{k}": range(1000) for k in range(10)})
    assert len(list(itertools.islice(space, 1000))) == 1000


def test_who_changes_a_configuration_does_not_change_the_space():
    tiles = [[16, 16], [32, 8]]
    space = ost.Space({"tile": tiles, "unroll": [1]}, where=lambda config: config.pop("unroll") == 1)
    next(iter(space))["tile"].append(4)
    tiles[1].append(4)
    tiles.append([1, 1])
    assert list(space) == [{"tile": [16, 16], "unroll": 1}, {"tile": [32, 8], "unroll": 1}]


def test_a_space_holds_values_as_they_are_everywhere():
    space = ost.Space({"tile": [(16, 16)], "n": np.arange(1, 3), "x": [np.float64(0.5)], "flag": [np.bool_(True)]})
    config = next(iter(space))
    assert json.loads(json.dumps(config)) == config == {"tile": [16, 16], "n": 1, "x": 0.5, "flag": True}
    assert type(config["n"]) is int
    assert type(config["x"]) is float
    assert config["flag"] is True
    assert {"tile": (16, 16), "n": np.int64(2), "x": 0.5, "flag": True} in space


def test_what_is_not_in_a_space():
    space = ost.Space({"n": [1, 2]})
    for other in ({"n": 3}, {"n": True}, {"n": 1.0}, {"n": 1, "m": 1}, {}, {"n": {1}}, {"n": float("nan")}, 1, "n"):
        assert other not in space


def test_several_constraints():
    space = ost.Space({"n": range(10)}, where=[lambda config: config["n"] > 3, lambda config: config["n"] % 2])
    assert [config["n"] for config in space] == [5, 7, 9]
    assert space.sample(random.Random(0)) in space


def test_what_a_constraint_raises_reaches_who_iterates():
    with pytest.raises(KeyError, match="m"):
        list(ost.Space({"n": [1]}, where=lambda config: config["m"]))


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ([("n", [1])], None),
        ({1: [1]}, None),
        ({"n": 1}, None),
        ({"n": "abc"}, None),
        ({"n": []}, None),
        ({"n": [1, 1]}, None),
        ({"n": [[1], (1,)]}, None),
        ({"n": [{1, 2}]}, None),
        ({"n": [b"x"]}, None),
        ({"n": [object()]}, None),
        ({"n": [float("nan")]}, None),
        ({"n": [1]}, "n > 1"),
        ({"n": [1]}, 3),
        ({"n": [1]}, [3]),
    ],
    ids=stable_str,
)
def test_wrong_spaces(parameters, where):
    with pytest.raises((TypeError, ValueError)):
        ost.Space(parameters, where=where)


def test_many_values_are_no_burden():
    assert sum(1 for _ in ost.Space({"n": range(100_000)})) == 100_000


# Candidates: command lines


def words(argv, config=None, **arguments):
    """Return the arguments of a candidate with the configuration's values."""
    return list(ost.Candidate.command(argv, config, **arguments).words)


def test_names_stand_for_the_values_of_the_configuration():
    config = {"tile": 64, "flag": "-O3", "x": 0.5, "block-size": 8, "on": True, "none": None}
    assert words(["prog", "--tile={tile}x{tile}", "{flag}", "{x}", "{block-size}", "{on}{none}"], config) == [
        "prog",
        "--tile=64x64",
        "-O3",
        "0.5",
        "8",
        "TrueNone",
    ]
    assert words(["{program}"], {"program": "/bin/true"}) == ["/bin/true"]
    assert words([Path("/bin/true")]) == ["/bin/true"]
    assert words(("a", "b c", "$HOME", "*")) == ["a", "b c", "$HOME", "*"]


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ('{"v":1,"op":"{op}"}', '{"v":1,"op":"mm"}'),
        ('{{"v":1,"op":"{op}"}}', '{"v":1,"op":"mm"}'),
        ('{"a":{"b":{}}}', '{"a":{"b":{}}}'),
        ("f() { echo {op}; }; f", "f() { echo mm; }; f"),
        ("${HOME}/{op}", "${HOME}/mm"),
        ("{{op}}", "{op}"),
        ("{{op}} {op} {", "{op} mm {"),
        ("{op:>4}", "  mm"),
        ("{}", "{}"),
        ("{", "{"),
        ("}", "}"),
        ("{0}", "{0}"),
        ("x{1,2}y", "x{1,2}y"),
    ],
)
def test_other_braces(word, filled):
    assert words([word], {"op": "mm"}) == [filled]


def test_values_are_put_in_as_they_are():
    config = {"x": "{y}", "y": "$(rm) {{}}"}
    assert words(["{x}", "{y}", '{"x"} {x}'], config) == ["{y}", "$(rm) {{}}", '{"x"} {y}']


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}\0")))
def test_a_word_without_braces_stays(word):
    assert words([word]) == [word]


@given(st.text('{}a:!,."[]$ 0'))
def test_any_single_braces_are_filled_or_refused(word):
    word = re.sub(r"\{+", "{", re.sub(r"\}+", "}", word))
    with contextlib.suppress(ValueError):
        assert "{a}" not in words([word], {"a": 1})[0]


class Shape(enum.StrEnum):
    WIDE = "wide"


class Level(str, enum.Enum):  # noqa: UP042 - prints as Level.O3
    O3 = "-O3"


class Count(enum.IntEnum):
    FOUR = 4


def test_members_of_enumerations_are_what_they_stand_for():
    config = {"shape": Shape.WIDE, "level": Level.O3, "count": Count.FOUR}
    candidate = ost.Candidate.command(["x", "{shape}", "{level}", "{count}"], config)
    assert list(candidate.words) == ["x", "wide", "-O3", "4"]
    assert candidate == ost.Candidate.command(
        ["x", "{shape}", "{level}", "{count}"], {"shape": "wide", "level": "-O3", "count": 4}
    )
    assert [type(value) for value in candidate.config.values()] == [str, str, int]


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        ("prog --tile 4", {}),
        (b"prog", {}),
        ([], {}),
        (None, {}),
        (["prog", 4], {}),
        (["prog", None], {}),
        (["prog", b"x"], {}),
        (["prog", "a\0b"], {}),
        (["prog", "\ud800"], {}),
        (["prog", "{tile}"], {}),
        (["prog", "{tile}"], {"config": {"tile": "a\0b"}}),
        (["prog", "{tile:zz}"], {"config": {"tile": 1}}),
        (["prog"], {"config": [("tile", 1)]}),
        (["prog"], {"config": {1: 1}}),
        (["prog"], {"config": {"x": object()}}),
        (["prog"], {"config": {"x": {1, 2}}}),
        (["prog"], {"config": {"x": float("nan")}}),
        (["prog"], {"config": {"x": float("inf")}}),
        (["prog"], {"env": [("A", "1")]}),
        (["prog"], {"env": {"A": 1}}),
        (["prog"], {"env": {1: "A"}}),
        (["prog"], {"env": {"": "A"}}),
        (["prog"], {"env": {"A=B": "C"}}),
        (["prog"], {"env": {"A": "\0"}}),
        (["prog"], {"env": {"A": "{tile}"}}),
        (["prog"], {"cwd": 3}),
        (["prog"], {"cwd": b"/tmp"}),
        (["prog"], {"cwd": "a\0b"}),
        (["prog"], {"timeout": 0}),
        (["prog"], {"timeout": -1}),
        (["prog"], {"timeout": float("inf")}),
        (["prog"], {"timeout": float("nan")}),
        (["prog"], {"timeout": "1"}),
        (["prog"], {"timeout": True}),
        (["prog"], {"iterations": 0}),
        (["prog"], {"iterations": 1.5}),
        (["prog"], {"iterations": True}),
        (["prog"], {"build": "make"}),
        (["prog"], {"build": []}),
        (["prog"], {"build": ["make", "{tile}"]}),
    ],
    ids=stable_str,
)
def test_wrong_commands(argv, arguments):
    with pytest.raises((TypeError, ValueError)):
        ost.Candidate.command(argv, **arguments)


def test_a_configuration_that_holds_itself():
    config = {}
    config["x"] = config
    with pytest.raises(ValueError, match="config"):
        ost.Candidate.command(["prog"], config)


def test_what_follows_the_configuration_is_given_by_name():
    with pytest.raises(TypeError):
        ost.Candidate.command(["prog"], {}, {"A": "1"})
    with pytest.raises(TypeError):
        ost.Candidate.call("a:b", {}, "a:c")


def test_numpy_numbers_are_numbers():
    candidate = ost.Candidate.command(["x"], {"n": np.int32(3)}, timeout=np.float32(2), iterations=np.int64(4))
    assert candidate == ost.Candidate.command(["x"], {"n": 3}, timeout=2, iterations=4)
    assert repr(candidate) == repr(ost.Candidate.command(["x"], {"n": 3}, timeout=2, iterations=4))


def test_a_candidate_keeps_its_configuration():
    config = {"tile": [1, 2]}
    candidate = ost.Candidate.command(["x"], config)
    config["tile"].append(3)
    config["more"] = 1
    assert candidate.config == {"tile": [1, 2]}


# Candidates: callables


def test_functions_are_given_by_name_or_as_themselves():
    by_name = ost.Candidate.call("json:dumps", {"obj": 1}, prepare="json:loads", setup="json.decoder:JSONDecoder")
    itself = ost.Candidate.call(json.dumps, {"obj": 1}, prepare=json.loads, setup=json.JSONDecoder)
    assert by_name == itself
    assert by_name.config == {"obj": 1}


class Methods:
    def method(self):
        pass

    @staticmethod
    def static():
        pass


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        ("json", {}),
        ("json:", {}),
        (":dumps", {}),
        ("json.dumps", {}),
        ("json:dumps()", {}),
        ("json dumps", {}),
        ("", {}),
        (3, {}),
        (None, {}),
        (lambda: None, {}),
        (Methods().method, {}),
        ("json:dumps", {"prepare": 3}),
        ("json:dumps", {"prepare": "json"}),
        ("json:dumps", {"setup": lambda: None}),
        ("json:dumps", {"source": 3}),
        ("json:dumps", {"source": [b"x"]}),
        ("json:dumps", {"config": {"prepared": 1}, "prepare": "json:loads"}),
        ("json:dumps", {"config": {"inputs": 1}, "setup": "json:loads"}),
        ("__main__:factory", {}),
        ("json:dumps", {"prepare": "__main__:prepare"}),
    ],
    ids=stable_str,
)
def test_wrong_calls(factory, arguments):
    with pytest.raises((TypeError, ValueError)):
        ost.Candidate.call(factory, **arguments)


def test_a_function_inside_another_is_refused():
    def factory():
        return lambda: None

    with pytest.raises(ValueError, match="top level of a module"):
        ost.Candidate.call(factory)


def test_a_function_of_the_script_is_refused_and_told_what_to_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import ostinato as ost
def factory():
    return lambda: None
for given in (factory, "__main__:factory"):
    try:
        ost.Candidate.call(given)
    except ValueError as error:
        print(error)
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    messages = done.stdout.splitlines()
    assert len(messages) == 2
    for message in messages:
        assert "__main__" in message
        assert "move it to a module" in message


# Candidates: equality


def test_equal_candidates():
    def make(**changes):
        arguments = {"config": {"a": 1, "b": 2.5}, "env": {"A": "1"}, "cwd": "/tmp", "iterations": 2, "build": ["make"]}
        return ost.Candidate.command(["prog", "{a}"], **(arguments | changes))

    assert make() == make() == make(config={"b": 2.5, "a": 1}) == make(cwd=Path("/tmp"), build=("make",))
    assert len({make(), make()}) == 1
    others = [
        make(config={"a": 1.0, "b": 2.5}),
        make(config={"a": True, "b": 2.5}),
        make(env={"A": "2"}),
        make(cwd="/"),
        make(iterations=3),
        make(build=None),
        ost.Candidate.command(["prog", "{a}", "x"], {"a": 1, "b": 2.5}),
        ost.Candidate.call("json:dumps", {"a": 1, "b": 2.5}),
    ]
    assert all(make() != other for other in others)
    assert len({make(), *others}) == len(others) + 1
    assert make() != "prog"


@given(st.dictionaries(NAMES, PLAIN, max_size=4))
def test_identities_do_not_depend_on_the_order_of_names(config):
    backwards = dict(reversed(config.items()))
    assert ost.Candidate.call("json:dumps", config).id == ost.Candidate.call("json:dumps", backwards).id


def test_identities_are_the_same_in_every_process():
    code = (
        "import ostinato as ost\n"
        "print(ost.Candidate.call('json:dumps', {'b': [1, None], 'a': 'é'}).id)\n"
        "print(ost.Candidate.command(['x', '{n}'], {'n': 0.1}, env={'B': '1', 'A': '2'}).id)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().split() == [
        ost.Candidate.call("json:dumps", {"a": "é", "b": (1, None)}).id,
        ost.Candidate.command(["x", "{n}"], {"n": 0.1}, env={"A": "2", "B": "1"}).id,
    ]


@pytest.mark.parametrize(
    "candidate",
    [
        ost.Candidate.command(["x", "{n}"], {"n": 1}, env={"A": "1"}, build=["make"]),
        ost.Candidate.call("json:dumps", {"obj": [1]}, source=["x.py"]),
    ],
    ids=["command", "call"],
)
def test_candidates_are_copied_and_pickled(candidate):
    assert pickle.loads(pickle.dumps(candidate)) == copy.deepcopy(candidate) == candidate
    assert isinstance(candidate, ost.Candidate)
    assert repr(candidate)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ost.Tuner("none:0"),
        lambda: ost.Tuner("sim:a", memory="much"),
        lambda: ost.Tuner("sim:a", timeout=-1),
        lambda: ost.Tuner("sim:a", policy=3),
        lambda: ost.Tuner("sim:a", store="/proc/nowhere/tune.db"),
        lambda: ost.Machine(cpus=0),
        lambda: ost.Machine(cpus=1, gpus=-1),
        lambda: ost.Space(3),
        lambda: ost.Space({"tile": 3}),
        lambda: ost.Space({"tile": [1]}, where=3),
    ],
)
def test_what_could_not_be_made_can_be_shown(make, places):
    """A debugger shows the locals of each frame of a traceback, and so calls `repr` of what failed to be made."""
    with pytest.raises((TypeError, ValueError, ost.OstinatoError)) as caught:
        make()
    frame = caught.tb
    shown = []
    while frame is not None:
        shown += [repr(value) for name, value in frame.tb_frame.f_locals.items() if name == "self"]
        frame = frame.tb_next
    assert shown
