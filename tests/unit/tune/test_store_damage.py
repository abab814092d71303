"""Rows that are damaged, or that somebody else wrote: each is a miss that is named once, and costs nothing else."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ostinato as ost
from ostinato.tune.store import database as damage
from ostinato.tune.store.exchange import export, load
from ostinato.tune.store.store import Store
from tune.storing import candidate, outcome, search

MORE = int(os.environ.get("OSTINATO_MORE_EXAMPLES", "1"))

COLUMNS = {
    "context": ["operation", "key", "device", "driver", "versions", "policy"],
    "candidate": ["candidate", "source", "config", "description"],
    "attempt": [
        *("context", "candidate", "run", "phase", "device", "host", "time", "op", "status", "samples", "workspace"),
        *("message", "contended", "overhead", "allowed"),
    ],
    "verdict": ["runs", "verdict", "time"],
}

LINKS = ("context.", "attempt.context", "attempt.candidate", "attempt.run", "attempt.phase", "attempt.op ")

NAN = b"\x00\x00\x00\x00\x00\x00\xf8\x7f"
VALUES: list[Any] = [
    None,
    *(0, 1, -1, 2**62, -(2**63), 0.5, -1.0, float("inf"), float("-inf"), 1e300),
    *("", "x", '"x"', "[]", "{}", "null", "3", "[1", "[" * 100_000, "9" * 5000, '"\\ud800"', "\x00", "\udc80"),
    *(
        '{"a":1}',
        '[["a","b"]]',
        '[["a"],["b"]]',
        '[[["a"],"b"]]',
        "[3]",
        "NaN",
        '"ok"',
        "ok",
        "raced",
        "screen",
        "crash",
    ),
    *(b"", b"\xff", b"12345678", b"1234567", NAN, NAN * 2, b"\xff" * 8, b"\xff" * 4096, b'"x"', b"\xff\xfe\x00"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tune.db"


def damaged(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement, values)


def writable(value: Any) -> tuple[str, Any]:
    """SQL, and a value for it: texts that are no texts are cast from bytes."""
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return "CAST(? AS TEXT)", value.encode("utf-8", "surrogateescape")
    return "?", value


def command(number: int) -> ost.Candidate:
    return ost.Candidate.command(
        ["sh", "-c", f"echo OP:a,TIME:{number},WS:{number}; echo OP:b,TIME:9{number},WS:1"], {"n": number}
    )


def tune(path: Path, count: int = 3) -> ost.Report:
    policy = ost.Policy(cache="warm", rel_ci=0.5, min_samples=3, max_seconds=0.05)
    with ost.Tuner(["sim:a"], store=path, policy=policy, progress=False, timeout=20) as tuner:
        return tuner.tune("op", [command(number) for number in range(1, count + 1)])


def check(report: ost.Report, *, whole: bool = True) -> None:
    """Every candidate has a good result, whatever the store said; of every op if the runs are `whole`."""
    found = {(result.candidate.config["n"], result.op): result for result in report.results}
    for result in found.values():
        assert result.status in ("ok", "raced"), result
        assert result.samples
    assert report.best is not None
    assert {number for number, _ in found} == {1, 2, 3}
    assert not whole or [*found] == [(number, op) for number in (1, 2, 3) for op in "ab"]


def write_one_of(path: Path, rng: random.Random) -> str:
    """Damage something; return what."""
    table = rng.choice([*COLUMNS, "attempt"])
    column = rng.choice(COLUMNS[table])
    sql, value = writable(rng.choice(VALUES))
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        place = rng.randrange(max(count, 1))
        key = "runs" if table == "verdict" else "id"
        said = f"{table}.{column} of row {place} = {value!r}"[:200]
        try:
            with connection:
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table'")
            connection.execute("PRAGMA writable_schema = RESET")
        except sqlite3.Error:
            pass
        try:
            with connection:
                connection.execute(
                    f"UPDATE {table} SET {column} = {sql}"
                    f" WHERE {key} = (SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {place})",
                    (value,),
                )
        except sqlite3.Error as error:
            return f"{said}: {error}"
    return said


def test_whatever_a_row_holds_a_search_ends_and_is_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = tmp_path / "whole.db"
    check(tune(whole))
    with Store(whole) as store:
        count = len(list(store.attempts()))
    rng = random.Random(os.urandom(8))
    end = time.monotonic() + 600 * MORE
    for number in range(12 * MORE):
        path = tmp_path / f"{number}.db"
        path.write_bytes(whole.read_bytes())
        done = [write_one_of(path, rng) for _ in range(rng.choice([1, 1, 3]))]
        # Which rows belong together nothing else says: a run that has lost one answers with the others.
        whole_runs = not any(link in each for each in done for link in LINKS)
        try:
            check(tune(path), whole=whole_runs)
            lines = tmp_path / f"{number}.jsonl"
            export(path, lines)
            load(lines, tmp_path / f"{number}.loaded.db")
            check(tune(path), whole=whole_runs)
            with Store(path) as store:
                assert len(list(store.attempts())) >= count - 2 * 3 * len(done)
        except BaseException:
            print(done)
            raise
        path.unlink()
        assert time.monotonic() < end


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("op", b"\xff\xfe"),
        ("op", "[["),
        ("op", "3"),
        ("status", "superb"),
        ("samples", b"1234567"),
        ("samples", NAN),
        ("samples", "text"),
        ("message", b"\xff"),
        ("workspace", "much"),
        ("contended", -1),
        ("overhead", "x"),
        ("time", "x"),
        ("time", float("inf")),
        ("device", b"\xff"),
        ("allowed", "x"),
        ("run", "x"),
    ],
)
def test_a_damaged_row_is_a_miss_that_is_named_once(
    path: Path, caplog: pytest.LogCaptureFixture, column: str, value: object
) -> None:
    with Store(path) as store, search(store) as now:
        for tile in (1, 2):
            now.add(candidate(tile), "s", "sim:a", [outcome()])
    damaged(path, f"UPDATE attempt SET {column} = ? WHERE id = 1", value)
    with caplog.at_level(logging.WARNING, logger="ostinato"), Store(path) as store:
        for _ in range(2):
            found = [search(store).find(candidate(tile).id, candidate(tile).config, "s")[0] for tile in (1, 2)]
            assert [attempts is not None for attempts in found] == [False, True]
        assert [attempt["config"] for attempt in store.attempts()] == [{"tile": 2}]
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    with Store(path) as store:
        with search(store) as now:
            now.add(candidate(1), "s", "sim:a", [outcome(samples=[7.0])])
        found, _ = search(store).find(candidate(1).id, candidate(1).config, "s")
        assert found is not None
        assert found[0].samples == (7.0,)


def test_a_warning_about_a_damaged_row_can_be_written_to_any_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(path) as store, search(store) as now:
        now.add(candidate(1), "s", "sim:a", [outcome()])
    damaged(path, "UPDATE attempt SET run = CAST(? AS TEXT)", b"\x80")
    with Store(path) as store:
        assert search(store).find(candidate(1).id, candidate(1).config, "s")[0] is None
    (record,) = caplog.records
    assert "\\udc80" in record.getMessage().encode().decode()


@pytest.mark.parametrize("column", ["samples", "message"])
def test_a_huge_value_is_not_read(path: Path, column: str, caplog: pytest.LogCaptureFixture) -> None:
    with Store(path) as store, search(store) as now:
        now.add(candidate(), "s", "sim:a", [outcome()])
    damaged(path, f"UPDATE attempt SET {column} = zeroblob(100000000)")
    begin = time.process_time()
    with Store(path) as store:
        assert search(store).find(candidate().id, candidate().config, "s") == (None, None)
        assert list(store.attempts()) == []
    assert time.process_time() - begin < 1
    assert "damaged" in caplog.text


def test_a_run_of_two_candidates_is_nobodys(path: Path) -> None:
    with Store(path) as store, search(store) as now:
        for tile in (1, 2):
            now.add(candidate(tile), "s", "sim:a", [outcome()])
    damaged(path, "UPDATE attempt SET run = 5")
    with Store(path) as store:
        for tile in (1, 2):
            assert search(store).find(candidate(tile).id, candidate(tile).config, "s")[0] is None


@pytest.mark.parametrize(
    "verdict", ["[[", b"\xff", None, "3", "[]", '[["a","b"]]', "[[1,2]]", "[3]", '{"a":1}', "[[[],[]]]"]
)
def test_a_verdict_over_other_results_is_none(path: Path, verdict: object) -> None:
    check(tune(path))
    damaged(path, "UPDATE verdict SET verdict = coalesce(?, verdict)", verdict)
    report = tune(path)
    check(report)
    assert report.best is not None
    assert report.best.candidate.config == {"n": 1}


def test_many_damaged_rows_are_not_named_one_by_one(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(path) as store, search(store) as now:
        for tile in range(100):
            now.add(candidate(tile), "s", "sim:a", [outcome()])
    damaged(path, "UPDATE attempt SET samples = 'none'")
    with Store(path) as store:
        assert list(store.attempts()) == []
    assert len(caplog.records) == damage._MANY + 1
