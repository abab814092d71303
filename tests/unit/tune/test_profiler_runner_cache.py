"""What is remembered: the faults of the ancestor's cache, C1 to C6, by the input that provoked them."""

from __future__ import annotations

import dataclasses
import gc
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.leases.device import Device
from ostinato.tune.store.key import environment
from ostinato.tune.store.store import Store, StoredAttempt
from profilers import line, python, sh

GPU = Device(name="cuda:0", kind="cuda", identities=("GPU-1",), model="A100-SXM4-80GB", driver="550.54")
POLICY = {"cache": "warm"}
CANDIDATE = ost.Candidate.command(["./gemm", "--tile={tile}"], {"tile": 32})


def search(store: Store, device: Device = GPU, op: str = "gemm", **key: object):
    return store.search(op, key, environment([device]), POLICY)


def attempt(ms: float = 1.0, status: str = "ok", message: str = "") -> StoredAttempt:
    return StoredAttempt(op="gemm", status=ost.Status(status), samples=(ms * 1e6,), message=message)


def found(store: Store, device: Device = GPU, **key: object):
    return search(store, device, **key).find(CANDIDATE.id, CANDIDATE.config, "v1")


def logged(script: str, name: str, log: Path) -> ost.Candidate:
    """A candidate that notes each run. An argument that names a file belongs to the key, so the log is none."""
    return ost.Candidate.command(sh(f'echo "$1" >> "$LOG"; {script}', "{name}"), {"name": name}, env={"LOG": str(log)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tune.db"


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"model": "A10G"}, "device"), ({"model": "GeForce RTX 3090"}, "device"), ({"driver": "560.35"}, "driver")],
)
def test_c1_another_model_or_driver_shares_no_results(path, changed, field):
    with Store(path) as store:
        with search(store) as here:
            here.add(CANDIDATE, "v1", GPU.name, [attempt()])
        assert found(store)[0] is not None
        assert found(store, dataclasses.replace(GPU, **changed)) == (None, field)


def test_c1_other_libraries_share_no_results(path):
    there = environment([GPU])
    with Store(path) as store:
        with store.search("gemm", {}, there, POLICY) as here:
            here.add(CANDIDATE, "v1", GPU.name, [attempt()])
        upgraded = {**there, "versions": {**there["versions"], "numpy": "99.0"}}
        again = store.search("gemm", {}, upgraded, POLICY)
        assert again.find(CANDIDATE.id, CANDIDATE.config, "v1") == (None, "versions")


def test_c2_nobody_is_locked_out_between_two_results(path):
    with Store(path) as store, Store(path) as other:
        mine, theirs = search(store), search(other, n=2)
        for _ in range(3):
            mine.add(CANDIDATE, "v1", GPU.name, [attempt()])
            assert mine.commit()
            theirs.add(CANDIDATE, "v1", GPU.name, [attempt()])
            assert theirs.commit(wait=0)
        with closing(sqlite3.connect(path, timeout=0)) as foreign:  # nor is anything open now
            foreign.execute("BEGIN IMMEDIATE")


KILLED = """
import os, signal, sys
import ostinato as ost
with ost.Tuner("sim:a", store=sys.argv[1]) as tuner:
    tuner.tune("op", [ost.Candidate.command(["/bin/echo", "OP:op,TIME:{ms},WS:0"], {"ms": 2})])
    tuner.tune("op", [
        ost.Candidate.command(["/bin/echo", "OP:op,TIME:{ms},WS:0"], {"ms": 1}),
        ost.Candidate.command(["/bin/sh", "-c", "sleep 0.5; kill -KILL {pid}; sleep 600"], {"pid": os.getpid()}),
    ])
"""


def test_c2_a_kill_loses_nothing_that_was_measured(path):
    with python(KILLED, path) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, out + err
    candidates = [ost.Candidate.command(["/bin/echo", "OP:op,TIME:{ms},WS:0"], {"ms": ms}) for ms in (1, 2)]
    with ost.Tuner("sim:a", store=path) as tuner:
        report = tuner.tune("op", candidates)
    assert [result.cached for result in report.results] == [True, True]
    assert report.best is not None
    assert report.best.candidate.config == {"ms": 1}


def test_c3_a_later_result_counts_and_all_are_kept_with_their_times(path):
    with Store(path) as store:
        for ms in (9.0, 5.0):
            with search(store) as here:
                here.add(CANDIDATE, "v1", GPU.name, [attempt(ms)])
        attempts, _ = found(store)
        assert [entry.samples for entry in attempts] == [(5e6,)]
        assert [tuple(entry["samples"]) for entry in store.attempts()] == [(9e6,), (5e6,)]


@pytest.mark.parametrize(
    "text", ["it's", "'; DROP TABLE attempt; --", '"', "\\", "?", "%s", "späť\n\t", "\0", "\udcff"]
)
def test_c4_a_text_is_a_text_wherever_it_stands(path, text):
    candidate = ost.Candidate.command(["./gemm", "{exec_entry}"], {"exec_entry": text.replace("\0", "0")})
    device = dataclasses.replace(GPU, model=text)
    with Store(path) as store:
        with search(store, device, op=text, key=text) as here:
            here.add(candidate, "v1", device.name, [StoredAttempt(op=text, status=ost.Status.CRASH, message=text)])
        (entry,), miss = search(store, device, op=text, key=text).find(candidate.id, candidate.config, "v1")
        assert (entry.op, entry.message, miss) == (text, text, None)
        assert search(store, device, op=text + "x", key=text).find(candidate.id, candidate.config, "v1")[0] is None


@pytest.mark.parametrize("value", ["1", "0", "false"])
def test_c5_nothing_is_flushed_behind_ones_back(path, monkeypatch, value):
    monkeypatch.setenv("FLUSH_PROFILE_CACHE", value)
    with Store(path) as store, search(store) as here:
        here.add(CANDIDATE, "v1", GPU.name, [attempt()])
    with Store(path) as store:
        assert found(store)[0] is not None


def test_c5_a_store_that_cannot_be_opened_says_so_once(tmp_path):
    (tmp_path / "text").write_text("no store at all, but a text that somebody needs\n" * 100)
    with pytest.raises(ost.TuningError, match="text"):
        Store(tmp_path / "text")
    with pytest.raises(ost.TuningError):
        ost.Tuner("sim:a", store=tmp_path)
    gc.collect()  # finalizers that raise would be warned of, and fail
    assert (tmp_path / "text").read_text().startswith("no store")


def test_c6_losers_and_failures_are_remembered(path, tmp_path):
    log = tmp_path / "log"
    scripts = {
        "best": f"echo {line('op', 1)}",
        "loser": f"echo {line('op', 5)}",
        "crash": "kill -SEGV $$",
        "exit": "exit 3",
        "silent": "true",
        "zero": f"echo {line('op', 0)}",
    }
    candidates = [logged(script, name, log) for name, script in scripts.items()]
    with ost.Tuner("sim:a", store=path, progress=False) as tuner:
        first = tuner.tune("op", candidates)
        ran = log.read_text()
        again = tuner.tune("op", candidates[::-1])
    assert set(ran.split()) == set(scripts)
    assert log.read_text() == ran  # nothing ran again
    statuses = {result.candidate.config["name"]: str(result.status) for result in first.results}
    assert statuses == {
        "best": "ok",
        "loser": statuses["loser"],  # ok, or raced
        "crash": "crash",
        "exit": "crash",
        "silent": "bad_output",
        "zero": "bad_output",
    }
    assert statuses["loser"] in ("ok", "raced")
    assert all(result.cached for result in again.results)
    assert {result.candidate.config["name"]: str(result.status) for result in again.results} == statuses
    assert again.best is not None
    assert again.best.candidate.config == {"name": "best"}


def test_c6_new_candidates_are_ranked_with_the_old(path, tmp_path):
    old = [logged(f"echo {line('op', ms)}", f"{ms} ms", tmp_path / "log") for ms in (2, 9)]
    new = logged(f"echo {line('op', 1)}", "1 ms", tmp_path / "log")
    with ost.Tuner("sim:a", store=path, progress=False) as tuner:
        tuner.tune("op", old)
    with ost.Tuner("sim:a", store=path, progress=False) as tuner:
        report = tuner.tune("op", [*old, new])
    assert [result.cached for result in report.results[:2]] == [True, True]
    assert report.best is not None
    assert report.best.candidate == new
