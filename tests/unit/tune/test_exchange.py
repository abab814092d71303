"""Attempts as JSON Lines: out of a store and into another, nothing lost, nothing doubled."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.tune.leases.device import Device
from ostinato.tune.store.exchange import export, load
from ostinato.tune.store.store import Store, StoredAttempt
from tune.storing import candidate, outcome, search

TEXTS = st.text(max_size=5) | st.sampled_from(["it's", 'a"b', "\0", "\n\r\u2028", "\U0001f3bc", "\ud800"])
OUTCOMES = st.builds(
    StoredAttempt,
    op=TEXTS,
    status=st.sampled_from(list(ost.Status)),
    samples=st.lists(st.floats(0, allow_nan=False, allow_infinity=False), max_size=4).map(tuple),
    workspace=st.integers(0, 2**63 - 1),
    message=TEXTS,
    contended=st.integers(0, 9),
    overhead_ns=st.floats(0, 1e6),
).filter(lambda found: found.samples or found.status != "raced")
RUNS = st.tuples(
    TEXTS,
    st.dictionaries(TEXTS, st.integers() | TEXTS | st.none(), max_size=2),
    TEXTS,
    st.sampled_from(["screen", "final"]),
    st.lists(OUTCOMES, min_size=1, max_size=3),
    st.none() | st.floats(0.1, 10),
)


def fill(path: Path | str, *tiles: object) -> None:
    with Store(path) as store, search(store) as now:
        for tile in tiles:
            now.add(candidate(tile), "s", "sim:a", [outcome("a"), outcome("b", samples=[0.1])])


def attempts(path: Path | str) -> list[dict[str, Any]]:
    with Store(path) as store:
        return list(store.attempts())


@settings(max_examples=25)
@given(st.lists(RUNS, max_size=4))
def test_what_is_loaded_is_what_was_exported(runs: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        one, file, other, again = (f"{directory}/{name}" for name in ("one.db", "a.jsonl", "other.db", "b.jsonl"))
        with Store(one) as store:
            for op, key, model, phase, outcomes, timeout in runs:
                device = Device(name=model, kind="sim", identities=(), model=model)
                with search(store, op, key, devices=[device]) as now:
                    now.add(candidate(op), "s", model, outcomes, phase, timeout=timeout)
        count = sum(len(outcomes) for *_, outcomes, _ in runs)
        assert export(one, file) == count
        assert [load(file, other), load(file, other)] == [count, 0]
        assert attempts(other) == attempts(one)
        assert export(other, again) == count
        assert Path(again).read_bytes() == Path(file).read_bytes()
        with Store(one) as first, Store(other) as second:
            for op, key, model, _, _, timeout in runs:
                device = Device(name=model, kind="sim", identities=(), model=model)
                answers = [
                    search(store, op, key, devices=[device]).find(
                        candidate(op).id, candidate(op).config, "s", timeout=timeout
                    )
                    for store in (first, second)
                ]
                assert answers[0] == answers[1]


def test_every_line_is_json_with_the_names_of_attempts(tmp_path: Path) -> None:
    fill(tmp_path / "tune.db", 1)
    export(tmp_path / "tune.db", tmp_path / "tune.jsonl")
    header, *lines = (tmp_path / "tune.jsonl").read_text(encoding="ascii").splitlines()
    assert json.loads(header) == {"format": "ostinato attempts", "v": 1}
    assert [json.loads(line) for line in lines] == attempts(tmp_path / "tune.db")


def test_stores_of_several_hosts_are_merged_and_the_latest_run_answers(tmp_path: Path) -> None:
    for name, sample in (("first", 3.0), ("second", 2.0)):
        with Store(tmp_path / f"{name}.db") as store, search(store) as now:
            now.add(candidate(1), "s", "sim:a", [outcome(samples=[sample])])
        export(tmp_path / f"{name}.db", tmp_path / f"{name}.jsonl")
    for order in (("first", "second"), ("second", "first")):
        merged = tmp_path / f"{order[0]}-{order[1]}.db"
        assert [load(tmp_path / f"{name}.jsonl", merged) for name in order] == [1, 1]
        with Store(merged) as store:
            found, _ = search(store).find(candidate(1).id, candidate(1).config, "s")
        assert found is not None
        assert found[0].samples == (2.0,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": None}, "'op' must be of type str, got None"),
        ({"run": True}, "'run' must be of type int, got True"),
        ({"run": 2**63}, "'run' must be from 0 to 9223372036854775807, got 9223372036854775808"),
        ({"workspace": -1}, "'workspace' must be .*, got -1"),
        ({"samples": [1, "2"]}, "'samples' must hold numbers"),
        ({"samples": [10**400]}, "too large"),
        ({"samples": [1.0, -1.0]}, "a time is negative or not finite"),
        ({"status": "fine"}, "'fine' is not a valid Status"),
        ({"allowed": -(10**400)}, "too large"),
        ({"time": "today"}, "'time' must be of type int or float, got 'today'"),
        ({"source": "\ud800"}, "'source' must be ASCII, got"),
        ({"config": []}, r"'config' must be of type dict, got \[\]"),
    ],
)
def test_a_wrong_attempt_is_named_by_its_line_and_nothing_is_added(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    fill(tmp_path / "tune.db", 1)
    export(tmp_path / "tune.db", tmp_path / "tune.jsonl")
    header, first, second = (tmp_path / "tune.jsonl").read_text().splitlines()
    (tmp_path / "tune.jsonl").write_text("\n".join([header, first, json.dumps({**json.loads(second), **change})]))
    with pytest.raises(ost.TuningError, match=rf"tune\.jsonl, line 3: .*{said}"):
        load(tmp_path / "tune.jsonl", tmp_path / "other.db")
    assert attempts(tmp_path / "other.db") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{}\n", r"line 1: it must begin with .*, got \{\}"),
        ('{"format": "ostinato attempts", "v": 2}\n', "line 1: it must begin with"),
        ('{"format": "ostinato attempts", "v": 1}\n[]\n', "line 2: an attempt must be an object"),
        ('{"format": "ostinato attempts", "v": 1}\n{}\n', "line 2: 'operation' is missing"),
        ('{"format": "ostinato attempts", "v": 1}\n{"operation"', "line 2: "),
        ('{"format": "ostinato attempts", "v": 1}\n' + "[" * 100_000, "line 2: "),
        ("\xff\xfe", "line 1: "),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tune.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(ost.TuningError, match=said):
        load(tmp_path / "tune.jsonl", tmp_path / "other.db")


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ost.TuningError, match=r"there is no store .*tune\.db"):
        export(tmp_path / "tune.db", tmp_path / "tune.jsonl")
    assert os.listdir(tmp_path) == []


def test_an_export_that_fails_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "tune.db", *range(300))
    (tmp_path / "tune.jsonl").write_text("earlier")
    attempts = Store.attempts

    def broken(store: Store) -> Iterator[dict[str, Any]]:
        yield from itertools.islice(attempts(store), 200)
        raise OSError("broken")

    monkeypatch.setattr(Store, "attempts", broken)
    with pytest.raises(OSError, match="broken"):
        export(tmp_path / "tune.db", tmp_path / "tune.jsonl")
    assert (tmp_path / "tune.jsonl").read_text() == "earlier"
    assert sorted(os.listdir(tmp_path)) == ["tune.db", "tune.jsonl"]


def test_files_of_the_user_beside_the_export_stay(tmp_path: Path) -> None:
    fill(tmp_path / "tune.db", 1)
    beside = tmp_path / f"tune.jsonl.{os.getpid()}.partial"
    beside.write_text("a user's")
    export(tmp_path / "tune.db", tmp_path / "tune.jsonl")
    assert beside.read_text() == "a user's"
