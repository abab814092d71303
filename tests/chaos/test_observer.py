"""The observer of the chaos sees what it is there to see."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chaos import observer
from chaos.observer import Observer


class Idle:
    """A process that takes part in the chaos, and waits."""

    def __init__(self, directory: Path, life: str, *files: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"CHAOS_DIR": str(directory), "CHAOS_LIFE": life},
            pass_fds=files,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observer:
    monkeypatch.setattr(observer, "GRACE_SECONDS", 0.0)
    (tmp_path / "leases").mkdir()
    return Observer(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "tune.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE candidate (id INTEGER PRIMARY KEY, config)")
        connection.execute(
            "CREATE TABLE attempt"
            " (id INTEGER PRIMARY KEY, run, candidate, device, op, status, samples, workspace, message)"
        )
        connection.execute("""INSERT INTO candidate VALUES (1, '{"number": 7}')""")
        connection.execute("INSERT INTO attempt VALUES (1, 1, 1, 'sim:a', 'op', 'ok', x'00', 0, '')")
        yield connection


def locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def test_what_is_left_of_the_dead(watcher: Observer) -> None:
    with Idle(watcher.directory, "1"):
        watcher.look_at_processes()
        assert (watcher.faults, watcher.waiting) == ([], False)
        watcher.killed = {"0": time.monotonic(), "1": time.monotonic()}
        time.sleep(0.001)
        watcher.look_at_processes()
    assert len(watcher.faults) == 1
    assert "life 1" in watcher.faults[0]


def test_a_process_that_is_left_at_the_end(watcher: Observer, store: sqlite3.Connection) -> None:
    with Idle(watcher.directory, "1"):
        faults = watcher.end()["faults"]
    assert len(faults) == 1
    assert "orphan at the end" in faults[0]
    assert watcher.marked() == {}


def test_a_device_with_two_lock_files(watcher: Observer) -> None:
    path = watcher.leases / "sim%3Aa.lock"
    with open(locked(path)) as one, Idle(watcher.directory, "1", one.fileno()):
        watcher.look_at_locks()
        watcher.look_at_processes()
        assert (watcher.faults, watcher.counts["most devices leased at once"]) == ([], 1)
        path.unlink()
        with open(locked(path)) as other, Idle(watcher.directory, "2", other.fileno()):
            watcher.look_at_processes()
    assert len(watcher.faults) == 1
    assert "lease held twice" in watcher.faults[0]


@pytest.mark.parametrize("look", [Observer.look_at_store, Observer.look_at_copy])
@pytest.mark.parametrize("change", ["DELETE FROM attempt", "UPDATE attempt SET status = 'raced'"])
def test_rows_that_go_or_change(
    watcher: Observer, store: sqlite3.Connection, look: Callable[[Observer], None], change: str
) -> None:
    look(watcher)
    assert (watcher.faults, len(watcher.seen)) == ([], 1)
    store.execute(change)
    look(watcher)
    assert watcher.faults == ["committed and lost: row 1 (candidate and status 7 ok)"]


def test_a_kill_is_noted_with_all_that_was_committed(watcher: Observer, store: sqlite3.Connection) -> None:
    with Idle(watcher.directory, "3") as process:
        for stopped in (True, False):
            assert watcher.kill(process.pid, "3", stopped) == {"statuses": {"7": "ok"}}
        watcher.look_at_processes()
    assert (watcher.faults, watcher.waiting) == ([], False)
