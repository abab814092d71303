"""The file of the store: versions, foreign and damaged files, places that cannot be written, full disks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.store import database
from ostinato.tune.store.store import Store, StoreError
from tune import storing
from tune.storing import candidate, outcome, search

TESTS = str(Path(__file__).parents[2])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tune.db"


def fill(path: Path, count: int = 1) -> None:
    with Store(path) as store, search(store) as now:
        for tile in range(count):
            now.add(candidate(tile), "s", "sim:a", [outcome()])


def made_by_hand(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def run_alone(script: str, *arguments: object) -> str:
    """What a script prints that runs in a process of its own."""
    command = [sys.executable, "-W", "error", "-c", script, TESTS, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    return found.stdout


def refused(path: Path, match: str) -> None:
    """Opening the file fails, with this reason, as a `TuningError` that names it, and the file stays as it is."""
    before = path.read_bytes()
    with pytest.raises(ost.TuningError, match=match) as caught:
        Store(path)
    assert isinstance(caught.value, StoreError)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_newer_store_is_refused_naming_both_versions(path: Path) -> None:
    fill(path)
    made_by_hand(path, "PRAGMA user_version = 99")
    refused(path, rf"version 99, .* up to {len(database.STEPS)}: update Ostinato")


def test_a_store_of_version_0_is_refused(path: Path) -> None:
    made_by_hand(path, "CREATE TABLE attempt (id)", f"PRAGMA application_id = {database.APPLICATION}")
    refused(path, rf"version 0, .* versions 1 to {len(database.STEPS)}")


def test_another_database_is_refused(path: Path) -> None:
    made_by_hand(path, "CREATE TABLE attempt (id)", "INSERT INTO attempt VALUES (1)")
    refused(path, "no store of Ostinato")


@pytest.mark.parametrize("text", [b"not a database " * 1000, b"xy", b"SQLite format 3\0 but nothing more" * 100])
def test_a_file_that_is_no_database_is_refused(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    refused(path, "no store: it holds something else")


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    fill(path)


def test_an_older_store_is_migrated_and_keeps_its_attempts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 3)
    latest = len(database.STEPS)
    step = ("ALTER TABLE verdict ADD COLUMN host TEXT", "UPDATE attempt SET message = '\"migrated\"'")
    monkeypatch.setattr(database, "STEPS", (*database.STEPS, step))
    for _ in range(2):  # the second time there is nothing to do
        with Store(path) as store:
            assert [attempt["message"] for attempt in store.attempts()] == ["migrated"] * 3
    monkeypatch.undo()
    refused(path, rf"version {latest + 1}, .* up to {latest}:")


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 3)
    step = ("UPDATE attempt SET message = '\"migrated\"'", "ALTER TABLE no_such_table ADD COLUMN host TEXT")
    monkeypatch.setattr(database, "STEPS", (*database.STEPS, step))
    refused(path, "no_such_table")
    monkeypatch.undo()
    with Store(path) as store:
        assert [attempt["message"] for attempt in store.attempts()] == [""] * 3


@pytest.mark.parametrize("size", [0.3, 0.6, 0.9])
def test_a_damaged_store_says_so_and_is_left_alone(path: Path, size: float) -> None:
    fill(path, 300)
    whole = path.read_bytes()
    damaged = whole[: int(size * len(whole)) // 4096 * 4096]
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="is damaged; it was left as it is: move it away"), Store(path) as store:
        list(store.attempts())
    assert path.read_bytes() == damaged


def test_garbage_in_the_middle_is_noticed_when_it_is_read(path: Path) -> None:
    fill(path, 300)
    whole = path.read_bytes()
    damaged = whole[:8192] + b"\xa5" * (len(whole) - 8192)
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="is damaged"), Store(path) as store:
        search(store)
    assert path.read_bytes() == damaged


def test_places_where_no_file_can_be_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is a directory; name a file in it, such as .*tune\.db"):
        Store(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/tune\.db cannot be opened: its directory cannot be made .*store="):
        Store(tmp_path / "file" / "tune.db")
    with pytest.raises(StoreError, match=r"inner/tune\.db cannot be opened: its directory cannot be made .*store="):
        Store(tmp_path / "file" / "inner" / "tune.db")


def test_a_cache_directory_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "file" / "inner"))
    with pytest.raises(StoreError, match=r"cannot be made .*store=.*OSTINATO_CACHE_DIR"):
        Store()


AS_ANOTHER_USER = """if True:
    import os, sys
    sys.path.insert(0, sys.argv[1])
    from ostinato.tune.store.store import Store, StoreError
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)
    try:
        Store(sys.argv[2])
    except StoreError as error:
        print(error)
"""


def test_a_file_that_may_only_be_read_is_refused(path: Path) -> None:
    with storing.public_directory() as directory:
        fill(directory / "tune.db")
        (directory / "tune.db").chmod(0o444)
        assert "may not be written; name a file that may" in run_alone(AS_ANOTHER_USER, directory / "tune.db")


def test_a_directory_that_may_only_be_read_is_named(path: Path) -> None:
    with storing.public_directory() as directory:
        directory.chmod(0o555)
        said = run_alone(AS_ANOTHER_USER, directory / "tune.db")
        directory.chmod(0o755)
    assert f"{directory}/tune.db cannot be opened: may this user read and write" in said


def test_a_full_disk_loses_nothing_that_was_committed_and_keeps_the_rest(path: Path) -> None:
    """With a limit on the size of files in the disk's place."""
    script = """if True:
        import resource, sys
        sys.path.insert(0, sys.argv[1])
        from ostinato.tune.store.store import Store, StoreError
        from tune.storing import candidate, outcome, search
        with Store(sys.argv[2]) as store:
            now = search(store)
            now.add(candidate(0), "s", "sim:a", [outcome()])
            assert now.commit()
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limit[1]))
            for tile in range(1, 2000):
                now.add(candidate(tile), "s", "sim:a", [outcome()])
            for _ in range(2):
                try:
                    now.commit()
                except StoreError as error:
                    print(error)
            print(len(list(store.attempts())))
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            now.close()
            print(len(list(store.attempts())))
    """
    first, second, before, after = run_alone(script, path).splitlines()
    assert first == second
    assert str(path) in first
    assert "the disk is full" in first
    assert (before, after) == ("1", "2000")


def test_a_directory_that_goes_away_is_an_error_of_the_store(tmp_path: Path) -> None:
    directory = tmp_path / "short-lived"
    directory.mkdir()
    with Store(directory / "tune.db") as store:
        now = search(store)
        for name in os.listdir(directory):
            (directory / name).unlink()
        directory.rmdir()
        now.add(candidate(), "s", "sim:a", [outcome()])
        with pytest.raises(StoreError):
            list(store.attempts())
