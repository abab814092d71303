"""Processes that share a store: whatever their devices, and whenever one is killed, nothing is lost or mixed up.

`OSTINATO_STRESS_SECONDS` says for how long. Each round prints its seed: what is searched for, and about when processes
are killed, depends on nothing else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ostinato.environment import usable_cores
from ostinato.tune.store.store import Store

SECONDS = float(os.environ.get("OSTINATO_STRESS_SECONDS", "6")) * 0.7
PATIENCE = 240  # seconds that a process may take
CANDIDATES = 9

# The latency is part of the model, and of each time: a time says what it was measured on.
MODELS = {"": 0, "?latency=0.001": 1, "?latency=0.002": 2}
SIMULATED = [f"sim:{letter}{model}" for letter in "abc" for model in MODELS]

# A time in ms is 10.jjcoo: jj differs from run to run, c is the candidate, and oo is 01 or 02 for its two ops.
# Candidate 0 fails; the second op takes ten times more, so it is in no final; each run is noted.
PROGRAM = """
echo $1 >> $2/ran
case $1 in 0) exit 3;; esac
jj=$(( 10 + $$ % 90 ))
echo OP:one,TIME:10.$jj${1}01,WS:$1
case $1 in [1-3]) echo OP:two,TIME:100.$jj${1}02,WS:$1;; esac
"""

SEARCHER = """if True:
    import json, sys
    import ostinato as ost
    program, ran, path, told = sys.argv[1:5]
    policy = ost.Policy(cache="warm", rel_ci=0.01, min_samples=3, max_seconds=0.05)
    for devices, op, numbers, has_default in json.loads(sys.argv[5]):
        candidates = [ost.Candidate.command(["sh", program, "{n}", ran], {"n": n}) for n in numbers]
        with ost.Tuner(devices, store=path, policy=policy, progress=False) as tuner:
            report = tuner.tune(op, candidates, default=candidates[0] if has_default else None)
        results = [
            [r.candidate.config["n"], r.op, str(r.status), list(r.samples), r.workspace, r.cached, r.device, r.message]
            for r in report.results
        ]
        best = report.best and [report.best.candidate.config["n"], report.best.op]
        with open(told, "a") as file:
            file.write(json.dumps({"devices": devices, "op": op, "numbers": numbers, "results": results, "best": best}))
            file.write("\\n")
"""


def offset(device: str) -> int:
    """Milliseconds that a device adds to each time."""
    _, _, model = device.partition("sim:")
    return MODELS[model[1:]] if model else 0


def check_samples(number: int, op: str, samples: Iterable[float], added: int) -> None:
    """Each time is one that this candidate gave for this op on this model."""
    for ns in samples:
        tens = round((ns - added * 1e6) / 10)
        assert abs(ns - added * 1e6 - tens * 10) < 1e-3, (number, op, ns, added)
        whole, rest = divmod(tens, 10**5)
        assert (whole, rest % 1000) == ({"one": 10, "two": 100}[op], number * 100 + {"one": 1, "two": 2}[op]), (
            number,
            op,
            ns,
            added,
        )


class Round:
    """Some processes that search at once."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        directory.mkdir()
        self.store = directory / "tune.db"
        self.program = directory / "program"
        self.program.write_text(PROGRAM)
        self.ran = directory / "ran"
        self.cores = [f"cpu:{core}" for core in range(min(len(usable_cores()), 3))]
        self.told = 0

    def devices(self) -> list[str]:
        kind = self.random.random()
        if kind < 0.25:
            return [self.random.choice(self.cores)]
        if kind < 0.35:
            return self.random.sample(self.cores, len(self.cores))
        first = self.random.choice(SIMULATED)
        rest = [name for name in SIMULATED if name[:5] != first[:5]]
        return [first, *self.random.sample(rest, 1 if kind < 0.6 else 0)]

    def search(self) -> list[Any]:
        numbers = self.random.sample(range(CANDIDATES), self.random.randint(1, CANDIDATES))
        return [self.devices(), self.random.choice(["op", "op", "other"]), numbers, self.random.random() < 0.5]

    def start(self, searches: list[Any]) -> tuple[subprocess.Popen[bytes], Path, list[Any]]:
        self.told += 1
        told = self.directory / f"told-{self.told}"
        command = [sys.executable, "-c", SEARCHER, self.program, self.directory, self.store, told, json.dumps(searches)]
        return subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE), told, searches

    def stored(self) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        """What is in the store, by op, model and candidate; each of it right."""
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        with Store(self.store) as store:
            for row in store.attempts():
                found.setdefault((row["operation"], row["model"], row["config"]["n"]), []).append(row)
                added = round(float(row["model"].partition("latency=")[2] or 0) * 1000)
                if row["device"].startswith("sim:") or "latency" in row["model"]:
                    assert offset(row["device"]) == added, row
                self.check(row["config"]["n"], row["op"], row["status"], row["samples"], row["workspace"], [added])
        return found

    def check(
        self, number: int, op: str, status: str, samples: list[float], workspace: int, added: list[int], why: str = ""
    ) -> None:
        if status in ("contended", "cancelled"):
            return
        assert status in (("crash",) if number == 0 else ("ok", "raced")), (number, op, status, why)
        if number:
            assert samples
            assert workspace == number
            known = next((one for one in added if 0 <= samples[0] / 1e6 - one - {"one": 10, "two": 100}[op] < 1), None)
            assert known is not None, (number, op, samples, added)
            check_samples(number, op, samples, known)

    def check_reports(self, told: Path) -> list[dict[str, Any]]:
        """What a process was told is right, and in the store."""
        reports = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        stored = self.stored()
        for report in reports:
            models = {
                "simulated" + (f" latency=0.00{added}" if added else "") for added in map(offset, report["devices"])
            }
            for number, op, status, samples, workspace, _, _, message in report["results"]:
                self.check(number, op, status, samples, workspace, list(map(offset, report["devices"])), message)
                if status in ("ok", "raced", "crash"):
                    rows = [
                        row
                        for key, rows in stored.items()
                        if key[0] == report["op"] and key[2] == number
                        for row in rows
                    ]
                    here = [row for row in rows if row["model"] in models or "simulated" not in row["model"]]
                    assert any(row["samples"] == samples or status == "crash" for row in here), (report, number)
            assert (report["best"] is None) == all(result[2] not in ("ok", "raced") for result in report["results"])
        return reports

    def run(self) -> None:
        searchers = []
        for _ in range(self.random.randint(2, 4)):
            searchers.append(self.start([self.search() for _ in range(self.random.randint(1, 2))]))
            time.sleep(self.random.choice([0, 0, 0.05]))
        begin = time.monotonic()
        doomed = [(begin + self.random.random() * 1.5, each[0]) for each in searchers if self.random.random() < 0.5]
        for moment, process in sorted(doomed, key=lambda each: each[0]):
            time.sleep(max(0.0, moment - time.monotonic()))
            process.send_signal(signal.SIGKILL)
        for process, told, searches in searchers:
            _, errors = process.communicate(timeout=PATIENCE)
            if process.returncode != -signal.SIGKILL:
                assert process.returncode == 0, errors.decode()
                assert len(told.read_text().splitlines()) == len(searches)
            assert not errors, errors.decode()
        for _, told, _ in searchers:
            self.check_reports(told)
        for _, _, searches in searchers:
            before = self.stored()
            process, told, _ = self.start(searches)
            _, errors = process.communicate(timeout=PATIENCE)
            assert (process.returncode, errors) == (0, b""), errors.decode()
            self.check_resumed(self.check_reports(told), before)
            after = self.stored()
            for key, rows in before.items():
                assert after[key][: len(rows)] == rows
            # All that the last of them asks is known now: nothing runs.
            lines = self.ran.read_text().splitlines()
            process, told, _ = self.start(searches[-1:])
            _, errors = process.communicate(timeout=PATIENCE)
            assert (process.returncode, errors) == (0, b""), errors.decode()
            again = self.check_reports(told)
            if not {result[2] for report in again for result in report["results"]} & {"contended", "raced"}:
                assert self.ran.read_text().splitlines() == lines

    def check_resumed(self, reports: list[dict[str, Any]], before: dict[tuple[Any, ...], list[dict[str, Any]]]) -> None:
        """What was in the store is not measured again, but for what was cut and no longer is."""
        for report in reports:
            for device in report["devices"]:
                for number in report["numbers"]:
                    added = offset(device)
                    simulated = "simulated" + (f" latency=0.00{added}" if added else "")
                    rows = [
                        row
                        for (operation, model, candidate), rows in before.items()
                        if operation == report["op"] and candidate == number
                        if (model == simulated if device.startswith("sim:") else not model.startswith("simulated"))
                        for row in rows
                    ]
                    if rows and all(row["status"] in ("ok", "crash") for row in rows):
                        results = [result for result in report["results"] if result[0] == number]
                        assert all(result[5] for result in results), json.dumps(
                            [report["devices"], report["op"], number, results, rows], indent=1
                        )


@pytest.mark.slow
def test_searches_that_share_a_store_lose_nothing_and_mix_nothing_up(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        seed = random.randrange(2**32)
        print(f"round {rounds}: seed {seed}")
        Round(seed, tmp_path / str(rounds)).run()
        shutil.rmtree(tmp_path / str(rounds))
        rounds += 1
