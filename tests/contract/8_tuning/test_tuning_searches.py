"""The contract on tuning: tuners and searches, budgets, wrong arguments, interrupts."""

from __future__ import annotations

import os
import signal
import tempfile
import time

import pytest

import ostinato as ost
from naming import stable_str

pytestmark = pytest.mark.usefixtures("places")

command = ost.Candidate.command


def echo(n):
    return command(["echo", "OP:op,TIME:{n},WS:0"], {"n": n})


def only(report):
    assert len(report.results) == 1
    return report.results[0]


def endings(report):
    """How the candidates ended; who was cut, because a run disturbed by others looked slow, counts as ok."""
    return ["ok" if result.status == "raced" else str(result.status) for result in report.results]


# Tuners


def test_a_context_manager(quick):
    session = ost.Tuner(["sim:a"], policy=quick, progress=False)
    with session as entered:
        assert entered is session
        assert only(session.tune("op", [echo(1)])).status == "ok"
    with pytest.raises(RuntimeError, match="clos"):
        session.tune("op", [echo(1)])
    with pytest.raises(RuntimeError, match="clos"), session:
        pass
    session.close()
    session.close()


def test_left_by_an_exception(quick):
    with pytest.raises(ZeroDivisionError), ost.Tuner(["sim:a"], policy=quick) as session:
        _ = 1 / 0
    with pytest.raises(RuntimeError):
        session.tune("op", [echo(1)])


def test_many_searches_with_one_tuner(tuner):
    session = tuner(["sim:a", "sim:b"])
    for k in range(5):
        assert session.tune(f"op {k}", [echo(2), echo(1)]).best.candidate.config == {"n": 1}


def test_nothing_is_left_running(tuner, alive, module, eventually):
    from pathlib import Path

    def children():
        return {
            int(pid)
            for task in Path("/proc/self/task").iterdir()
            for pid in (task / "children").read_text().split()
            if alive(int(pid))
        }

    before = children()
    descriptors = len(os.listdir("/proc/self/fd"))
    name = module("def prepare():\n    return 1\n\ndef factory(prepared):\n    return int\n")
    candidates = [ost.Candidate.call(f"{name}:factory", prepare=f"{name}:prepare"), echo(1)]
    with tuner(["sim:a", "sim:b"]) as session:
        assert session.tune("op", candidates).best is not None
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_searches_in_threads(tuner, in_threads):
    """One tuner, several threads: their searches take turns."""
    session = tuner(["sim:a", "sim:b"])
    bests = {}

    def tune(k):
        bests[k] = session.tune(f"op {k}", [echo(n) for n in (5, k + 1, 7)]).best.candidate.config["n"]

    in_threads(*(lambda k=k: tune(k) for k in range(4)))
    assert bests == {k: k + 1 for k in range(4)}


def test_what_candidates_print_is_not_ours(tuner, capfd):
    tuner().tune("op", [command(["sh", "-c", "echo seven; echo eight >&2; echo OP:op,TIME:1,WS:0"])])
    out, err = capfd.readouterr()
    assert "seven" not in out + err
    assert "eight" not in out + err


def test_without_progress_nothing_is_printed(tuner, capfd):
    tuner(progress=False).tune("op", [echo(1), command(["false"])])
    tuner(progress=None).tune("other", [echo(1)])  # no terminal here
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arguments",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": "30"},
        {"timeout": True},
        {"memory": 0},
        {"memory": -1},
        {"memory": "1 GiB"},
        {"memory": 1.5},
        {"policy": "cold"},
        {"policy": {"cache": "cold"}},
        {"workers": 3},
    ],
    ids=stable_str,
)
def test_wrong_tuners(arguments):
    with pytest.raises((TypeError, ValueError)):
        ost.Tuner(["sim:a"], **arguments)


def test_all_but_the_devices_are_given_by_name(tmp_path):
    with pytest.raises(TypeError):
        ost.Tuner(["sim:a"], tmp_path / "store.db")


# Searches


@pytest.mark.parametrize(
    ("op", "candidates", "arguments"),
    [
        (3, [], {}),
        (None, [], {}),
        (b"op", [], {}),
        ("", [], {}),
        ("op", None, {}),
        ("op", 3, {}),
        ("op", "candidates", {}),
        ("op", [{"n": 1}], {}),
        ("op", [echo(1), ["echo", "hello"]], {}),
        ("op", [echo(1)], {"key": 3}),
        ("op", [echo(1)], {"key": [("n", 1)]}),
        ("op", [echo(1)], {"key": {1: 1}}),
        ("op", [echo(1)], {"key": {"n": object()}}),
        ("op", [echo(1)], {"key": {"n": float("nan")}}),
        ("op", [echo(1)], {"default": {"n": 1}}),
        ("op", [echo(1)], {"default": echo(2)}),
        ("op", [echo(1)], {"default": 0}),
        ("op", [echo(1)], {"verify": 3}),
        ("op", [echo(1)], {"verify": "check"}),
        ("op", [echo(1)], {"verify": "module:"}),
        ("op", [echo(1)], {"verify": "__main__:check"}),
        ("op", [echo(1)], {"verify": lambda outputs, key: True}),
        ("op", [echo(1)], {"budget": 0}),
        ("op", [echo(1)], {"budget": -1}),
        ("op", [echo(1)], {"budget": float("nan")}),
        ("op", [echo(1)], {"budget": "60"}),
        ("op", [echo(1)], {"budget": True}),
        ("op", [echo(1)], {"budget": {"seconds": 1}}),
        ("op", [echo(1)], {"strategy": "random"}),
    ],
    ids=stable_str,
)
def test_wrong_searches(tuner, op, candidates, arguments):
    session = tuner()
    with pytest.raises((TypeError, ValueError)):
        session.tune(op, candidates, **arguments)
    assert only(session.tune("op", [echo(1)])).status == "ok"  # the tuner is as good as before


def test_options_of_a_search_are_given_by_name(tuner):
    with pytest.raises(TypeError):
        tuner().tune("op", [echo(1)], {"n": 1})


def test_candidates_that_raise_while_they_are_made(tuner):
    def candidates():
        yield echo(1)
        raise LookupError("of mine")

    session = tuner()
    with pytest.raises(LookupError, match="of mine"):
        session.tune("op", candidates())
    assert only(session.tune("op", [echo(1)])).status == "ok"


def test_the_same_candidate_twice(tuner):
    report = tuner().tune("op", [echo(1), echo(2), echo(1)])
    assert [result.candidate.config["n"] for result in report.results] in ([1, 2, 1], [1, 2])
    assert report.best.candidate == echo(1)


def test_a_million_candidates_are_not_made_at_once(tuner):
    made = 0

    def candidates():
        nonlocal made
        for n in range(1_000_000):
            made += 1
            yield echo(n + 1)

    report = tuner().tune("op", candidates(), budget=ost.Budget(candidates=5))
    assert made < 1000
    assert sum(result.status in ("ok", "raced") for result in report.results) == 5
    assert report.best.candidate.config == {"n": 1}


# Budgets


def test_a_budget_of_candidates(tuner):
    report = tuner().tune("op", [echo(n) for n in (5, 4, 3, 2, 1)], budget=ost.Budget(candidates=2))
    assert [result.status for result in report.results[:2]] == ["ok", "ok"]
    assert all(result.status == "cancelled" for result in report.results[2:])
    assert report.best.candidate.config == {"n": 4}


@pytest.mark.parametrize("budget", [0.6, ost.Budget(seconds=0.6), ost.Budget(0.6, 1000)], ids=stable_str)
def test_a_budget_of_seconds(tuner, script, budget):
    prog = script("sleep 0.1; echo OP:op,TIME:$1,WS:0\n")
    begin = time.monotonic()
    report = tuner().tune("op", [command([prog, "{n}"], {"n": n}) for n in range(1, 1000)], budget=budget)
    assert time.monotonic() - begin < 30  # a hundred seconds without one
    statuses = [str(result.status) for result in report.results]
    assert 1 <= statuses.count("ok") + statuses.count("raced") < 20
    assert set(statuses) <= {"ok", "raced", "cancelled"}
    assert report.best.candidate.config == {"n": 1}


def test_a_budget_ends_what_hangs(tuner, lines, alive):
    begin = time.monotonic()
    candidates = [echo(1), command(["sh", "-c", f"echo $$ >> {lines.path}; sleep 600"])]
    report = tuner(timeout=500).tune("op", candidates, budget=1)
    assert time.monotonic() - begin < 60
    assert endings(report) == ["ok", "cancelled"]
    assert report.best is report.results[0]
    assert not any(alive(int(pid)) for pid in lines())


def test_a_budget_ends_builds(tuner, lines, alive):
    candidates = [echo(1), command(["true"], build=["sh", "-c", f"echo $$ >> {lines.path}; sleep 600"])]
    report = tuner(timeout=500).tune("op", candidates, budget=1)
    assert endings(report) == ["ok", "cancelled"]
    assert not any(alive(int(pid)) for pid in lines())


def test_a_budget_that_suffices(tuner):
    report = tuner().tune("op", [echo(2), echo(1)], budget=ost.Budget(seconds=60, candidates=2))
    assert endings(report) == ["ok", "ok"]


# Interrupts


SEARCH = """
    import signal, sys
    import ostinato as ost

    try:
        with ost.Tuner(["sim:a"], progress=False, timeout=600) as tuner:
            tuner.tune("op", [
                ost.Candidate.command(["echo", "OP:op,TIME:1,WS:0"]),
                ost.Candidate.command(["sh", "-c", "trap '' TERM INT; echo $$ >> {path}; sleep 600 & wait"]),
            ])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_an_interrupt(tuner, user, lines, alive, eventually):
    process = user(SEARCH.format(path=lines.path))
    pid = int(eventually(lines)[0])
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output.split() == ["interrupted"], errors
    assert process.returncode == 0
    assert not alive(pid)
    report = tuner("sim:a", policy=ost.Policy()).tune("op", [command(["echo", "OP:op,TIME:1,WS:0"])])
    assert only(report).cached  # what had ended was kept


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT])
def test_nothing_outlives_a_killed_tuner(user, lines, alive, eventually, number):
    process = user(SEARCH.format(path=lines.path))
    pid = int(eventually(lines)[0])
    process.send_signal(number)
    process.wait(60)
    eventually(lambda: not alive(pid))


def test_the_tuner_in_a_thread_of_ones_own(tuner, in_threads):
    session = tuner()
    found = []
    in_threads(lambda: found.append(only(session.tune("op", [echo(1)])).status))
    assert found == ["ok"]


def test_within_an_event_loop(tuner):
    import asyncio

    async def main():
        return tuner().tune("op", [echo(1)])

    assert only(asyncio.run(main())).status == "ok"


# What searches have that share nothing but the machine


def test_a_worker_has_no_part_in_the_users_environment(tuner, module, monkeypatch):
    """Variables set before the search reach the candidates: those set before another search, too."""
    name = module(
        """
        import os

        def factory(expected):
            assert os.environ["OF_MINE"] == expected, os.environ["OF_MINE"]
            return int
        """
    )
    for value in ("one", "two"):
        monkeypatch.setenv("OF_MINE", value)
        result = only(tuner().tune("op", [ost.Candidate.call(f"{name}:factory", {"expected": value})]))
        assert result.status == "ok", result.message


def test_what_changes_here_reaches_a_later_search(tuner, module, tmp_path, monkeypatch):
    """A tuner keeps its workers, but not what they were started with."""
    name = module(
        """
        import os

        def factory(expected):
            assert os.environ["OF_MINE"] == expected, os.environ["OF_MINE"]
            assert os.path.basename(os.getcwd()) == expected, os.getcwd()
            return int
        """
    )
    session = tuner()
    for value in ("one", "two"):
        (tmp_path / value).mkdir()
        monkeypatch.chdir(tmp_path / value)
        monkeypatch.setenv("OF_MINE", value)
        result = only(session.tune("op", [ost.Candidate.call(f"{name}:factory", {"expected": value})]))
        assert result.status == "ok", result.message
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "comes_late.py").write_text("def factory():\n    return int\n")
    monkeypatch.syspath_prepend(tmp_path / "late")
    result = only(session.tune("op", [ost.Candidate.call("comes_late:factory")]))
    assert result.status == "ok", result.message


def test_nothing_is_left_on_the_disk(tuner, module, tmp_path, monkeypatch):
    """What candidates build and prepare is removed, also that of candidates that fail and of searches that raise."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    name = module("def prepare(n):\n    return n\n\ndef factory(n, prepared):\n    return {1: int}[n]\n")
    candidates = [ost.Candidate.call(f"{name}:factory", {"n": n}, prepare=f"{name}:prepare") for n in (1, 2)]
    build = ["sh", "-c", "mkdir {scratch}/folder && echo OP:op,TIME:1,WS:0 > {scratch}/folder/{n}"]
    candidates += [command(["cat", "{scratch}/folder/1"], {"n": n}, build=build) for n in (1, 2)]
    candidates += [command(["true"], build=["sh", "-c", "touch {scratch}/file; exit 1"])]
    session = tuner(["sim:a", "sim:b"])
    report = session.tune("op", candidates)
    assert endings(report) == ["ok", "invalid", "ok", "crash", "compile_error"], [r.message for r in report.results]

    def raising():
        yield from (command(["sleep", "9"], {"n": n}, build=["touch", "{scratch}/file"]) for n in range(3))
        raise LookupError

    with pytest.raises(LookupError):
        session.tune("another op", raising())
    assert os.listdir(tmp_path / "temporary") == []
