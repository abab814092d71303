"""Measuring one signature: where, and what is said of that."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import ContractError, TaskError
from ostinato.tune.graphs.executor import Request, Session
from ostinato.tune.graphs.signature import Signature, signatures_of
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease
from ostinato.tune.leases.processes import descendants
from tune.graphs import tasks
from tune.graphs.faking import measure

QUICK = ost.Policy(max_seconds=0.02, rel_ci=0.2)


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(["sim:measured"], policy=QUICK, progress=False) as session:
        yield session


def signatures(record: Callable[[], object]) -> list[Signature]:
    with ost.capture() as graph:
        record()
    return signatures_of(graph.ops)


@ost.task
def importable(x: ost.ReadWrite) -> None:
    x += 1


def test_where_a_case_was_measured_is_said(session: Session) -> None:
    @ost.task
    def here(x: ost.ReadWrite) -> None:
        x += 1

    here.variant(importable)
    x = np.zeros(4)
    for task, where in (
        (importable, "measured in a worker process"),
        (here, "measured in this process: here is defined inside a function"),
    ):
        (signature,) = signatures(lambda task=task: task(x))
        report = measure(signature, session=session)
        assert {result.message for result in report.results} == {where}
        assert {result.status for result in report.results} <= {"ok", "raced"}
        assert report.best is not None
    assert x.tolist() == [0] * 4


def test_copies_and_fills_are_measured(session: Session) -> None:
    graph = ost.Graph()
    a, b = np.ones(1000), np.zeros(1000)
    graph.copy(a, b)
    graph.copy(a, b, reduce="+")
    graph.fill(b, 3.0)
    graph.fill(b, graph.param("value", 2.0))
    for signature in signatures_of(graph.ops):
        report = measure(signature, session=session)
        (result,) = report.results
        assert (result.status, dict(result.candidate.config)) == ("ok", {})
        assert result.message == "measured in this process: it is no task"
        assert report.best is report.default is result
    assert (a.sum(), b.sum()) == (1000, 0)


def test_what_fails_has_no_winner(session: Session) -> None:
    @ost.task
    def fails(x: ost.Read) -> None:
        raise ValueError("boom")

    (signature,) = signatures(lambda: fails(np.zeros(1)))
    report = measure(signature, session=session)
    assert (report.best, report.ties) == (None, ())
    assert report.default is report.results[0]
    assert report.default.status == "crash"


def test_nothing_is_stored_and_no_process_stays(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    with Session(["sim:measured"], policy=QUICK, progress=False) as session:
        (signature,) = signatures(lambda: importable(np.zeros(4)))
        for _ in range(2):
            assert not measure(signature, session=session).results[0].cached
        assert len(descendants(os.getpid())) > len(before)
    assert descendants(os.getpid()) == before
    assert not (tmp_path / "cache" / "tune.db").exists()


def test_a_session_costs_nothing_before_it_is_used() -> None:
    before = descendants(os.getpid())
    with Session(["cpu:0"], progress=False):
        assert descendants(os.getpid()) == before


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_the_first_device_that_is_free_is_taken() -> None:
    names = ["cpu:0", "cpu:1"]
    assert Session(names, progress=False).device.name == "cpu:0"
    with Lease(devices("cpu:0")[0]):
        assert Session(names, progress=False).device.name == "cpu:1"
        with Lease(devices("cpu:1")[0]):
            assert Session(names, progress=False).device.name == "cpu:0"


def test_the_init_of_a_machine_is_called() -> None:
    called = []

    def init() -> None:
        called.append(threading.get_ident())

    with Session(["sim:measured"], policy=QUICK, progress=False, init=init) as session:
        assert called == []
        (signature,) = signatures(lambda: importable(np.zeros(4)))
        report = measure(signature, session=session)
    assert called == [threading.get_ident()]
    assert report.results[0].message == "measured in this process: the machine has an init function"


@pytest.mark.parametrize(
    ("status", "samples", "stays"),
    [("ok", (), True), ("contended", (9.0, 11.0), False), ("contended", (11.0, 30.0), True), ("crash", (), False)],
)
def test_who_wins_is_faster_than_the_default_ever_was(
    status: str, samples: tuple[float, ...], stays: bool, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (signature,) = signatures(lambda: tasks.relax(np.zeros(4), np.zeros(4)))

    def told(request: Request, make_tuner: object) -> ost.Report:
        default, best, *_ = results = [
            ost.Result(
                candidate=candidate,
                op=signature.label,
                status=ost.Status.OK if place else ost.Status(status),
                time_ns=10.0,
                samples=() if place else samples,
            )
            for place, candidate in enumerate(request.candidates)
        ]
        return ost.Report(
            op=signature.label, key={}, policy=QUICK, best=best, ties=(best,), results=tuple(results), default=default
        )

    monkeypatch.setattr("ostinato.tune.graphs.executor.measure_in_worker", told)
    report = measure(signature, session=session)
    assert (report.best is report.results[1], len(report.ties)) == (stays, stays)


def test_a_task_cannot_measure(session: Session) -> None:
    (signature,) = signatures(lambda: importable(np.zeros(4)))

    @ost.task
    def measures(x: ost.Read) -> None:
        measure(signature, session=session)

    with ost.capture() as graph:
        measures(np.zeros(1))
    with graph.compile() as program, pytest.raises(TaskError) as caught:
        program.replay()
    assert isinstance(caught.value.__cause__, ContractError)


def test_a_configuration_may_use_any_name(session: Session) -> None:
    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)

    @double.variant(config={"inputs": 3, "prepared": True, "candidate": "x", "op": 1})
    def other(src: ost.Read, dst: ost.Write, inputs: int) -> None:
        assert inputs == 3
        np.multiply(src, 2, out=dst)

    (signature,) = signatures(lambda: double(np.ones(3), np.zeros(3)))
    report = measure(signature, session=session)
    assert {result.status for result in report.results} <= {"ok", "raced"}


def test_configurations_are_measured_apart(session: Session) -> None:
    (signature,) = signatures(lambda: tasks.relax(np.arange(40.0), np.zeros(40)))
    report = measure(signature, session=session)
    times = {tuple(result.candidate.config.values()): result.time_ns for result in report.results}
    assert set(times) == {("relax",), ("at_once",), ("blocked", 8), ("blocked", 16)}
