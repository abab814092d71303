"""Tuning a graph: each signature once, what is known not at all, and nothing lost whatever happens."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph.variant import Variant
from ostinato.tune.graphs import cost_store
from ostinato.tune.graphs.executor import Request
from ostinato.tune.graphs.signature import Signature
from ostinato.tune.store.store import Store
from tune.graphs.faking import Fake, tune
from tune.graphs.tasks import add, relax

TIMES = {"relax": (900.0, 1000.0, 1100.0), "at_once": (190.0, 200.0, 210.0)}


def graph_of(*sizes: int) -> ost.Graph:
    graph = ost.Graph()
    for size in sizes or (8,):
        graph.task(relax, np.zeros(size), np.zeros(size))
    return graph


def three_cases() -> ost.Graph:
    graph = graph_of(8, 9)
    graph.task(add, np.zeros(8), np.zeros(8))
    return graph


def test_each_case_is_measured_once(path: Path) -> None:
    fake = Fake(TIMES)
    reports = tune(three_cases(), fake, path)
    assert list(reports) == ["relax[8 float64, 8 float64]", "relax[9 float64, 9 float64]", "add"]
    assert fake.measured == list(reports)
    again = tune(three_cases(), fake, path)
    assert list(again) == list(reports)
    assert len(fake.measured) == 3
    assert all(result.cached for report in again.values() for result in report.results)


def test_for_what_is_known_no_kernel_is_compiled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a new process that would take seconds."""
    tune(three_cases(), Fake(TIMES), path)
    monkeypatch.setattr(Variant, "body", None)  # which compiles a kernel for an op's arguments
    again = tune(three_cases(), Fake(TIMES), path)
    assert all(result.cached for report in again.values() for result in report.results)


def test_another_graph_finds_the_cases_that_it_has_in_common(path: Path) -> None:
    fake = Fake(TIMES)
    tune(three_cases(), fake, path)
    reports = tune(graph_of(7, 8), fake, path)
    assert fake.measured[3:] == ["relax[7 float64, 7 float64]"]
    assert list(reports) == ["relax[7 float64, 7 float64]", "relax[8 float64, 8 float64]"]


def test_the_default_store_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "elsewhere"))
    tune(graph_of(), Fake())
    assert (tmp_path / "elsewhere" / "tune.db").exists()


def test_a_closed_over_value_is_another_task(path: Path) -> None:
    def graph_with(k: int) -> ost.Graph:
        @ost.task
        def scale(x: ost.ReadWrite) -> None:
            x *= k

        graph = ost.Graph()
        graph.task(scale, np.zeros(4))
        return graph

    fake = Fake()
    for k in (1, 2, 1, 2):
        tune(graph_with(k), fake, path)
    assert len(fake.measured) == 2


def test_a_variant_that_is_added_or_changed_is_measured(path: Path) -> None:
    def graph_with(*factors: float) -> ost.Graph:
        @ost.task
        def scale(x: ost.ReadWrite) -> None:
            x *= 2

        for factor in factors:
            scale.variant(config={"factor": factor})(other)
        graph = ost.Graph()
        graph.task(scale, np.zeros(4))
        return graph

    def other(x: ost.ReadWrite, factor: float = 1.0) -> None:
        x *= factor

    fake = Fake()
    for factors in ((), (1.0,), (2.0,), (1.0, 2.0), (2.0,), ()):
        (report,) = tune(graph_with(*factors), fake, path).values()
        assert len(report.results) == 1 + len(factors)
    assert len(fake.measured) == 4
    assert not report.results[0].miss
    (report,) = tune(graph_with(3.0), fake, path).values()
    assert [result.miss for result in report.results] == ["source", "source"]


def test_what_cannot_be_told_is_never_stored(path: Path) -> None:
    def graph_of(thing: object) -> ost.Graph:
        graph = ost.Graph()
        graph.task(lambda x: thing, np.zeros(4), access=(ost.ReadWrite,))
        return graph

    fake, things = Fake(), [object(), object()]
    graphs = [graph_of(thing) for thing in things]
    for graph in graphs:
        tune(graph, fake, path)
    assert len(fake.measured) == 2
    with Store(path) as store:
        assert not list(store.attempts())
    for graph in (*graphs, graph_of(things[0])):  # this process knows all the same
        tune(graph, fake, path)
    assert len(fake.measured) == 2
    tune(graph_of(object()), fake, path)
    assert len(fake.measured) == 3


def test_what_measuring_changes_was_something_else_before(path: Path) -> None:
    """A list that a task appends to is the same one in the next process: empty."""

    def graph_of(calls: list[int]) -> ost.Graph:
        graph = ost.Graph()
        graph.task(lambda x: calls.append(1), np.zeros(4), access=(ost.ReadWrite,))
        return graph

    calls: list[int] = []
    fake = Fake()
    fake.before = lambda signature: calls.append(1)
    tune(graph_of(calls), fake, path)
    tune(graph_of([]), fake, path)
    assert len(fake.measured) == 1


def test_what_the_budget_leaves_no_time_for_is_cancelled(path: Path) -> None:
    fake = Fake(TIMES)
    reports = tune(three_cases(), fake, path, budget=ost.Budget(candidates=5))
    assert len(fake.measured) == 2
    first, second, last = reports.values()
    assert first.best is not None
    assert second.best is not None
    assert [result.status for result in last.results] == ["cancelled"]
    assert last.best is None
    reports = tune(three_cases(), fake, path, budget=ost.Budget(candidates=9))
    assert len(fake.measured) == 3
    assert reports["add"].best is not None


def test_what_is_known_is_found_without_any_time(path: Path) -> None:
    fake = Fake(TIMES)
    tune(graph_of(8), fake, path)
    known, unknown = tune(graph_of(8, 9), fake, path, budget=1e-9).values()
    assert known.best is not None
    assert [result.status for result in unknown.results] == ["cancelled"] * 4
    assert [result.candidate.config["variant"] for result in unknown.results][:2] == ["relax", "at_once"]
    assert len(fake.measured) == 1


def test_measuring_is_told_what_is_left(path: Path) -> None:
    seen: list[ost.Budget] = []

    class Told(Fake):
        def measure(self, request: Request) -> ost.Report:
            seen.append(request.budget)
            assert request.rtol == 0.25
            return super().measure(request)

    tune(three_cases(), Told(), path, budget=60, rtol=0.25)
    seconds = [budget.seconds for budget in seen if budget.seconds is not None]
    assert len(seconds) == 3
    assert 60 > seconds[0] > seconds[1] > seconds[2] > 0
    seen.clear()
    tune(graph_of(11), Told(), path, rtol=0.25)
    assert seen == [ost.Budget()]


def test_an_interrupt_loses_nothing(path: Path) -> None:
    fake = Fake(TIMES)

    def interrupt(signature: Signature) -> None:
        if signature.label == "add":
            raise KeyboardInterrupt

    fake.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        tune(three_cases(), fake, path)
    assert len(fake.measured) == 2
    fake.before = lambda signature: None
    tune(three_cases(), fake, path)
    assert fake.measured[2:] == ["add"]


def test_what_another_process_found_meanwhile_is_not_measured_again(path: Path) -> None:
    fake, other = Fake(TIMES), Fake(TIMES)
    fake.before = lambda signature: None if other.measured else tune(three_cases(), other, path) and None
    reports = tune(three_cases(), fake, path)
    assert len(other.measured) == 3
    assert len(fake.measured) == 1  # the one that was being measured
    assert all(report.best is not None for report in reports.values())


def additions() -> ost.Graph:
    graph = ost.Graph()
    for size in (4, 5, 6):
        graph.task(add, np.zeros(size), np.zeros(size))
    return graph


SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    import numpy as np, ostinato as ost
    from tune.graphs.test_tune_graph import additions
    reports = additions().tune(store={path!r}, everything=True, progress=False)
    print(*(report.best.candidate.config["variant"] for report in reports.values()))
"""


@pytest.mark.slow
def test_two_processes_tune_one_graph_at_once(path: Path) -> None:
    script = textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parents[2]), path=str(path)))
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=100)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert printed[0] == printed[1]
    fake = Fake()
    tune(additions(), fake, path)
    assert not fake.measured


def test_a_named_store_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store")
    fake = Fake()
    for path in (tmp_path / "file", tmp_path / "file" / "tune.db", tmp_path):
        with pytest.raises(ost.TuningError, match=str(path)):
            tune(graph_of(), fake, path)
    assert not fake.measured
    assert (tmp_path / "file").read_text() == "no store"


def test_without_the_default_store_tuning_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    fake = Fake(TIMES)
    with caplog.at_level(logging.WARNING, logger="ostinato"):
        reports = tune(three_cases(), fake)
    assert len(fake.measured) == 3
    assert all(report.best is not None for report in reports.values())
    assert len(caplog.records) == 1
    assert "in its reports only" in caplog.text


def test_a_damaged_default_store_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path))
    (tmp_path / "tune.db").write_bytes(b"garbage" * 1000)
    with caplog.at_level(logging.WARNING, logger="ostinato"):
        (report,) = tune(graph_of(), Fake(TIMES)).values()
    assert report.best is not None
    assert "is no store" in caplog.text
    assert (tmp_path / "tune.db").read_bytes() == b"garbage" * 1000


def test_a_disk_that_is_full_costs_no_report(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(Store):
        """A file that cannot grow, as SQLite has it where a disk is full."""

        def __init__(self, path: Any) -> None:
            super().__init__(path)
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
            self._connection.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(cost_store, "Store", Full)
    fake = Fake({"relax": tuple(float(n) for n in range(1, 9000)), "at_once": (0.5,)})
    with caplog.at_level(logging.WARNING, logger="ostinato"):
        reports = tune(three_cases(), fake, path)
    assert len(fake.measured) == 3
    assert all(report.best is not None for report in reports.values())
    assert len(caplog.records) == 1
    assert "disk is full" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"machine": "cpu"}, TypeError),
        ({"store": 3}, TypeError),
        ({"budget": "long"}, TypeError),
        ({"budget": True}, TypeError),
        ({"budget": -1}, ValueError),
        ({"budget": float("nan")}, ValueError),
        ({"rtol": "a bit"}, TypeError),
        ({"rtol": True}, TypeError),
        ({"rtol": -1e-9}, ValueError),
        ({"rtol": float("nan")}, ValueError),
        ({"rtol": 1}, ValueError),
        ({"progress": 3}, TypeError),
        ({"everything": "yes"}, TypeError),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments)) if "machine" not in arguments else "Machine"):
        graph_of().tune(**arguments)


def test_a_graph_that_is_being_captured_cannot_be_tuned() -> None:
    with pytest.raises(ost.GraphError, match="captured"), ost.capture() as graph:
        graph.tune()


def test_a_machines_init_is_called_before_its_tasks() -> None:
    there = threading.local()

    def init() -> None:
        there.factor = 2.0

    @ost.task
    def scale(x: ost.ReadWrite) -> None:
        x *= there.factor

    graph = ost.Graph()
    graph.task(scale, np.ones(4))
    with ost.Machine(cpus=1, init=init) as machine:
        report = graph.tune(machine, everything=True, progress=False)["scale"]
    assert report.best is not None
    assert "init" in report.best.message


def test_a_machine_that_is_closed() -> None:
    machine = ost.Machine(cpus=1)
    machine.close()
    with pytest.raises(RuntimeError, match="closed"):
        graph_of().tune(machine)


def test_what_cannot_be_done_on_copies_is_not_called(path: Path) -> None:
    called = []

    @ost.task(blocking=True)
    def waits(x: ost.ReadWrite) -> None:
        called.append(x)

    @ost.task
    def say(text: str) -> None:
        called.append(text)

    graph = ost.Graph()
    graph.task(waits, np.zeros(3))
    graph.task(say, "hello")
    graph.task(ost.native(12345, (float,), name="in C"), 1.0)
    fake = Fake()
    reports = tune(graph, fake, path)
    assert [result.status for report in reports.values() for result in report.results] == ["invalid"] * 3
    assert "blocking=True" in reports["waits"].results[0].message
    assert "not declared" in reports["say"].results[0].message
    assert not fake.measured
    assert not called


def test_a_variant_that_takes_a_parameter_for_granted_is_wrong(path: Path) -> None:
    @ost.task
    def scale(x: ost.ReadWrite, by: float) -> None:
        assert by > 0
        x *= by

    @scale.variant
    def halve(x: ost.ReadWrite, by: float) -> None:
        x *= 0.5

    @scale.variant
    def halve_or_not(x: ost.ReadWrite, by: float) -> None:
        np.multiply(x, by, out=x)

    graph = ost.Graph()
    graph.task(scale, np.ones(4), graph.param("by", 0.5))
    statuses = [result.status for result in graph.tune(store=path, progress=False)["scale"].results]
    assert [str(status) for status in statuses][1] == "wrong_result"
    assert "wrong_result" not in [str(statuses[0]), str(statuses[2])]


def test_a_graph_without_cases() -> None:
    fake = Fake()
    assert tune(ost.Graph(), fake) == {}
    assert not fake.measured


def test_reports_in_a_table(path: Path) -> None:
    fake = Fake({**TIMES, "blocked(block=16)": "wrong_result", "add": "invalid"})
    table = tune(three_cases(), fake, path).table().splitlines()
    assert table[0].split() == ["case", "winner", "time", "default", "gain", "variants", "message"]
    assert "at_once  200 ns" in table[1]
    assert "5.00" in table[1]
    assert "3 of 4 ok" in table[1]
    assert table[1].endswith("blocked(block=16): wrong_result")
    assert table[3].endswith("so it is")
    assert "3 of 4 ok, from the store" in tune(three_cases(), fake, path).table()


def test_tuning_measures(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With nothing faked."""
    size = 256
    a, b = np.arange(float(size)), np.zeros(size)
    graph = ost.Graph()
    graph.task(relax, a, b, 0.5)
    before = a.copy(), b.copy()
    reports = graph.tune(store=path)
    assert np.array_equal((a, b), before)
    report = reports["relax"]
    assert report.best is not None
    assert report.best.candidate.config == {"variant": "at_once"}
    assert {str(result.status) for result in report.results} <= {"ok", "raced"}
    program = graph.compile(costs=path)
    assert "variant at_once" in program.explain()
    program.replay(1)
    assert np.array_equal(b, a / 2)
