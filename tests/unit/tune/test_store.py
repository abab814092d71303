"""The store: what is put in is found again, by exactly what it depends on."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.tune.candidate import canonical
from ostinato.tune.leases.device import Device
from ostinato.tune.store import store as store_module
from ostinato.tune.store.key import miss
from ostinato.tune.store.store import Search, Store, StoredAttempt, StoreError
from tune.storing import DEVICE, POLICY, candidate, outcome, search


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tune.db"


def add(store: Store, *outcomes: StoredAttempt, tile: object = 1, source: str = "s", **where: Any) -> None:
    with search(store, **where) as now:
        now.add(candidate(tile), source, "sim:a", outcomes or [outcome()])


def find(
    store: Store, tile: object = 1, source: str = "s", **where: Any
) -> tuple[list[StoredAttempt] | None, str | None]:
    sought = candidate(tile)
    return search(store, **where).find(sought.id, sought.config, source)


def test_everything_of_an_attempt_comes_back(path: Path) -> None:
    attempts = [
        outcome("gemm", "ok", [0.1, 1e300, 5e-324], workspace=2**40, contended=2),
        outcome("conv", "crash", [], message="killed by SIGSEGV"),
    ]
    with Store(path) as store:
        add(store, *attempts)
    with Store(path) as store:
        found, missed = find(store)
    assert (found, missed) == ([replace(attempt, device="sim:a") for attempt in attempts], None)


def test_what_reached_no_device_is_kept_without_one(path: Path) -> None:
    with Store(path) as store:
        with search(store) as now:
            now.add(candidate(), "s", None, [outcome(status="compile_error", message="no such header")])
        found, _ = find(store)
    assert found is not None
    assert found[0].device is None
    assert found[0].message == "no such header"


def test_the_latest_run_wins_and_the_older_is_kept(path: Path) -> None:
    """C3: the ancestor kept the first value for ever, and no duration."""
    with Store(path) as store:
        add(store, outcome(samples=[2.0]))
        add(store, outcome(samples=[1.0]))
        found, _ = find(store)
        assert found is not None
        assert found[0].samples == (1.0,)
        assert [attempt["samples"] for attempt in store.attempts()] == [[2.0], [1.0]]


@pytest.mark.parametrize("status", list(ost.Status))
def test_failures_of_its_own_doing_are_found_and_others_tried_again(path: Path, status: ost.Status) -> None:
    with Store(path) as store:
        add(store, outcome(status=status))
        found, missed = find(store)
    again = status in ("contended", "device_lost", "cancelled")
    assert (found is None, missed) == (again, None)


def test_a_run_answers_only_if_all_its_ops_do_and_an_earlier_one_may(path: Path) -> None:
    with Store(path) as store:
        add(store, outcome("a"), outcome("b", "contended"))
        assert find(store) == (None, None)
        add(store, outcome("a", samples=[7.0]))
        add(store, outcome("a"), outcome("b", "device_lost"))
        found, _ = find(store)
    assert found is not None
    assert [attempt.samples for attempt in found] == [(7.0,)]


@pytest.mark.parametrize(
    ("status", "stored", "asked", "missed"),
    [
        ("hang_killed", {"timeout": 1.0}, {"timeout": 1.0}, None),
        ("hang_killed", {"timeout": 1.0}, {"timeout": 0.5}, None),
        ("hang_killed", {"timeout": 1.0}, {"timeout": 30.0}, "timeout"),
        ("hang_killed", {"timeout": 1.0}, {}, "timeout"),
        ("hang_killed", {}, {"timeout": 30.0}, None),
        ("compile_timeout", {"timeout": 1.0}, {"timeout": 2.0}, "timeout"),
        ("oom", {"timeout": 1.0, "memory": 100}, {"timeout": 2.0, "memory": 100}, None),
        ("oom", {"timeout": 1.0, "memory": 100}, {"timeout": 1.0, "memory": 101}, "memory"),
        ("oom", {"timeout": 1.0}, {"timeout": 1.0, "memory": 101}, None),
        ("crash", {"timeout": 1.0, "memory": 100}, {"timeout": 2.0, "memory": 200}, None),
    ],
)
def test_a_run_that_ended_at_a_limit_says_nothing_for_a_larger_one(
    path: Path, status: str, stored: dict[str, Any], asked: dict[str, Any], missed: str | None
) -> None:
    with Store(path) as store:
        with search(store) as now:
            now.add(candidate(), "s", "sim:a", [outcome(status=status)], **stored)
        found, said = search(store).find(candidate().id, candidate().config, "s", **asked)
        assert (found is None, said) == (missed is not None, missed)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"source": "other"}, "source"),
        ({"key": {"n": 513}}, "key"),
        ({"policy": {"cache": "cold"}}, "policy"),
        ({"versions": {"python": "4"}}, "versions"),
        ({"devices": [Device(name="sim:a", kind="sim", identities=(), model="other", driver="1")]}, "device"),
        ({"devices": [Device(name="sim:a", kind="sim", identities=(), model="simulated", driver="2")]}, "driver"),
        ({"tile": 2}, None),
        ({"op": "conv"}, None),
    ],
)
def test_each_field_is_missed_by_its_name(path: Path, change: dict[str, Any], missed: str | None) -> None:
    """C1: the ancestor's key knew the family of the device, and nothing else of where a result came from."""
    with Store(path) as store:
        add(store)
        assert find(store, **change) == (None, missed)
        assert find(store)[0] is not None


def test_another_command_of_the_same_configuration_is_a_miss_of_source(path: Path) -> None:
    with Store(path) as store:
        add(store)
        other = candidate(factory="module:other")
        assert search(store).find(other.id, other.config, "s") == (None, "source")


def test_any_device_of_a_search_answers(path: Path) -> None:
    other = Device(name="sim:b", kind="sim", identities=("sim:b",), model="other")
    with Store(path) as store:
        add(store)
        found, _ = find(store, devices=[other, DEVICE])
        assert found is not None
        assert found[0].device == "sim:a"
        assert find(store, devices=[other]) == (None, "device")


def test_finals_and_anchors_are_kept_but_not_found(path: Path) -> None:
    with Store(path) as store:
        with search(store) as now:
            now.add(candidate(), "s", "sim:a", [outcome()], "final")
            now.add(candidate(), "s", "sim:a", [outcome()], "anchor")
            assert now.find(candidate().id, candidate().config, "s") == (None, None)
        assert find(store) == (None, None)
        assert [attempt["phase"] for attempt in store.attempts()] == ["final", "anchor"]


def test_runs_stay_with_their_candidates_over_commits_and_searches(path: Path) -> None:
    with Store(path) as store:
        for now in (search(store), search(store)):
            for tiles in ([1, 2], [2, 3], [3, 1, 4]):
                for tile in tiles:
                    now.add(candidate(tile, f"module:f{tile // 3}"), "s", "sim:a", [outcome(samples=[tile])])
                now.commit()
        attempts = list(store.attempts())
    assert len(attempts) == 14
    for attempt in attempts:
        (sample,) = attempt["samples"]
        assert attempt["config"]["tile"] == sample
        assert attempt["description"]["factory"] == f"module:f{sample // 3:.0f}"


class Stored(NamedTuple):
    tile: int
    source: str
    key: int
    policy: int
    model: int
    statuses: tuple[str, ...]


STORED = st.builds(
    Stored,
    tile=st.integers(1, 2),
    source=st.sampled_from("st"),
    key=st.integers(1, 2),
    policy=st.integers(1, 2),
    model=st.integers(1, 2),
    statuses=st.lists(st.sampled_from(["ok", "crash", "contended"]), min_size=1, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(history=st.lists(STORED, max_size=8), asked=st.lists(STORED, min_size=1, max_size=8))
def test_a_store_answers_like_a_list_of_all_attempts(history: list[Stored], asked: list[Stored]) -> None:
    def view(store: Store, one: Stored) -> Search:
        device = Device(name="sim:a", kind="sim", identities=(), model=f"model {one.model}")
        return search(store, key={"n": one.key}, policy={"p": one.policy}, devices=[device])

    with tempfile.TemporaryDirectory() as directory, Store(f"{directory}/tune.db") as store:
        for number, one in enumerate(history):
            with view(store, one) as now:
                outcomes = [outcome(f"op {index}", status, [number]) for index, status in enumerate(one.statuses)]
                now.add(candidate(one.tile), one.source, "sim:a", outcomes)
        for one in asked:
            sought = candidate(one.tile)
            answers = [
                number
                for number, other in enumerate(history)
                if other[:5] == one[:5] and "contended" not in other.statuses
            ]
            found, missed = view(store, one).find(sought.id, sought.config, one.source)
            if answers:
                assert found is not None
                assert missed is None
                assert [attempt.samples for attempt in found] == [(answers[-1],)] * len(history[answers[-1]].statuses)
            else:
                names = ("source", "key", "policy", "device")
                differences = [
                    frozenset(name for name, a, b in zip(names, other[1:5], one[1:5], strict=True) if a != b)
                    for other in history
                    if other.tile == one.tile
                ]
                assert (found, missed) == (None, miss(differences))


HOSTILE = ["it's", 'a"b', "a\0b", "\0", "\U0001f3bc", "\ud800", "'; DROP TABLE attempt; --", "%s{x}?:1"]
TEXTS = st.text(max_size=5) | st.sampled_from(HOSTILE)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=30)
@given(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=3), VALUES, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
def test_any_text_survives(
    op: str, key: dict[str, Any], tile: Any, source: str, reported: str, message: str, model: str, name: str
) -> None:
    """C4: a quote in a key of the ancestor's was a syntax error."""
    device = Device(name=name, kind="sim", identities=(), model=model)
    expected = outcome(reported, message=message, device=name)
    source = source.encode().hex() if source.isascii() else "0"  # a digest
    with tempfile.TemporaryDirectory() as directory, Store(f"{directory}/tune.db") as store:
        with search(store, op, key, devices=[device]) as now:
            now.add(candidate(tile), source, name, [expected])
        found, missed = search(store, op, key, devices=[device]).find(
            candidate(tile).id, candidate(tile).config, source
        )
        assert (found, missed) == ([expected], None)
        (attempt,) = store.attempts(op)
        texts = [
            attempt[field] for field in ("operation", "key", "config", "model", "device", "op", "message", "source")
        ]
        assert canonical(texts) == canonical([op, key, {"tile": tile}, model, name, reported, message, source])


def test_attempts_are_plain_dicts_of_all_that_is_known(path: Path) -> None:
    """C6: the ancestor kept winners only."""
    with Store(path) as store:
        add(store, outcome("a"), outcome("b", "crash", []))
        add(store, op="conv")
        attempts = list(store.attempts())
        assert json.loads(json.dumps(attempts)) == attempts
        assert [attempt["op"] for attempt in attempts] == ["a", "b", "matmul"]
        assert attempts[0]["run"] == attempts[1]["run"] != attempts[2]["run"]
        assert list(store.attempts("conv")) == attempts[2:]
        assert list(store.attempts("no such op")) == []
    first = attempts[0]
    assert {name: first[name] for name in ("operation", "key", "model", "driver", "policy", "config", "candidate")} == {
        "operation": "matmul",
        "key": {"n": 512},
        "model": "simulated",
        "driver": "1",
        "policy": POLICY,
        "config": {"tile": 1},
        "candidate": candidate().id,
    }
    assert first["host"] == os.uname().nodename
    assert first["description"]["factory"] == "module:factory"


def test_attempts_are_read_while_others_write(path: Path) -> None:
    with Store(path) as store:
        for tile in range(3):
            add(store, tile=tile)
        reading = store.attempts()
        next(reading)
        add(store, tile=3)
        assert len(list(reading)) == 2  # as it was when the reading began
        assert len(list(store.attempts())) == 4


def test_a_verdict_holds_for_exactly_the_runs_that_were_seen(path: Path) -> None:
    def seen(tiles: range) -> Search:
        view = search(store)
        for tile in tiles:
            view.find(candidate(tile).id, candidate(tile).config, "s")
        return view

    with Store(path) as store:
        with search(store) as now:
            for tile in range(3):
                now.add(candidate(tile), "s", "sim:a", [outcome()])
            assert now.verdict("default") is None
            now.set_verdict({"best": 2}, "default")
        assert seen(range(3)).verdict("default") == {"best": 2}
        assert seen(range(2)).verdict("default") is None
        assert seen(range(3)).verdict("another default") is None
        with seen(range(3)) as now:
            now.set_verdict({"best": 1}, "default")
        assert seen(range(3)).verdict("default") == {"best": 1}
        add(store, tile=1)
        assert seen(range(3)).verdict("default") is None


def test_a_verdict_that_was_not_committed_is_none(path: Path) -> None:
    with Store(path) as store:
        search(store).set_verdict({"best": 2})
        assert search(store).verdict() is None


def test_nothing_is_there_before_it_is_committed_and_all_after(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        now = search(store)
        now.add(candidate(), "s", "sim:a", [outcome()])
        assert list(other.attempts()) == []
        assert now.commit()
        assert now.commit()  # nothing to do
        assert len(list(other.attempts())) == 1


def test_while_another_process_writes_a_commit_keeps_what_it_has(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: the ancestor's writers failed with "database is locked"."""
    monkeypatch.setattr(store_module, "_AT_LEAST", 0.05)
    with Store(path) as store:
        now = search(store)
        now.add(candidate(), "s", "sim:a", [outcome()])
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        assert now.commit() is False
        with pytest.raises(StoreError, match="in use by another process"):
            now.close()
        writer.execute("COMMIT")
        writer.close()
        now.add(candidate(2), "s", "sim:a", [outcome()])
        now.close()
        assert [attempt["config"]["tile"] for attempt in store.attempts()] == [1, 2]


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_at_the_commit_neither_loses_nor_doubles(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    class Interrupted(sqlite3.Connection):
        armed = False

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql != "COMMIT" or not Interrupted.armed:
                return super().execute(sql, *parameters)
            Interrupted.armed = False
            if after:
                super().execute(sql)
            raise KeyboardInterrupt

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **how: connect(*args, **how, factory=Interrupted))
    with Store(path) as store:
        now = search(store)
        now.add(candidate(), "s", "sim:a", [outcome()])
        Interrupted.armed = True
        with pytest.raises(KeyboardInterrupt):
            now.commit()
        assert len(list(store.attempts())) == after
        now.add(candidate(), "s", "sim:a", [outcome()])
        now.close()
        assert len(list(store.attempts())) == 2


def test_threads_share_a_store(path: Path) -> None:
    failures: list[BaseException] = []

    def work(store: Store, worker: int) -> None:
        try:
            with search(store, key={"worker": worker}) as now:
                for tile in range(50):
                    now.add(candidate(tile), "s", "sim:a", [outcome()])
                    now.commit()
        except BaseException as error:
            failures.append(error)

    with Store(path) as store:
        threads = [threading.Thread(target=work, args=(store, worker)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        found = [(attempt["key"]["worker"], attempt["config"]["tile"]) for attempt in store.attempts()]
        assert sorted(found) == [(worker, tile) for worker in range(4) for tile in range(50)]


WRITER = """if True:
    import sys
    sys.path.insert(0, sys.argv[1])
    from ostinato.tune.store.store import Store
    from tune.storing import candidate, outcome, search
    with Store(sys.argv[2]) as store:
        now = search(store)
        for number in range(100):
            now.add(candidate([int(sys.argv[3]), number]), "s", "sim:a", [outcome("a"), outcome("b")])
            now.commit(0.001)
        now.close()
"""


def test_processes_share_a_store_that_none_made_before(path: Path) -> None:
    tests = str(Path(__file__).parents[2])
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tests, path, str(writer)], stderr=subprocess.PIPE, text=True)
        for writer in range(4)
    ]
    for writer in writers:
        _, said = writer.communicate(timeout=60)
        assert writer.returncode == 0, said
    with Store(path) as store:
        runs = [(attempt["config"]["tile"], attempt["op"]) for attempt in store.attempts()]
    assert sorted(runs) == [([writer, number], op) for writer in range(4) for number in range(100) for op in "ab"]


def test_a_fork_of_the_user_cannot_use_the_store_and_does_no_harm(path: Path) -> None:
    script = """if True:
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from ostinato.tune.store.store import Store
        from tune.storing import candidate, outcome, search
        store = Store(sys.argv[2])
        now = search(store)
        now.add(candidate(1), "s", "sim:a", [outcome()])
        child = os.fork()
        if child == 0:
            for use in (now.commit, now.verdict, lambda: search(store), lambda: list(store.attempts())):
                try:
                    use()
                except RuntimeError as error:
                    assert "before a fork" in str(error)
                else:
                    raise SystemExit("no error")
            store.close()
            raise SystemExit(7)  # an end that takes everything down, the connection included
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        now.add(candidate(2), "s", "sim:a", [outcome()])
        now.close()
        print(len(list(store.attempts())))
        store.close()
    """
    # The child may not close the connection, of which Python 3.13 and later would warn.
    allowed = "ignore:unclosed database:ResourceWarning"
    command = [sys.executable, "-W", "error", "-W", allowed, "-c", script, str(Path(__file__).parents[2]), path]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (0, "2\n", "")


def test_closing_leaves_one_file_and_no_descriptor(path: Path) -> None:
    gc.collect()
    before = os.listdir("/proc/self/fd")
    with Store(path) as store:
        add(store)
        assert len(list(store.attempts())) == 1
        next(store.attempts())
    store.close()
    gc.collect()
    assert os.listdir(path.parent) == [path.name]
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(StoreError):
        search(store)


def home(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.delenv("OSTINATO_CACHE_DIR")
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the standard


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda patch, directory: patch.setenv("OSTINATO_CACHE_DIR", f"{directory}/own/place"), "own/place/tune.db"),
        (
            lambda patch, directory: (home(patch, directory), patch.setenv("XDG_CACHE_HOME", f"{directory}/xdg")),
            "xdg/ostinato/tune.db",
        ),
        (home, ".cache/ostinato/tune.db"),
    ],
)
def test_the_store_of_a_user_is_in_the_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[..., object], expected: str
) -> None:
    prepare(monkeypatch, tmp_path)
    with Store() as store:
        assert store.path == tmp_path / expected
        assert store.path.exists()


def test_a_path_is_a_file_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:x?mode=memory", "a?b#c%20 ü.db"):
        with Store(name) as store:
            add(store)
            assert len(list(store.attempts())) == 1
        assert (tmp_path / name).stat().st_size > 0
