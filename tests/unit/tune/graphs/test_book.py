"""What the store keeps of a signature comes back, and by exactly what it depends on."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from leases import in_child
from ostinato.tune.graphs import cost_store
from ostinato.tune.graphs.cost_store import CostStore, Found, Lookup, make_record, report_of
from ostinato.tune.graphs.executor import Request
from ostinato.tune.graphs.record import Snapshot, snapshot_of
from ostinato.tune.graphs.signature import Signature, signatures_of
from ostinato.tune.leases.cpu import cpu_device
from ostinato.tune.store.exchange import export, load
from ostinato.tune.store.key import versions
from ostinato.tune.store.store import Store, StoreError
from tune.graphs.faking import Fake, tune
from tune.graphs.tasks import graph_of
from tune.storing import public_directory

NOBODY = 65534
TIMES = {"relax": (900.0, 1000.0, 1100.0), "at_once": (190.0, 200.0, 210.0), "blocked(block=8)": "wrong_result"}


def signature_of(graph: ost.Graph | None = None) -> Signature:
    return signatures_of((graph or graph_of()).ops)[0]


def known(path: Path, signature: Signature | None = None) -> Found:
    signature = signature or signature_of()
    return Lookup(path).known(signature.key, signature.declared)


def test_a_record_comes_back(path: Path) -> None:
    found = tune(graph_of(), Fake(TIMES), path)["relax"]
    record = known(path).record
    assert record is not None
    assert (record.places, record.winner, record.ties, record.rtol) == ((0, 1, 2, 3), 1, (1,), 0.0)
    assert record.complete
    assert record.samples(1) == (190.0, 200.0, 210.0)
    assert record.samples(3) == ()
    signature = signature_of()
    again = report_of(signature, record, cpu_device("cpu:0"))
    assert [result.cached for result in again.results] == [True] * 4
    for before, after in zip(found.results, again.results, strict=True):
        assert (before.status, before.time_ns, before.interval_ns) == (after.status, after.time_ns, after.interval_ns)
        assert before.candidate.config == after.candidate.config
        assert before.message == after.message
    assert again.best is again.results[1]
    assert again.default is again.results[0]
    assert again.ties == (again.best,)
    assert "at_once" in again.why()
    assert "from the store" in again.table() or "at_once" in again.table()


def test_ties_with_the_default_are_won_by_the_default() -> None:
    signature = signature_of()
    report = Fake({"relax": (200.0,), "at_once": (200.0,)}).measure(Request(signature))
    report.best = report.results[1]
    record = make_record(signature, report, 0.0)
    assert record is not None
    assert record.winner == 0
    assert record.ties == (0, 1)


@pytest.mark.parametrize("status", ["crash", "hang_killed", "invalid", "cancelled"])
def test_where_the_task_itself_fails_there_is_no_record(path: Path, status: str) -> None:
    fake = Fake({"relax": status})
    tune(graph_of(), fake, path)
    assert known(path) == Found()
    tune(graph_of(), fake, path)
    assert len(fake.measured) == 2


def test_where_time_ran_out_compile_has_what_there_is_and_tune_measures_again(path: Path) -> None:
    fake = Fake({**TIMES, "blocked(block=16)": "cancelled"})
    tune(graph_of(), fake, path)
    record = known(path).record
    assert record is not None
    assert not record.complete
    assert record.places == (0, 1, 3)
    assert record.winner == 1
    fake.known = dict(TIMES)
    tune(graph_of(), fake, path)
    assert len(fake.measured) == 2
    record = known(path).record
    assert record is not None
    assert record.complete


def test_nothing_is_known_where_there_is_no_file(path: Path) -> None:
    assert known(path) == Found()
    assert snapshot_of(path) is None
    assert not path.exists()


def test_the_file_is_read_once_as_long_as_it_stays_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(graph_of(), Fake(TIMES), path)
    reads: list[str] = []
    read = Snapshot._read
    monkeypatch.setattr(Snapshot, "_read", lambda self, operation: reads.append(operation) or read(self, operation))
    for _ in range(3):
        assert known(path).record
    assert len(reads) == 3  # it is so new that it might change once more without its times telling
    os.utime(path, (1e9, 1e9))
    for _ in range(3):
        assert known(path).record
    assert len(reads) == 4
    with Store(path) as store:  # it is not closed: what is written is in the log first
        other = CostStore(path, print)
        other._store = store
        record = known(path).record
        assert record is not None
        other.add(signature_of(), record)
        os.utime(f"{path}-wal", (1e9, 1e9))
        for _ in range(3):
            assert len(known(path).records) == 2
    assert len(reads) == 5


def test_one_lookup_reads_once_until_it_is_told(path: Path) -> None:
    lookup, signature = Lookup(path), signature_of()
    assert not lookup.known(signature.key, signature.declared).records
    tune(graph_of(), Fake(TIMES), path)
    assert lookup.known(signature.key, signature.declared).records  # there was no file
    tune(graph_of(2.0), Fake(TIMES), path)
    assert len(lookup.known(signature.key, signature.declared).records) == 1
    lookup.refresh()
    assert len(lookup.known(signature.key, signature.declared).records) == 2


def test_other_code_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(graph_of(), Fake(TIMES), path)
    monkeypatch.setattr(cost_store, "source_of", lambda variant: "other")
    monkeypatch.setattr(cost_store.Lookup, "recall", lambda self, key, variants, found=None: found)
    found = known(path)
    assert (found.records, found.differs) == ((), "source")
    assert found.why.startswith("the store's results are for another source")
    monkeypatch.setattr(cost_store, "source_of", lambda variant: None)
    assert known(path) == Found()  # what cannot be told is not stored, and not found


def test_another_processor_is_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(graph_of(), Fake(TIMES), path)
    there = cost_store.environment

    def elsewhere(devices: Any) -> dict[str, Any]:
        found = there(devices)
        return {**found, "devices": {name: {"model": "Z80", "driver": ""} for name in found["devices"]}}

    monkeypatch.setattr(cost_store, "environment", elsewhere)
    found = known(path)
    assert found.differs == "device"
    assert found.why.startswith("the store's results are for another device (")
    assert found.why.endswith(" instead of Z80)")


def test_other_versions_are_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(graph_of(), Fake(TIMES), path)
    there = cost_store.environment
    monkeypatch.setattr(
        cost_store,
        "environment",
        lambda devices: {**there(devices), "versions": {**versions(), "numpy": "0.1", "scipy": "9"}},
    )
    found = known(path)
    assert found.differs == "versions"
    assert f"numpy {np.__version__} instead of 0.1" in found.why
    assert "instead of 9" in found.why


def test_another_policy_is_refused_by_what_differs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(graph_of(), Fake(TIMES), path)
    monkeypatch.setattr(cost_store, "POLICY", ost.Policy(cache="cold", min_samples=9))
    found = known(path)
    assert found.differs == "policy"
    assert found.why == (
        "the store's results are for another policy (cache warm instead of cold, min_samples 7 instead of 9)"
    )


def test_a_store_of_another_machine_that_was_brought_here_is_refused(path: Path, tmp_path: Path) -> None:
    """As users bring one: exported there, loaded here."""
    tune(graph_of(), Fake(TIMES), path)
    export(path, tmp_path / "there.jsonl")
    lines = (tmp_path / "there.jsonl").read_text().splitlines()
    changed = [lines[0], *(json.dumps({**json.loads(line), "model": "Z80"}) for line in lines[1:])]
    (tmp_path / "there.jsonl").write_text("\n".join(changed) + "\n")
    here = tmp_path / "here.db"
    load(tmp_path / "there.jsonl", here)
    assert known(here).differs == "device"
    assert "(Z80 instead of " in known(here).why
    fake = Fake(TIMES)
    (report,) = tune(graph_of(), fake, here).values()
    assert [result.miss for result in report.results] == ["device"] * 4
    assert fake.measured == ["relax"]
    assert known(here).record


def test_other_shapes_are_another_case(path: Path) -> None:
    tune(graph_of(size=8), Fake(TIMES), path)
    assert known(path, signature=signature_of(graph_of(size=9))) == Found()


def test_a_store_of_searches_only_says_nothing(path: Path) -> None:
    with Store(path):
        pass
    assert known(path) == Found()


@pytest.mark.parametrize("what", ["garbage", "database", "directory"])
def test_what_is_no_store_is_named(path: Path, what: str) -> None:
    if what == "garbage":
        path.write_bytes(b"garbage" * 1000)
    elif what == "database":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (x)")
        connection.close()
    else:
        path.mkdir()
    with pytest.raises(StoreError, match=str(path)):
        known(path)


@pytest.mark.forks
def test_a_store_in_a_directory_that_cannot_be_written_is_read(path: Path) -> None:
    with public_directory() as directory:
        tune(graph_of(), Fake(TIMES), directory / "tune.db")
        (directory / "tune.db").chmod(0o444)
        directory.chmod(0o555)
        found = in_child(lambda: len(Snapshot(directory / "tune.db").of(signature_of().key)), user=NOBODY)
        assert sorted(directory.iterdir()) == [directory / "tune.db"]
        directory.chmod(0o755)
    assert found == 1


@pytest.mark.forks
def test_a_store_that_may_not_be_read_is_named(path: Path) -> None:
    with public_directory() as directory:
        tune(graph_of(), Fake(TIMES), directory / "tune.db")
        (directory / "tune.db").chmod(0o000)
        found = in_child(lambda: len(Snapshot(directory / "tune.db").of(signature_of().key)), user=NOBODY)
    assert found[0] == "StoreError"
    assert str(directory) in found[1]


def test_records_that_make_no_sense_are_left_out(path: Path) -> None:
    tune(graph_of(), Fake(TIMES), path)
    for config in ("{}", '{"places":[0],"winner":7,"ties":[],"rtol":0,"complete":true,"checked":[]}', "[]"):
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE candidate SET config = ?", (config,))
        connection.close()
        assert known(path).record is None


def test_what_was_checked_before_still_counts(path: Path) -> None:
    fake = Fake(TIMES)
    tune(graph_of(1.0), fake, path)
    tune(graph_of(2.0), fake, path)
    assert len(fake.measured) == 2
    tune(graph_of(2.0, 1.0), fake, path)
    assert len(fake.measured) == 2


def test_what_was_checked_before_does_not_count_for_what_was_wrong_then(path: Path) -> None:
    fake = Fake({**TIMES, "at_once": "wrong_result"})
    tune(graph_of(1.0), fake, path)
    fake.known = dict(TIMES)
    tune(graph_of(2.0), fake, path)
    fake.measured.clear()
    tune(graph_of(1.0, 2.0), fake, path)
    assert fake.measured == ["relax"]


def test_tolerances(path: Path) -> None:
    fake = Fake(TIMES)
    tune(graph_of(), fake, path, rtol=0.0)
    tune(graph_of(), fake, path, rtol=1e-6)  # something is wrong without tolerance, so it is asked again
    assert len(fake.measured) == 2
    for rtol in (1e-6, 0.0, 1e-6):
        tune(graph_of(), fake, path, rtol=rtol)
        record = known(path).record
        assert record is not None
        assert record.rtol == rtol  # compile goes by what was asked for last
    assert len(fake.measured) == 2


def test_what_is_right_without_tolerance_is_right_with_one(path: Path) -> None:
    fake = Fake()
    tune(graph_of(), fake, path, rtol=0.0)
    tune(graph_of(), fake, path, rtol=1e-6)
    assert len(fake.measured) == 1
    tune(graph_of(size=9), fake, path, rtol=1e-6)
    tune(graph_of(size=9), fake, path, rtol=0.0)
    assert len(fake.measured) == 3
