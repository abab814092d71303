"""Candidates that fill a disk: a small one of this test's own, under TMPDIR or under the store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOTLESS = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
UNSHARE = ["unshare", *ROOTLESS, "--mount"]
MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'

PRELUDE = """
import json, logging, os, sys, tempfile
import ostinato as ost
disk = sys.argv[1]
QUICK = ost.Policy(rel_ci=0.5, min_samples=2, max_seconds=0.05)
said = []
class Listener(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("ostinato").addHandler(Listener())
def shell(code, config=None, **arguments):
    return ost.Candidate.command(["sh", "-c", code], config, **arguments)
def tuned(candidates, **arguments):
    with ost.Tuner("sim:a", progress=False, timeout=60, policy=QUICK, **arguments) as tuner:
        report = tuner.tune("op", candidates)
    return [[str(result.status), result.message, result.cached] for result in report.results]
def answer(*values):
    print(json.dumps(values))
"""


def on_a_small_disk(tmp_path: Path, options: str, script: str) -> Any:
    """Run a script with a disk that is there for it only, and return what it answers."""
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("needs a mount namespace")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [*UNSHARE, "sh", "-c", MOUNT, "-", options, str(disk), sys.executable, "-c", PRELUDE + script, str(disk)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_candidate_that_fills_the_disk_costs_nobody_else(tmp_path: Path) -> None:
    script = """
tempfile.tempdir = os.environ["TMPDIR"] = disk
measured = [
    shell("echo OP:op,TIME:1,WS:0"),
    shell("cat /dev/zero > {scratch}/all || exit 1"),
    shell("head -c 300000 /dev/zero > {scratch}/some && echo OP:op,TIME:2,WS:0"),
    shell("exit 3"),
    ost.Candidate.call("tune.mean:good", {"n": 7}),
]
# Each alone: builds go on while others are measured, which would find the disk full.
built = [
    shell("echo OP:op,TIME:3,WS:0", build=["sh", "-c", "cat /dev/zero > {scratch}/all"]),
    ost.Candidate.call("tune.mean:is_prepared", {"n": 5}, prepare="tune.mean:prepares_much"),
]
left = []
def all_of_them():
    found = tuned(measured) + [each for candidate in built for each in tuned([candidate])]
    left.extend(os.listdir(disk))
    return found
answer(all_of_them(), all_of_them(), left)
"""
    first, second, left = on_a_small_disk(tmp_path, "size=1m", script)
    for found in (first, second):
        assert [status for status, _, _ in found] == [
            "ok", "crash", "ok", "crash", "ok", "compile_error", "compile_error",
        ]  # fmt: skip
        for index in (1, 5, 6):
            assert "No space left on device" in found[index][1]
    # What failed for want of room is tried again: it may have been another's doing.
    assert [cached for _, _, cached in second] == [True, False, True, True, True, False, False]
    assert left == []


def test_candidates_that_have_no_room_for_a_directory_are_cancelled(tmp_path: Path) -> None:
    script = """
tempfile.tempdir = os.environ["TMPDIR"] = disk
candidates = [shell("echo OP:op,TIME:{n},WS:0", {"n": n}) for n in range(1, 101)]
first = tuned(candidates)
left = os.listdir(disk)
answer(first, left, tuned(candidates[-5:]), os.listdir(disk))
"""
    first, left, second, left_again = on_a_small_disk(tmp_path, "size=1m,nr_inodes=60", script)
    statuses = [status for status, _, _ in first]
    assert statuses[0] == "ok"
    assert set(statuses) == {"ok", "cancelled"}
    assert all("TMPDIR" in message for status, message, _ in first if status == "cancelled")
    assert [status for status, _, _ in second] == ["ok"] * 5
    assert not any(cached for _, _, cached in second)
    assert (left, left_again) == ([], [])


def test_a_search_goes_on_when_the_disk_of_the_store_is_full(tmp_path: Path) -> None:
    script = """
store = disk + "/tune.db"
candidates = [shell("echo OP:op,TIME:{n},WS:0", {"n": n, "text": "x" * 3000}) for n in range(1, 21)]
before = tuned(candidates[:1], store=store)
with ost.Tuner("sim:a", progress=False, timeout=60, policy=QUICK, store=store) as tuner:
    with open(disk + "/filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(1024))
        except OSError:
            pass
    full = [[str(each.status), each.message, each.cached] for each in tuner.tune("op", candidates).results]
warnings = list(said)
os.unlink(disk + "/filler")
answer(before, full, warnings, tuned(candidates, store=store), tuned(candidates, store=store), said[len(warnings):])
"""
    before, full, warnings, after, again, more = on_a_small_disk(tmp_path, "size=1m", script)
    assert [status for status, _, _ in before] == ["ok"]
    assert [status for status, _, _ in full] == ["ok"] * 20
    assert [cached for _, _, cached in full] == [True] + [False] * 19
    assert len(warnings) == 1
    assert "the disk is full" in warnings[0]
    assert [status for status, _, _ in after] == ["ok"] * 20
    assert [cached for _, _, cached in again] == [True] * 20
    assert more == []
