"""Interrupts at the worst moments: nothing is closed twice, nothing is held for ever, and the tuner goes on."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.candidate import Call, Candidate
from ostinato.tune.leases import lock_file
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease
from ostinato.tune.progress import Progress
from ostinato.tune.store import database
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.reaper import Reaper
from ostinato.tune.workers.scratch import Scratch


class Impatient(sqlite3.Connection):
    """Its user loses patience while a transaction waits for its begin."""

    interrupts = True

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
        cursor = super().execute(sql, *values)  # type: ignore[arg-type]
        if self.interrupts and sql.startswith("BEGIN"):
            raise KeyboardInterrupt
        return cursor


def test_a_transaction_that_begins_while_it_is_interrupted_is_rolled_back(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", factory=Impatient, isolation_level=None)
    with pytest.raises(KeyboardInterrupt), database.Transaction(connection, 1):
        pass
    assert not connection.in_transaction
    connection.close()


def test_a_transaction_that_was_left_open_does_not_bar_the_next(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with database.Transaction(connection, 1):
        connection.execute("CREATE TABLE written (number)")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("written",)]
    connection.close()


def test_a_lease_whose_release_was_interrupted_is_released_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = devices("sim:interrupted")
    lease, truncate = Lease(device), os.ftruncate
    lease.acquire()

    def interrupted(file: int, length: int) -> None:
        truncate(file, length)
        raise KeyboardInterrupt

    monkeypatch.setattr(lock_file.os, "ftruncate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    monkeypatch.undo()
    lease.release()
    with Lease(device):
        pass


def test_scratch_directories_whose_removal_was_interrupted_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, **_: object) -> None:
        raise KeyboardInterrupt

    scratch = Scratch()
    left = Path(scratch.directory("a"))
    monkeypatch.setattr("ostinato.tune.workers.scratch.shutil.rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scratch.remove()
    monkeypatch.undo()
    assert left.exists()
    another = Scratch()
    another.directory("a")
    another.remove()
    assert not left.exists()


def test_a_loop_forgets_everything() -> None:
    loop, (ours, theirs) = Loop(), os.pipe()
    called: list[str] = []
    loop.watch(ours, lambda: called.append("watched"))
    loop.at(loop.now(), lambda: called.append("timer"))
    loop.before_waiting(lambda: called.append("before"))
    os.write(theirs, b"x")
    loop.clear()
    loop.turn(0.0)
    assert called == []
    loop.watch(ours, lambda: called.append("watched again"))
    loop.turn(1.0)
    assert called == ["watched again"]
    loop.close()
    os.close(ours)
    os.close(theirs)


class Interrupts(Progress):
    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        if isinstance(candidate, Call) and candidate.config.get("number") == 2:
            raise KeyboardInterrupt


def test_a_second_interrupt_while_a_search_is_being_ended_costs_the_next_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Reaper.close
    closed: list[Reaper] = []

    def impatient(self: Reaper, timeout: float = 10) -> None:
        closed.append(self)
        if len(closed) == 1:
            raise KeyboardInterrupt
        real(self, timeout)

    monkeypatch.setattr(Reaper, "close", impatient)
    candidates = [ost.Candidate.call("tune.candidates:null", {"number": number}) for number in range(4)]
    with ost.Tuner(["sim:a", "sim:b"], store=tmp_path / "db", progress=Interrupts()) as tuner:
        with pytest.raises(KeyboardInterrupt):
            tuner.tune("op", candidates)
        report = tuner.tune("op", [candidates[0], candidates[1], candidates[3]])
    assert {result.status for result in report.results} <= {"ok", "raced"}
    assert closed[0] in closed[1:]
