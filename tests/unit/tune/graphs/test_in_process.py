"""Variants that are defined where no other process finds them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.tune.graphs.executor import Session
from ostinato.tune.graphs.signature import Signature, signatures_of
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease
from ostinato.tune.progress import Progress
from ostinato.tune.worker.timers import Preemption
from tune.graphs.faking import measure

QUICK = ost.Policy(max_seconds=0.02, rel_ci=0.2)


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else computes here, no sample counts as disturbed."""
    monkeypatch.setattr(Preemption, "waited", lambda self: 0)


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(["cpu:0"], policy=QUICK, progress=False) as session:
        yield session


def signature_of(record: Callable[[], object]) -> Signature:
    with ost.capture() as graph:
        record()
    (signature,) = signatures_of(graph.ops)
    return signature


def doubling(**variants: Callable[..., None]) -> Signature:
    @ost.task
    def double(src: ost.Read, dst: ost.Write) -> None:
        time.sleep(2e-4)
        np.multiply(src, 2, out=dst)

    for name, function in variants.items():
        double.variant(name=name)(function)
    return signature_of(lambda: double(np.arange(8.0), np.zeros(8)))


def statuses(report: ost.Report) -> dict[str, str]:
    return {str(result.candidate.config["variant"]): str(result.status) for result in report.results}


def messages(report: ost.Report) -> dict[str, str]:
    return {str(result.candidate.config["variant"]): result.message for result in report.results}


def right(src: ost.Read, dst: ost.Write) -> None:
    np.add(src, src, out=dst)


def test_the_fastest_of_the_right_ones_wins(session: Session) -> None:
    def wrong(src: ost.Read, dst: ost.Write) -> None:
        dst[:] = 0

    def raises(src: ost.Read, dst: ost.Write) -> None:
        raise ValueError("boom")

    def leaves(src: ost.Read, dst: ost.Write) -> None:
        sys.exit(1)

    def full(src: ost.Read, dst: ost.Write) -> None:
        np.ones(1 << 50)

    def slow(src: ost.Read, dst: ost.Write) -> None:
        time.sleep(4e-3)
        np.multiply(src, 2, out=dst)

    signature = doubling(right=right, wrong=wrong, raises=raises, leaves=leaves, full=full, slow=slow)
    report = measure(signature, session=session)
    found = statuses(report)
    assert found.pop("slow") in ("raced", "ok")
    assert found == {
        "double": "ok",
        "right": "ok",
        "wrong": "wrong_result",
        "raises": "crash",
        "leaves": "crash",
        "full": "oom",
    }
    assert report.best is report.results[1]
    assert report.default is report.results[0]
    assert (report.op, report.key, report.policy) == (signature.label, signature.key, QUICK)
    assert report.results[1].time_ns is not None
    assert report.results[1].time_ns < 1e5
    assert report.results[0].time_ns is not None
    assert report.results[0].time_ns > 2e5
    assert messages(report)["right"] == "measured in this process: double is defined inside a function"
    assert messages(report)["raises"].startswith("ValueError: boom (")
    assert "at index (1,) it gives 0.0 instead of 2.0 (measured in this process" in messages(report)["wrong"]
    assert report.best.device == "cpu:0"
    assert "cpu:0" in report.environment["devices"]
    assert {span.what for span in report.spans} == {"measure", "final"}


def test_what_is_as_fast_does_not_replace_the_default(session: Session) -> None:
    @ost.task
    def sleep(x: ost.Read) -> None:
        time.sleep(1e-3)

    @sleep.variant
    def same(x: ost.Read) -> None:
        time.sleep(1e-3)

    report = measure(signature_of(lambda: sleep(np.zeros(1))), session=session)
    found = statuses(report)
    assert (found["sleep"], found["same"] in ("ok", "raced")) == ("ok", True)  # raced where others disturb it
    if len(report.ties) == 2:  # the machine may have its own opinion
        assert report.best is report.default


def test_everything_is_as_it_was_afterwards(session: Session) -> None:
    before = os.sched_getaffinity(0), set(threading.enumerate()), os.listdir("/proc/self/fd")

    def moves(src: ost.Read, dst: ost.Write) -> None:
        os.sched_setaffinity(0, before[0])
        np.multiply(src, 2, out=dst)

    measure(doubling(right=right), session=session)  # what is imported and opened once is
    before = os.sched_getaffinity(0), set(threading.enumerate()), os.listdir("/proc/self/fd")
    report = measure(doubling(right=right, moves=moves), session=session)
    assert report.best is not None
    assert before == (os.sched_getaffinity(0), set(threading.enumerate()), os.listdir("/proc/self/fd"))
    with Lease(devices("cpu:0")[0]):
        pass


def test_it_runs_on_the_device_which_it_has_alone(session: Session) -> None:
    found = []

    def look(src: ost.Read, dst: ost.Write) -> None:
        found.append((os.sched_getaffinity(0), Lease(session.device).try_acquire()))
        np.multiply(src, 2, out=dst)

    measure(doubling(look=look), session=session)
    _, holder = found[0]
    before = os.sched_getaffinity(0)
    assert [cores for cores, _ in found if cores not in (before, session.device.cores)] == []
    assert (found[0][0], session.device.cores in [cores for cores, _ in found]) == (before, True)
    assert holder is not None
    assert holder.pid == os.getpid()


class Interrupting(Progress):
    def __init__(self, when: str) -> None:
        self._when = when

    def running(self, device: str, candidate: object, what: str) -> None:
        if what == self._when:
            raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["measure", "final"])
def test_an_interrupt_leaves_nothing_behind(when: str) -> None:
    with Session(["cpu:0"], policy=QUICK, progress=False) as session:
        measure(doubling(right=right), session=session)
    before = os.sched_getaffinity(0), set(threading.enumerate()), os.listdir("/proc/self/fd")
    with Session(["cpu:0"], policy=QUICK, progress=Interrupting(when)) as session, pytest.raises(KeyboardInterrupt):
        measure(doubling(right=right), session=session)
    assert before == (os.sched_getaffinity(0), set(threading.enumerate()), os.listdir("/proc/self/fd"))
    with Lease(devices("cpu:0")[0]):
        pass


def test_an_interrupt_in_a_task_is_the_users(session: Session) -> None:
    def interrupts(src: ost.Read, dst: ost.Write) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(doubling(interrupts=interrupts), session=session)
    with Lease(devices("cpu:0")[0]):
        pass


@pytest.mark.forks
def test_a_child_that_a_variant_forks_does_not_go_on(session: Session, tmp_path: Path) -> None:
    def forks(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2, out=dst)
        if not (tmp_path / "forked").exists():
            (tmp_path / "forked").touch()
            os.fork()

    pid = os.getpid()
    report = measure(doubling(forks=forks), session=session)
    assert os.getpid() == pid
    assert statuses(report)["forks"] in ("ok", "contended", "raced")
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 1


@pytest.mark.forks
def test_a_forked_child_may_measure(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            with Session(["cpu:0"], policy=QUICK, progress=False) as session:
                report = measure(doubling(right=right), session=session)
            os._exit(0 if report.best is report.results[1] else 7)
        finally:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_default_that_fails_leaves_nothing_to_compare_with(session: Session) -> None:
    @ost.task
    def fails(x: ost.Write) -> None:
        raise ValueError("boom")

    @fails.variant
    def does_not(x: ost.Write) -> None:
        x[:] = 0

    report = measure(signature_of(lambda: fails(np.zeros(1))), session=session)
    assert (report.best, report.ties) == (None, ())
    assert statuses(report) == {"fails": "crash", "does_not": "invalid"}
    assert messages(report)["does_not"] == "there is nothing to compare with: the default failed"


def test_a_default_that_is_never_the_same_is_timed_and_kept(session: Session) -> None:
    @ost.task
    def draws(x: ost.Write) -> None:
        x[:] = time.perf_counter_ns()

    @draws.variant
    def zero(x: ost.Write) -> None:
        x[:] = 0

    report = measure(signature_of(lambda: draws(np.zeros(1))), session=session)
    assert report.best is report.default is report.results[0]
    assert statuses(report) == {"draws": "ok", "zero": "invalid"}
    assert "called twice, the default does not do the same: argument 1 'x'" in messages(report)["zero"]


def test_every_circumstance_is_compared(session: Session) -> None:
    @ost.task
    def scale(src: ost.Read, dst: ost.Write, factor: float) -> None:
        dst[...] = src * factor

    @scale.variant
    def hard_wired(src: ost.Read, dst: ost.Write, factor: float) -> None:
        dst[...] = src * 2.0

    @scale.variant
    def in_pieces(src: ost.Read, dst: ost.Write, factor: float) -> None:
        for index in range(len(src)):
            dst[index] = src[index] * factor

    @scale.variant
    def good(src: ost.Read, dst: ost.Write, factor: float) -> None:
        np.multiply(src, factor, out=dst)

    a, b, both = np.arange(4.0), np.zeros(4), np.arange(5.0)

    def record() -> None:
        scale(a, b, 2.0)
        scale(a, b, 3.0)
        scale(both[:-1], both[1:], 2.0)

    report = measure(signature_of(record), session=session)
    assert statuses(report) | {"good": "ok"} == {
        "scale": "ok",
        "hard_wired": "wrong_result",
        "in_pieces": "wrong_result",
        "good": "ok",
    }
    assert "in the call at " in messages(report)["hard_wired"]


def test_within_rtol_is_right_enough(session: Session) -> None:
    def rounded(src: ost.Read, dst: ost.Write) -> None:
        np.multiply(src, 2.001, out=dst)

    assert statuses(measure(doubling(rounded=rounded), session=session))["rounded"] == "wrong_result"
    report = measure(doubling(rounded=rounded), session=session, rtol=1e-3)
    assert report.best is report.results[1]


def test_a_budget_of_candidates(session: Session) -> None:
    report = measure(doubling(right=right), session=session, budget=ost.Budget(candidates=1))
    assert statuses(report) == {"double": "ok", "right": "cancelled"}
    assert report.best is report.default
    assert messages(report)["right"] == "the budget of candidates was spent"


def test_a_budget_of_time_ends_the_waiting_for_a_lease(session: Session) -> None:
    with Lease(devices("cpu:0")[0]):
        report = measure(doubling(right=right), session=session, budget=ost.Budget(seconds=0.05))
    assert set(statuses(report).values()) == {"cancelled"}
    assert (report.best, report.results[0].message) == (None, "the budget of time was spent")


def test_cold_caches() -> None:
    with Session(["cpu:0"], policy=ost.Policy("cold", max_seconds=0.05, min_samples=2), progress=False) as session:
        report = measure(doubling(right=right), session=session)
    assert report.best is report.results[1]


def test_progress_is_told() -> None:
    told: list[Any] = []

    class Telling(Progress):
        def begin(self, op: str, total: int | None) -> None:
            told.append(("begin", op, total))

        def ended(self, result: ost.Result, best: ost.Result | None) -> None:
            told.append(("ended", result.candidate.config["variant"]))

        def end(self, report: ost.Report | None) -> None:
            told.append(("end", report is not None))

    with Session(["cpu:0"], policy=QUICK, progress=Telling()) as session:
        measure(doubling(right=right), session=session)
    assert told == [("begin", "double", 2), ("ended", "double"), ("ended", "right"), ("end", True)]


def test_where_only_the_default_fails_nothing_is_said(session: Session) -> None:
    @ost.task
    def divide(src: ost.Read, dst: ost.Write, by: float) -> None:
        if not by:
            raise ZeroDivisionError
        np.divide(src, by, out=dst)

    @divide.variant
    def in_place(src: ost.Read, dst: ost.Write, by: float) -> None:
        np.divide(src, by or 1.0, out=dst)

    def record() -> None:
        for by in (2.0, 0.0, 3.0):
            divide(np.ones(2), np.zeros(2), by)

    report = measure(signature_of(record), session=session)
    assert statuses(report)["divide"] == "ok"
    assert statuses(report)["in_place"] in ("ok", "raced")
