"""``OSTINATO_TRACE``: every run of a process, in one file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np, os, sys, ostinato as ost

@ost.task
def count(x: ost.ReadWrite): x += 1

@ost.task
def fail(x: ost.ReadWrite): raise ValueError("on purpose")

def program(task, x):
    with ost.capture() as graph:
        task(x)
    return graph.compile()

x = np.zeros(1)
first = program(count, x)
"""


def traced(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OSTINATO_TRACE": str(path)}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + code], env=environment, text=True, capture_output=True, check=False
    )


def steps(path: Path) -> dict[int, list[int]]:
    """The steps in the file, by the number of the program."""
    found: dict[int, list[int]] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault(event["pid"], []).append(event["args"]["step"])
    return found


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "trace.json"


def test_replays_and_submits_of_all_programs(path):
    ended = traced(
        path,
        "second = program(count, np.zeros(1))\n"
        "assert first.replay(2) == 2 and first.submit(1).result() == 1\n"
        "assert second.replay(3, progress=True) == 3 and first.replay() == 1\n"
        "print(x[0])",
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "4.0\n")
    assert steps(path) == {0: [0, 1, 2, 3], 1: [0, 1, 2]}


def test_programs_that_are_gone_are_in_it(path):
    assert traced(path, "first.replay()\ndel first\nprogram(count, x).replay(2)").returncode == 0
    assert steps(path) == {0: [0], 1: [0, 1]}


def test_a_run_that_failed_is_in_it(path):
    ended = traced(path, "first.replay()\nprogram(fail, x).replay()")
    assert ended.returncode == 1
    assert "on purpose" in ended.stderr
    assert steps(path)[0] == [0]


def test_a_path_relative_to_where_the_process_began(tmp_path):
    code = "os.mkdir('elsewhere'); os.chdir('elsewhere'); first.replay()"
    environment = os.environ | {"OSTINATO_TRACE": "trace.json"}
    subprocess.run([sys.executable, "-c", SCRIPT + code], env=environment, cwd=tmp_path, check=True)
    assert steps(tmp_path / "trace.json") == {0: [0]}


def test_nothing_replayed_writes_nothing(path):
    assert traced(path, "").returncode == 0
    assert not path.exists()


def test_a_path_that_cannot_be_written_is_said_at_the_end(tmp_path):
    ended = traced(tmp_path / "missing" / "trace.json", "first.replay(); print('done')")
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "OSTINATO_TRACE was not written" in ended.stderr
    assert "missing" in ended.stderr


def test_a_fork_leaves_the_file_to_its_parent(path):
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"  # Python 3.12 and later warn of forks
    ended = traced(path, quiet + "first.replay()\nif os.fork() == 0: sys.exit(0)\nos.wait()\nfirst.replay()")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert steps(path) == {0: [0, 1]}


def test_programs_that_measure_are_not_in_it(path, tmp_path):
    code = (
        f"os.environ['OSTINATO_CACHE_DIR'] = {str(tmp_path)!r}\n"
        "from ostinato.runtime.calibrate import measure_host\n"
        "assert measure_host(1).source.startswith('measured')\n"
        "first.replay(2)"
    )
    ended = traced(path, code)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert steps(path) == {0: [0, 1]}
