"""Job files: what they describe, and that every mistake is named with its key."""

import re
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.searching.job import JobError, constraint, load
from ostinato.tune.strategies import Exhaustive, Random

COMMAND = """
op = "matmul"
[space]
tile = [16, 32]
[command]
argv = ["./matmul", "{tile}"]
"""
CALL = """
op = "dumps"
[space]
obj = [1, 2, 3]
[call]
factory = "json:dumps"
"""


@pytest.fixture
def job(tmp_path):
    def loaded(text: str):
        (tmp_path / "job.toml").write_text(text)
        return load(tmp_path / "job.toml")

    return loaded


def refused(job, text: str) -> str:
    with pytest.raises(JobError) as caught:
        job(text)
    message = str(caught.value)
    assert "job.toml: " in message
    return message.partition("job.toml: ")[2]


def test_the_least_that_a_file_may_say(job, tmp_path):
    found = job(COMMAND)
    assert (found.op, found.key, found.devices, found.default, found.verify) == ("matmul", {}, "all", None, None)
    assert (found.store, found.timeout, found.memory) == (None, 30.0, None)
    assert (found.policy, found.budget) == (ost.Policy(), ost.Budget())
    assert [candidate.words for candidate in found.candidates()] == [("./matmul", "16"), ("./matmul", "32")]
    assert {Path(candidate.cwd) for candidate in found.candidates()} == {tmp_path}
    assert isinstance(job(CALL).candidates()[0], type(ost.Candidate.call("json:dumps")))


def test_all_that_a_file_may_say(job, tmp_path):
    found = job(
        """
        op = "matmul"
        devices = ["cpu:0", "sim:a"]
        key = { n = 512, shape = [2, 3] }
        default = { unroll = 2, tile = 16 }
        where = ["tile * unroll <= 64", "order != 'ji' or tile == 16"]
        verify = "checks:matmul"
        timeout = 5
        memory = "1.5 KiB"
        store = "here/tune.db"
        [space]
        tile = { range = [16, 49, 16] }
        unroll = { powers = [1, 2] }
        order = ["ij"]
        [command]
        argv = ["{scratch}/matmul"]
        build = ["c++", "-DTILE={tile}", "-o", "{scratch}/matmul"]
        env = { THREADS = "{unroll}" }
        cwd = "sub"
        iterations = 10
        [policy]
        cache = "cold"
        rel_ci = 0.05
        [budget]
        seconds = 60
        candidates = 10
    """.replace('order = ["ij"]', 'order = ["ij", "ji"]').replace("unroll = 2, tile", 'order = "ij", unroll = 2, tile')
    )
    assert found.devices == ["cpu:0", "sim:a"]
    assert found.key == {"n": 512, "shape": [2, 3]}
    assert (found.verify, found.timeout, found.memory) == ("checks:matmul", 5, 1536)
    assert found.store == tmp_path / "here" / "tune.db"
    assert found.policy == ost.Policy(cache="cold", rel_ci=0.05)
    assert found.budget == ost.Budget(seconds=60, candidates=10)
    candidates = found.candidates()
    assert [tuple(candidate.config.values()) for candidate in candidates] == [
        (16, 1, "ij"),
        (16, 1, "ji"),
        (16, 2, "ij"),
        (16, 2, "ji"),
        (32, 1, "ij"),
        (32, 2, "ij"),
        (48, 1, "ij"),
    ]
    assert found.default == candidates[2]
    assert candidates[0].build == ("c++", "-DTILE={tile}", "-o", "{scratch}/matmul")
    assert (candidates[0].iterations, candidates[0].env) == (10, {"THREADS": "{unroll}"})
    assert Path(candidates[0].cwd) == tmp_path / "sub"


def test_a_call_with_all_that_it_may_have(job, tmp_path):
    found = job(
        CALL + 'prepare = "kernels:compiled"\nsetup = "kernels:inputs"\nsource = ["k.h"]\npath = ["src", "."]\n'
    )
    candidate = found.candidates()[0]
    assert (candidate.prepare, candidate.setup) == ("kernels:compiled", "kernels:inputs")
    assert candidate.source == (str(tmp_path / "k.h"),)
    assert [Path(path) for path in found.path] == [tmp_path / "src", tmp_path]


def test_the_default_is_one_of_the_candidates(job):
    found = job("default = { obj = 2 }\n" + CALL)
    assert found.default == found.candidates()[1]


def test_strategies(job):
    found = job('strategy = "random"\ntrials = 2\nseed = 7\n' + CALL).candidates()
    assert isinstance(found, Random)
    assert len(list(iter(found.ask, None))) == 2
    huge = "".join(f"{name} = {{ range = [0, 100] }}\n" for name in "abc")
    assert isinstance(job(CALL.replace("obj = [1, 2, 3]", huge)).candidates(), Exhaustive)


@pytest.mark.parametrize(
    ("size", "expected"), [("2 GiB", 2 << 30), ("100MB", 10**8), (77, 77), ("0.5 KiB", 512), ("9", 9)]
)
def test_sizes(job, size, expected):
    assert job(f"memory = {size!r}\n" + CALL).memory == expected


MISTAKES = [
    ("op = ", "Invalid value (at end of document)"),
    (COMMAND.replace('op = "matmul"', ""), "op: is missing; it is the name of what is tuned"),
    (COMMAND.replace('"matmul"', "7"), "op: must be the name of what is tuned, got 7"),
    ("iterations = 2\n" + COMMAND, "iterations: means nothing; here may be op, key, "),
    ("divices = 'cpu:0'\n" + COMMAND, "divices: means nothing; is 'devices' meant?"),
    (COMMAND + "itertions = 2", "[command] itertions: means nothing; is 'iterations' meant?"),
    (COMMAND + "[policy]\ncashe = 'cold'", "[policy] cashe: means nothing; is 'cache' meant?"),
    (COMMAND + "[policy]\ncache = 'hot'", '[policy]: cache must be "cold" or "warm", got \'hot\''),
    (COMMAND + "[budget]\nseconds = -1", "[budget]: seconds must be positive and finite, got -1"),
    ("policy = 3\n" + COMMAND, "policy: must be a table, got 3"),
    (COMMAND.replace("op = ", "ops = "), "op: is missing (is that what 'ops' is meant to be?); it is the name"),
    (
        COMMAND.replace("[command]", "[comand]"),
        "there is either a [command] or a [call] (is that what 'comand' is meant to be?)",
    ),
    (COMMAND.replace("argv = ", "args = "), "[command] argv: is missing (is that what 'args' is meant to be?)"),
    (COMMAND + '[call]\nfactory = "a:b"', "there is either a [command] or a [call]"),
    (COMMAND.partition("[command]")[0], "there is either a [command] or a [call]"),
    (COMMAND.replace("{tile}", "{tyle}"), "[command] {tyle} in"),
    (COMMAND.replace('"./matmul", "{tile}"', ""), "[command] argv is empty"),
    (
        COMMAND.replace('["./matmul", "{tile}"]', '"./matmul"'),
        "[command] argv: must be a list of strings, got './matmul'",
    ),
    (COMMAND.replace('"./matmul"', "1"), "[command] argv: must be a list of strings, got [1, '{tile}']"),
    (COMMAND + "env = { N = 1 }", "[command] env['N'] must hold str only, got 1"),
    (COMMAND + "iterations = 0", "[command] iterations must be at least 1, got 0"),
    (COMMAND + "iterations = true", "[command] iterations: must be an integer, got True"),
    (CALL.replace("json:dumps", "json.dumps"), "[call] factory must be \"package.module:function\", got 'json.dumps'"),
    (CALL.replace("[1, 2, 3]", "[]"), "[space] obj: must have the values [a, b, ...], "),
    (CALL.replace("[1, 2, 3]", "5"), "[space] obj: must have the values [a, b, ...], "),
    (CALL.replace("[1, 2, 3]", "{ powers = [3, 8] }"), "[space] obj: must have the values"),
    (CALL.replace("[1, 2, 3]", "{ powers = [8, 4] }"), "[space] obj: must have the values"),
    (CALL.replace("[1, 2, 3]", "{ range = [1, 5, 0] }"), "[space] obj: range() arg 3 must not be zero"),
    (CALL.replace("[1, 2, 3]", "{ range = [5, 1] }"), "[space] obj: must have the values"),
    (CALL.replace("[1, 2, 3]", "[1, 1]"), "space: "),
    (CALL.replace("obj =", "where = ['obj < 2']\nobj ="), "[space] where: belongs before the first [table]"),
    ("where = ['obj < 0']\n" + CALL, "where: leaves no configuration"),
    ("where = ['ojb < 2']\n" + CALL, "where: 'ojb < 2': names in a constraint must be parameters (obj), got 'ojb'"),
    ("where = ['obj < \"x\"']\n" + CALL, "where: 'obj < \"x\"' makes no sense for {'obj': 1}: "),
    ("where = 'obj < 2'\n" + CALL, "where: must be a list of strings, got 'obj < 2'"),
    ("default = { obj = 9 }\n" + CALL, "default: must be a configuration of [space], got {'obj': 9}"),
    ("default = { obj = 2.0 }\n" + CALL, "default: must be a configuration of [space], got {'obj': 2.0}"),
    ("default = { }\n" + CALL, "default: must be a configuration of [space], got {}"),
    ("strategy = 'best'\n" + CALL, 'strategy: must be "exhaustive", "random" or "optuna", got \'best\''),
    ("strategy = 'optuna'\n" + CALL, 'trials: is missing: how many candidates strategy = "optuna" tries'),
    ("trials = 5\n" + CALL, 'trials: is for strategy = "random" or "optuna"'),
    ("memory = '2 gigs'\n" + CALL, "memory: must be a number of bytes, as 2147483648 or \"2 GiB\", got '2 gigs'"),
    ("memory = 0\n" + CALL, "memory: must be at least 1 byte, got 0"),
    ("timeout = -1\n" + CALL, "timeout: it must be positive and finite, got -1"),
    ("verify = 'check'\n" + CALL, "verify: it must be \"package.module:function\", got 'check'"),
    ("key = { when = 2026-11-21 }\n" + CALL, "key: it['when'] must be None, a bool"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_named_with_their_key(job, text, message):
    assert refused(job, text).startswith(message)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(JobError, match="No such file"):
        load(tmp_path / "missing.toml")
    with pytest.raises(JobError, match="directory"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'op = "\xe4"')
    with pytest.raises(JobError, match="utf-8"):
        load(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + 2 * b == 10 and not c", True),
        ("a ** 2 % 3 // 1 >= b - 3", True),
        ("max(a, b, 7) == 7 and abs(-a) == len('four')", True),
        ("a in (1, 4) if b > 2 else a in [1]", True),
        ("1 < a < b", False),
        ("a << 1 == 8 and (a | 1) == 5 and a ^ 4 == 0 and a & 3", False),
        ("c", False),
    ],
)
def test_expressions_mean_what_they_mean_in_python(text, expected):
    names = {"a": 4, "b": 3, "c": 0}
    assert constraint(text, names)(names) is bool(eval(text, {}, names)) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.bit_length() < 3",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "open('x')",
        "a[0]",
        "f'{a}'",
        "(b := 3)",
        "max",
        "max(a, key=min)",
        "a; b",
        "a = 3",
        "",
        "(" * 1000,
    ],
)
def test_expressions_do_nothing_else(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        constraint(text, ["a"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9**9**9 > a", "9 ** 387420489 is a number of more than 4096 bits"),
        ("a ** 10 ** 9 > 0", "4 ** 1000000000 is a number of more than 4096 bits"),
        ("1 << 10 ** 12", "1 << 1000000000000 is a number of more than 4096 bits"),
        ("(2 ** 3000 * 2 ** 3000) == 0", "(a number of 3001 bits) is a number of more than 4096 bits"),
        ("len('x' * 10 ** 12) > a", "* must have two numbers, got str and int"),
        ("a in [0] * 10 ** 12", "* must have two numbers, got list and int"),
        ("3 * (1, 2) == ()", "* must have two numbers, got int and tuple"),
        ("len('%999999999999d' % a) > 1", "% must have two numbers, got str and int"),
    ],
)
def test_an_expression_without_end_is_refused_at_once(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        constraint(text, ["a"])({"a": 4})


def test_what_is_large_and_not_too_large_is_computed():
    names = {"a": 4, "%": 5, "*": 7, "max": 2}
    for text in ("a ** 300 > 1", "(-1) ** 10 ** 9 == 1", "0 ** 10 ** 9 == 0", "a ** -2 == 1 / 16", "a ** 0.5 == 2"):
        assert constraint(text, names)(names)
    assert constraint("1 << 4000 > 0 and a * 2.5 == 10 and -7 % a == 1 and True * a == 4", names)(names)
    assert constraint("1" + "*1" * 100 + "+1" * 100 + " > a", names)(names)


def test_an_expression_that_makes_no_sense_says_for_what():
    with pytest.raises(ValueError, match=r"'1 / a' makes no sense for \{'a': 0\}: division by zero"):
        constraint("1 / a", ["a"])({"a": 0})
