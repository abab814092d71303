"""The contract on `graph.tune`: what was measured once is known, to the next process and the next graph."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from measuring import (
    PRELUDE,
    RIGHT,
    USER,
    WATCHED,
    by_variant,
    graph_of,
    output,
    tune,
    variant,
    wrong,
)

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


# Known from then on


def test_the_second_time_nothing_runs(tasks, machine, lines):
    module = tasks(WATCHED)
    first = tune(graph_of(module.relax)[0], machine)["relax"]
    ran = lines()
    again = tune(graph_of(module.relax)[0], machine)["relax"]
    assert lines() == ran
    assert all(result.cached for result in again.results)
    assert all(result.miss is None for result in again.results)
    assert [(variant(r), r.status, r.time_ns, tuple(r.samples)) for r in again.results] == [
        (variant(r), r.status, r.time_ns, tuple(r.samples)) for r in first.results
    ]
    assert variant(again.best) == variant(first.best)
    assert again.best in again.results


def test_the_second_time_no_process_is_started(tasks, machine, monkeypatch):
    module = tasks(RIGHT)
    tune(graph_of(module.relax)[0], machine)

    def refused(*arguments, **keywords):
        raise AssertionError("a process was started")

    import subprocess

    for owner, name in ((os, "fork"), (os, "posix_spawn"), (subprocess, "Popen"), (os, "forkpty")):
        monkeypatch.setattr(owner, name, refused)
    assert variant(tune(graph_of(module.relax)[0], machine)["relax"].best) == "quick"


def test_failures_are_known_too(tasks, machine, lines):
    module = tasks(wrong("note('broken'); os.abort()") + wrong("note('other')").replace("broken", "other", 1))
    first = by_variant(tune(graph_of(module.relax)[0], machine)["relax"])
    ran = lines()
    again = by_variant(tune(graph_of(module.relax)[0], machine)["relax"])
    assert lines() == ran
    assert {name: result.status for name, result in again.items()} == {
        name: result.status for name, result in first.items()
    }
    assert set(again) == {"relax", "broken", "other"}


def test_the_next_process_knows(tasks, machine, user, lines, tmp_path):
    module = tasks(WATCHED)
    store = tmp_path / "store.db"
    tune(graph_of(module.relax)[0], machine, store=store)
    ran = lines()
    said = output(user(USER, module.__name__, store, "compile"))
    assert any("quick" in line for line in said)
    assert len(lines()) == len(ran) + 1  # the replay
    said = output(user(USER, module.__name__, store))
    assert said[:3] == ["relax ok True None", "quick ok True None", "best quick"]
    assert len(lines()) == len(ran) + 2


def test_what_another_process_measured_is_known_here(tasks, machine, user, tmp_path):
    module = tasks(WATCHED)
    output(user(USER, module.__name__, tmp_path / "store.db"))
    graph, *_ = graph_of(module.relax)
    with graph.compile(machine, costs=tmp_path / "store.db") as program:
        assert "quick" in program.explain()
    report = tune(graph, machine, store=tmp_path / "store.db")["relax"]
    assert all(result.cached for result in report.results)


def test_a_compile_sees_what_was_stored_since_the_last_one(here, machine, tmp_path):
    module = here(WATCHED)
    (tmp_path / "cache").mkdir(exist_ok=True)
    graph, *_ = graph_of(module.relax)
    with graph.compile(machine) as program:
        assert "quick" not in program.explain()
    tune(graph, machine)
    with graph.compile(machine) as program:
        assert "quick" in program.explain()


def test_another_graph_knows(here, machine, lines):
    module = here(WATCHED)
    tune(graph_of(module.relax)[0], machine)
    ran = lines()
    graph, *_ = graph_of(module.relax, times=3)
    graph.fill(np.zeros(3), 1.0)
    assert all(result.cached for result in tune(graph, machine)["relax"].results)
    assert lines() == ran


def test_only_what_is_new_is_measured(here, machine, lines):
    module = here(WATCHED)
    tune(graph_of(module.relax)[0], machine)
    with ost.capture() as graph:
        module.relax(np.ones(8), np.zeros(8))
        module.relax(np.ones(9), np.zeros(9))
    cached = [all(result.cached for result in report.results) for report in tune(graph, machine).values()]
    assert cached == [True, False]


def rewritten(module, lines, source):
    """Change the file of a module that was imported: another process sees it as it is now."""
    path = Path(module.__file__)
    before = path.stat().st_mtime
    path.write_text(f"LOG = {lines.path!r}\n{PRELUDE}{source}")
    os.utime(path, (before + 10, before + 10))  # or compiled code of the same second would count


def test_a_changed_variant_is_measured_again(tasks, user, lines, tmp_path):
    module = tasks(RIGHT)
    store = tmp_path / "store.db"
    said = output(user(USER, module.__name__, store))
    assert said[:3] == ["relax ok False None", "quick ok False None", "best quick"]
    rewritten(module, lines, RIGHT.replace("src, 2", "src, 3"))
    said = output(user(USER, module.__name__, store, "compile"))
    assert not any("quick" in line.replace("source", "") and "variant" in line for line in said if "measured" in line)
    assert any("source" in line for line in said)
    said = output(user(USER, module.__name__, store))
    assert said[0] == "relax ok False source"
    assert said[1] == "quick wrong_result False source"
    assert said[2] == "best relax"


def best_of(module, machine):
    return variant(tune(graph_of(module.relax)[0], machine, everything=True)["relax"].best)


def test_a_changed_task_is_measured_again(tasks, machine, lines):
    """What is right follows from the task itself."""
    module = tasks(RIGHT)
    assert best_of(module, machine) == "quick"
    rewritten(module, lines, RIGHT.replace("src, 2", "src, 3"))
    path = Path(module.__file__)
    changed, when = path.read_text().replace("dst[...] = src * 2", "dst[...] = src * 3"), path.stat().st_mtime + 10
    path.write_text(changed)
    os.utime(path, (when, when))
    report = tune(graph_of(importlib.reload(module).relax)[0], machine)["relax"]
    assert [(result.cached, result.miss) for result in report.results] == [(False, "source")] * 2
    assert variant(report.best) == "quick"


def test_a_changed_helper_of_the_same_module_is_seen(tasks, machine, lines):
    source = """
def factor():
    return 2

@relax.variant()
def quick(src: ost.Read, dst: ost.Write):
    np.multiply(src, factor(), out=dst)
"""
    module = tasks(source)
    assert best_of(module, machine) == "quick"
    rewritten(module, lines, source.replace("return 2", "return 3"))
    assert best_of(importlib.reload(module), machine) == "relax"


def test_another_variant_is_measured(tasks, machine, lines):
    module = tasks()
    assert best_of(module, machine) == "relax"
    rewritten(module, lines, RIGHT)
    assert best_of(importlib.reload(module), machine) == "quick"
    rewritten(module, lines, "")
    graph, *_ = graph_of(importlib.reload(module).relax)
    with graph.compile(machine) as program:
        assert "variant quick" not in program.explain()


def test_a_file_that_changed_since_it_was_imported(tasks, machine, lines):
    """Workers import what the file holds now, and this process runs what it held before."""
    module = tasks(RIGHT.replace("src, 2", "src, 3"))
    rewritten(module, lines, RIGHT)
    for times in (1, 2):
        graph, _, dst = graph_of(module.relax)
        assert variant(tune(graph, machine)["relax"].best) == "relax", times
        with graph.compile(machine) as program:
            program.replay()
        assert dst.tolist() == [2.0] * 8


def test_a_module_that_was_changed_by_hand(tasks, machine):
    """Workers import a module as it is in its file; here, somebody set one of its names."""
    source = """
FACTOR = 3

@relax.variant()
def quick(src: ost.Read, dst: ost.Write):
    np.multiply(src, FACTOR, out=dst)
"""
    module = tasks(source)
    for factor, best in ((3, "relax"), (2, "quick"), (3, "relax")):
        module.FACTOR = factor
        graph, _, dst = graph_of(module.relax)
        tune(graph, machine)
        with graph.compile(machine) as program:
            assert ("quick" in program.explain()) == (best == "quick"), factor
            program.replay()
        assert dst.tolist() == [2.0] * 8


# A store from elsewhere


def changed(store, column, change):
    """Make a store look as if another machine had written it."""
    with sqlite3.connect(store) as connection:
        for number, text in connection.execute(f"SELECT id, {column} FROM context").fetchall():
            value = json.dumps(change(json.loads(text)), sort_keys=True, separators=(",", ":"))
            connection.execute(f"UPDATE context SET {column} = ? WHERE id = ?", (value, number))
    connection.close()


ELSEWHERE = {
    "device": lambda model: "another processor",
    "driver": lambda driver: "another driver",
    "versions": lambda versions: versions | {"numpy": "0.1"},
}


@pytest.mark.parametrize("field", ELSEWHERE)
def test_a_store_of_another_machine_is_refused_by_name(here, machine, field, tmp_path, lines):
    module = here(WATCHED)
    store = tmp_path / "store.db"
    tune(graph_of(module.relax)[0], machine, store=store)
    changed(store, field, ELSEWHERE[field])
    graph, *_ = graph_of(module.relax)
    with graph.compile(machine, costs=store) as program:
        text = program.explain()
        assert field in text
        assert "estimated" in text
        assert "quick" not in text
    ran = lines()
    report = tune(graph, machine, store=store)["relax"]
    assert [(result.cached, result.miss) for result in report.results] == [(False, field)] * 2
    assert len(lines()) > len(ran)
    with graph.compile(machine, costs=store) as program:
        assert "quick" in program.explain()


def test_a_store_brought_from_another_machine(here, machine, tmp_path):
    from ostinato.tune.store.exchange import export, load

    module = here(RIGHT)
    tune(graph_of(module.relax)[0], machine, store=tmp_path / "here.db")
    export(tmp_path / "here.db", tmp_path / "file.jsonl")
    load(tmp_path / "file.jsonl", tmp_path / "there.db")
    graph, *_ = graph_of(module.relax)
    with graph.compile(machine, costs=tmp_path / "there.db") as program:
        assert "quick" in program.explain()
    text = (tmp_path / "file.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in text]
    for row in rows[1:]:
        row["model"] = "another processor"
    (tmp_path / "file.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    load(tmp_path / "file.jsonl", tmp_path / "elsewhere.db")
    with graph.compile(machine, costs=tmp_path / "elsewhere.db") as program:
        assert "device" in program.explain()
        assert "quick" not in program.explain()
