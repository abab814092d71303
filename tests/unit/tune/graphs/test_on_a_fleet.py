"""Graphs that are tuned on the hosts of a fleet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.tune.fleet import engines
from ostinato.tune.fleet.host import LocalEndpoint
from ostinato.tune.graphs import tune_graph
from tune.graphs import tasks


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> str:
    """Two hosts in this process, with a simulated device each."""
    endpoints = [LocalEndpoint("one"), LocalEndpoint("two")]
    monkeypatch.setattr(engines, "_engine", lambda name, fleet: lambda address: endpoints)
    monkeypatch.setattr(tune_graph, "OF_EACH_HOST", "sim:graph")
    return "here"


def test_each_host_measures_variants_and_compares_them(fleet: str, tmp_path: Path) -> None:
    graph = tasks.graph_of(1.0, size=64)
    for cached in (False, True):
        reports = graph.tune(store=tmp_path / "db", progress=False, fleet=fleet)
        report = reports["relax"]
        assert {str(result.status) for result in report.results} <= {"ok", "raced"}, reports
        assert [result.cached for result in report.results] == [cached] * 4
        assert report.best is not None
        assert report.best.candidate.config["variant"] == "at_once"
        if not cached:
            assert {str(result.device).partition("/")[0] for result in report.results} == {"one", "two"}


def test_compile_finds_what_a_host_of_the_same_processor_found(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_graph, "OF_EACH_HOST", "cpu:0")
    monkeypatch.setattr(engines, "_engine", lambda name, fleet: lambda address: [LocalEndpoint("one")])
    graph = tasks.graph_of(1.0, size=64)
    graph.tune(store=tmp_path / "db", progress=False, fleet=fleet)
    with graph.compile(costs=tmp_path / "db") as program:
        assert "variant at_once" in program.explain()


def test_what_hosts_cannot_import_is_left_out(fleet: str, tmp_path: Path) -> None:
    @ost.task
    def here(x: ost.ReadWrite) -> None:
        x += 1

    @here.variant
    def there(x: ost.ReadWrite) -> None:
        x += 1

    x = np.zeros(4)
    with ost.capture() as graph:
        here(x)
    report = graph.tune(store=tmp_path / "db", progress=False, fleet=fleet)["here"]
    assert {str(result.status) for result in report.results} == {"invalid"}
    assert report.results[0].message == "no other host can measure it: here is defined inside a function"
    assert x.tolist() == [0] * 4


def test_a_machine_and_a_fleet_contradict_each_other(fleet: str) -> None:
    with ost.Machine(cpus=1) as machine, pytest.raises(ValueError, match="machine must be None with fleet"):
        tasks.graph_of().tune(machine, fleet=fleet)
