"""The contract on tuning: what is measured once is known from then on."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

import ostinato as ost
from naming import stable_str

pytestmark = pytest.mark.usefixtures("places")

command = ost.Candidate.command


def only(report):
    assert len(report.results) == 1
    return report.results[0]


def facts(report):
    """What a store must give back."""
    return [
        (r.candidate, r.op, r.status, r.time_ns, r.interval_ns, tuple(r.samples), r.workspace, r.device)
        for r in report.results
    ]


@pytest.fixture
def prog(script, lines):
    """A program that notes that it ran."""
    return script(f"echo $1 >> {lines.path}\necho OP:op,TIME:$1,WS:$1\n", name="prog")


# Found again


def test_results_of_another_device_of_the_same_model(tuner, lines):
    """A device's name is no part of the key; its model is."""
    candidates = [
        command(["sh", "-c", f"echo {n} >> {lines.path}; echo OP:op,TIME:1{n},WS:0"], {"n": n}) for n in "1234"
    ]
    tuner("sim:a").tune("op", candidates[:2])
    report = tuner("sim:b").tune("op", candidates)
    assert [result.cached for result in report.results] == [True, True, False, False]
    assert [result.device for result in report.results] == ["sim:a", "sim:a", "sim:b", "sim:b"]
    assert [result.time_ns for result in report.results] == [11e6, 12e6, 13e6, 14e6]
    ran = lines()
    for devices in (["sim:a"], ["sim:b"], ["sim:c", "sim:a"]):
        again = tuner(devices).tune("op", candidates)
        assert all(result.cached for result in again.results)
        assert facts(again) == facts(report)
    assert lines() == ran


def test_an_unchanged_search_costs_nothing(tuner, prog, lines):
    candidates = [command([prog, "{n}"], {"n": n}) for n in (9, 1, 5)]
    first = tuner().tune("op", candidates)
    assert not any(result.cached for result in first.results)
    assert all(result.miss is None for result in first.results)
    ran = lines()
    again = tuner().tune("op", candidates)
    assert lines() == ran
    assert all(result.cached for result in again.results)
    assert all(result.miss is None for result in again.results)
    assert facts(again) == facts(first)
    assert again.best is again.results[1]
    assert [tie.candidate for tie in again.ties] == [tie.candidate for tie in first.ties]


def test_a_thousand_candidates_are_found_again(tuner, module):
    name = module("def factory(n):\n    return int\n")
    candidates = [ost.Candidate.call(f"{name}:factory", {"n": n}) for n in range(1000)]
    first = tuner().tune("op", candidates)
    again = tuner().tune("op", candidates)
    assert all(result.cached for result in again.results)
    assert facts(again) == facts(first)


def test_the_same_tuner_asks_the_store_too(tuner, prog, lines):
    session = tuner()
    session.tune("op", [command([prog, "1"])])
    ran = lines()
    assert only(session.tune("op", [command([prog, "1"])])).cached
    assert lines() == ran


def test_callables_are_found_again(tuner, module, lines):
    name = module(
        f"""
        def factory(n):
            with open({lines.path!r}, "a") as file:
                print(n, file=file)
            return int
        """
    )
    candidates = [ost.Candidate.call(f"{name}:factory", {"n": n}) for n in range(3)]
    first = tuner().tune("op", candidates)
    ran = lines()
    again = tuner().tune("op", candidates)
    assert lines() == ran
    assert all(result.cached for result in again.results)
    assert facts(again) == facts(first)
    assert again.best.candidate == first.best.candidate


def test_several_ops_are_found_again(tuner, script):
    prog = script("echo OP:a,TIME:1,WS:0\necho OP:b,TIME:0,WS:0\necho OP:c,TIME:2,WS:0\n")
    first = tuner().tune("op", [command([prog])])
    again = tuner().tune("op", [command([prog])])
    assert all(result.cached for result in again.results)
    assert facts(again) == facts(first)
    assert {result.op for result in again.results} == {"a", "b", "c"}


def test_new_candidates_are_measured_and_old_ones_are_not(tuner, prog, lines):
    tuner().tune("op", [command([prog, "{n}"], {"n": n}) for n in (40, 50)])
    again = tuner().tune("op", [command([prog, "{n}"], {"n": n}) for n in (30, 40, 50, 60)])
    assert [result.cached for result in again.results] == [False, True, True, False]
    assert set(lines()) == {"30", "40", "50", "60"}
    assert again.best.candidate.config == {"n": 30}
    assert again.results[3].miss in (None, "config")


def test_a_path_of_ones_own(tuner, prog, lines, tmp_path):
    for path in (tmp_path / "one.db", str(tmp_path / "two.db")):
        assert not only(tuner(store=path).tune("op", [command([prog, "1"])])).cached
        assert only(tuner(store=path).tune("op", [command([prog, "1"])])).cached
        assert Path(path).exists()


def test_the_default_store_is_in_the_cache_directory(tuner, prog):
    tuner().tune("op", [command([prog, "1"])])
    assert list(Path(os.environ["OSTINATO_CACHE_DIR"]).rglob("*"))


def test_processes_share_a_store(tuner, user, prog, lines, tmp_path):
    source = f"""
        import sys
        import ostinato as ost

        with ost.Tuner([sys.argv[1]], progress=False, store={str(tmp_path / "shared.db")!r}) as tuner:
            candidates = [ost.Candidate.command([{prog!r}, "{{n}}"], {{"n": n}}) for n in range(1, 30)]
            print(*(result.status for result in tuner.tune(sys.argv[2], candidates).results))
    """
    processes = [user(source, f"sim:{letter}", f"op {letter}") for letter in "abcd"]
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert len(output.split()) == 29, errors
        assert set(output.split()) <= {"ok", "raced"}, errors
    ran = lines()
    for letter in "abcd":
        session = tuner([f"sim:{letter}"], store=tmp_path / "shared.db", policy=ost.Policy())
        candidates = [command([prog, "{n}"], {"n": n}) for n in range(1, 30)]
        assert all(result.cached for result in session.tune(f"op {letter}", candidates).results)
    assert lines() == ran


# What it depends on


def test_another_operation(tuner, prog):
    tuner().tune("op", [command([prog, "1"])])
    result = only(tuner().tune("another", [command([prog, "1"])]))
    assert not result.cached
    assert result.miss is None


def test_another_key(tuner, prog):
    candidates = [command([prog, "1"])]
    tuner().tune("op", candidates, key={"m": 1, "n": [1, 2]})
    assert only(tuner().tune("op", candidates, key={"n": (1, 2), "m": 1})).cached
    result = only(tuner().tune("op", candidates, key={"m": 1, "n": [2, 1]}))
    assert (result.cached, result.miss) == (False, "key")
    result = only(tuner().tune("op", candidates))
    assert (result.cached, result.miss) == (False, "key")


def test_another_policy(tuner, prog):
    candidates = [command([prog, "1"])]
    tuner(policy=ost.Policy(cache="warm", max_seconds=1)).tune("op", candidates)
    assert only(tuner(policy=ost.Policy(cache="warm", max_seconds=1.0)).tune("op", candidates)).cached
    for policy in (ost.Policy(cache="cold", max_seconds=1), ost.Policy(cache="warm", max_seconds=2)):
        result = only(tuner(policy=policy).tune("op", candidates))
        assert (result.cached, result.miss) == (False, "policy")


def test_another_kind_of_device(tuner, prog):
    candidates = [command([prog, "1"])]
    tuner("cpu:0").tune("op", candidates)
    result = only(tuner("sim:a").tune("op", candidates))
    assert (result.cached, result.miss) == (False, "device")
    assert only(tuner("cpu:0").tune("op", candidates)).cached


def test_another_simulation(tuner, prog):
    candidates = [command([prog, "1"])]
    tuner("sim:a").tune("op", candidates)
    result = only(tuner("sim:a?latency=0.01").tune("op", candidates))
    assert (result.cached, result.miss) == (False, "device")


def test_another_program(tuner, prog, lines):
    candidates = [command([prog, "1"])]
    tuner().tune("op", candidates)
    Path(prog).write_text(Path(prog).read_text() + "# changed\n")
    result = only(tuner().tune("op", candidates))
    assert (result.cached, result.miss) == (False, "source")
    assert only(tuner().tune("op", candidates)).cached


def test_a_program_along_the_path(tuner, script, tmp_path, monkeypatch):
    path = script("echo OP:op,TIME:1,WS:0\n", name="along-the-path")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tuner().tune("op", [command(["along-the-path"])])
    assert only(tuner().tune("op", [command(["along-the-path"])])).cached
    Path(path).write_text("#!/bin/sh\necho OP:op,TIME:2,WS:0\n")
    assert only(tuner().tune("op", [command(["along-the-path"])])).miss == "source"


def test_a_file_among_the_arguments(tuner, prog, tmp_path):
    data = tmp_path / "data.txt"
    data.write_text("one")
    candidates = [command([prog, "1", data, "--no-file"])]
    tuner().tune("op", candidates)
    assert only(tuner().tune("op", candidates)).cached
    data.write_text("two")
    result = only(tuner().tune("op", candidates))
    assert (result.cached, result.miss) == (False, "source")


def test_a_file_where_it_runs(tuner, prog, tmp_path):
    (tmp_path / "data.txt").write_text("one")
    candidates = [command([prog, "1", "data.txt"], cwd=tmp_path)]
    tuner().tune("op", candidates)
    assert only(tuner().tune("op", candidates)).cached
    (tmp_path / "data.txt").write_text("two")
    assert only(tuner().tune("op", candidates)).miss == "source"


def test_a_source_that_is_built(tuner, script, tmp_path):
    source = tmp_path / "kernel.txt"
    source.write_text("1")
    candidates = [command(["sh", "-c", "echo OP:op,TIME:$(cat {scratch}/k),WS:0"], build=["cp", source, "{scratch}/k"])]
    assert only(tuner().tune("op", candidates)).time_ns == pytest.approx(1e6)
    assert only(tuner().tune("op", candidates)).cached
    source.write_text("2")
    result = only(tuner().tune("op", candidates))
    assert (result.cached, result.miss) == (False, "source")
    assert result.time_ns == pytest.approx(2e6)


def test_the_module_of_a_factory(tuner, module):
    name = module("def factory():\n    return int\n")
    candidates = [ost.Candidate.call(f"{name}:factory")]
    tuner().tune("op", candidates)
    assert only(tuner().tune("op", candidates)).cached
    module("def factory():\n    return int  # changed\n", name)
    result = only(tuner().tune("op", candidates))
    assert (result.cached, result.miss) == (False, "source")


def test_other_sources(tuner, module, tmp_path):
    name = module("def factory():\n    return int\n")
    table = tmp_path / "table.bin"
    table.write_bytes(b"1")
    candidates = [ost.Candidate.call(f"{name}:factory", source=[table])]
    tuner().tune("op", candidates)
    assert only(tuner().tune("op", candidates)).cached
    table.write_bytes(b"2")
    assert only(tuner().tune("op", candidates)).miss == "source"


def test_what_it_does_not_depend_on(tuner, prog, module, tmp_path):
    """The order of the candidates, others among them, the default, the budget, the time of the program's file."""
    candidates = [command([prog, "{n}"], {"n": n}) for n in (1, 40, 80)]
    tuner().tune("op", candidates)
    os.utime(prog, (1, 1))
    report = tuner(timeout=19, memory=1 << 40).tune("op", candidates[::-1], default=candidates[1], budget=1000)
    assert all(result.cached for result in report.results)
    assert all(result.cached for result in tuner().tune("op", candidates[:1]).results)


def test_a_copy_of_a_program_elsewhere_is_another_candidate(tuner, prog, tmp_path):
    tuner().tune("op", [command([prog, "1"])])
    copy = tmp_path / "copy"
    copy.write_bytes(Path(prog).read_bytes())
    copy.chmod(0o755)
    assert not only(tuner().tune("op", [command([copy, "1"])])).cached


# Failures


def test_failures_are_known_too(tuner, script, module, lines):
    def bad(text):
        return command([script(f"echo run >> {lines.path}\n{text}\n")])

    name = module(
        f"""
        def factory():
            with open({lines.path!r}, "a") as file:
                print("run", file=file)
            raise ValueError("no such tile")

        def false(outputs, key):
            return False
        """
    )
    candidates = [
        bad("kill -SEGV $$"),
        bad("exit 3"),
        bad("echo hello"),
        bad("sleep 600"),
        ost.Candidate.call(f"{name}:factory"),
        command(["true"], build=["false"]),
        command(["true"], build=["sleep", "600"]),
    ]
    first = tuner(timeout=0.5).tune("op", candidates)
    statuses = [result.status for result in first.results]
    assert statuses == ["crash", "crash", "bad_output", "hang_killed", "invalid", "compile_error", "compile_timeout"]
    ran = lines()
    again = tuner(timeout=0.5).tune("op", candidates)
    assert lines() == ran
    assert [result.status for result in again.results] == statuses
    assert [result.message for result in again.results] == [result.message for result in first.results]
    assert all(result.cached for result in again.results)
    assert again.best is None


def test_wrong_results_are_known_too(tuner, module, lines):
    name = module(
        f"""
        def factory():
            with open({lines.path!r}, "a") as file:
                print("run", file=file)
            return int

        def check(outputs, key):
            return False
        """
    )
    for again in (False, True):
        report = tuner().tune("op", [ost.Candidate.call(f"{name}:factory")], verify=f"{name}:check")
        assert (only(report).status, only(report).cached) == ("wrong_result", again)
    assert lines() == ["run"]


def test_a_check_asked_for_later_is_made(tuner, module):
    name = module("def factory():\n    return int\n\ndef check(outputs, key):\n    return False\n")
    candidates = [ost.Candidate.call(f"{name}:factory")]
    assert only(tuner().tune("op", candidates)).status == "ok"
    assert only(tuner().tune("op", candidates, verify=f"{name}:check")).status == "wrong_result"


@pytest.mark.parametrize("status", ["contended", "device_lost"])
def test_what_was_not_its_own_doing_is_tried_again(tuner, script, tmp_path, status):
    line = '{"v":1,"type":"result","op":"op","status":"%s","ns":5}'
    prog = script(
        f"""
        if [ -e {tmp_path}/alone ]; then status=ok; else status={status}; fi
        printf '{line}\\n' $status >&$OSTINATO_REPORT_FD
        """
    )
    assert only(tuner().tune("op", [command([prog])])).status == status
    (tmp_path / "alone").touch()
    result = only(tuner().tune("op", [command([prog])]))
    assert (result.status, result.cached) == ("ok", False)


def test_what_was_cancelled_is_tried_again(tuner, prog):
    candidates = [command([prog, "{n}"], {"n": n}) for n in (90, 60, 30)]
    first = tuner().tune("op", candidates, budget=ost.Budget(candidates=1))
    assert [result.status for result in first.results].count("cancelled") == 2
    again = tuner().tune("op", candidates)
    assert all(result.status in ("ok", "raced") for result in again.results)
    assert sum(result.cached for result in again.results) == 1
    assert again.best.candidate.config == {"n": 30}


# Killed


def test_a_killed_search_goes_on_where_it_was(tuner, user, script, lines, tmp_path, eventually):
    prog = script(f"sleep 0.05; echo $1 >> {lines.path}; echo OP:op,TIME:$1,WS:0\n")
    candidates = [command([prog, "{n}"], {"n": n}) for n in range(100, 130)]
    source = f"""
        import ostinato as ost

        with ost.Tuner(["sim:a"], progress=False, store={str(tmp_path / "killed.db")!r}) as tuner:
            tuner.tune("op", [ost.Candidate.command([{prog!r}, "{{n}}"], {{"n": n}}) for n in range(100, 130)])
    """
    for goal in (6, 12, 18):
        process = user(source)
        eventually(lambda goal=goal, process=process: len(lines()) >= goal or process.poll() is not None)
        process.kill()
        process.wait(60)
    ended = len(lines())
    report = tuner("sim:a", store=tmp_path / "killed.db", policy=ost.Policy()).tune("op", candidates)
    known = sum(result.cached for result in report.results)
    assert all(result.status in ("ok", "raced") for result in report.results)
    assert report.best.candidate.config == {"n": 100}
    # Each kill may cost what ended in the twentieth of a second before it; the last candidate may be killed on its way.
    assert known >= ended - 3 * 3
    ran = lines()
    again = tuner("sim:a", store=tmp_path / "killed.db", policy=ost.Policy()).tune("op", candidates)
    assert all(result.cached for result in again.results)
    assert lines() == ran


def test_the_folder_of_a_store_is_made(tuner, prog, tmp_path):
    path = tmp_path / "some" / "where" / "tune.db"
    for cached in (False, True):
        assert only(tuner(store=path).tune("op", [command([prog, "1"])])).cached is cached
    assert path.is_file()


# Stores that are no good


def test_a_file_that_is_no_store(tuner, prog, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, thousands of words of them\n" * 100)
    with pytest.raises(ost.TuningError, match=r"notes\.txt"), tuner(store=path) as session:
        session.tune("op", [command([prog, "1"])])
    assert path.read_text().startswith("these are my notes")


def test_a_database_of_somebody_else(tuner, prog, tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table mine (x)")
        connection.execute("insert into mine values (1)")
    connection.close()
    with pytest.raises(ost.TuningError, match=r"other\.db"), tuner(store=path) as session:
        session.tune("op", [command([prog, "1"])])
    connection = sqlite3.connect(path)
    assert connection.execute("select * from mine").fetchall() == [(1,)]
    connection.close()


def test_a_folder_is_no_store(tuner, prog, tmp_path):
    with pytest.raises(ost.TuningError), tuner(store=tmp_path) as session:
        session.tune("op", [command([prog, "1"])])


@pytest.mark.parametrize("store", [3, b"x", object()], ids=stable_str)
def test_wrong_stores(store):
    with pytest.raises((TypeError, ValueError)):
        ost.Tuner(["sim:a"], store=store)


def test_without_a_home_nothing_is_remembered(tuner, prog, caplog, monkeypatch):
    monkeypatch.setenv("OSTINATO_CACHE_DIR", "/proc/nowhere")
    with caplog.at_level("WARNING"):
        assert only(tuner().tune("op", [command([prog, "1"])])).status == "ok"
    assert "/proc/nowhere" in caplog.text
    assert not only(tuner().tune("op", [command([prog, "1"])])).cached
    with pytest.raises(ost.TuningError):
        ost.Tuner(["sim:a"], store="/proc/nowhere/store.db")
