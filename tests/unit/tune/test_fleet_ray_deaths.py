"""The process with the search, or the head of the Ray cluster, is killed: nothing goes on, and a rerun resumes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from support.ray_cluster import MODULES, served

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

DEADLINE = 120
COUNT = 400
SEARCH = f"""
import ostinato as ost
naps = [ost.Candidate.call("tune.candidates:sleeping", {{"seconds": 0.01 + n / 1000}}) for n in range({COUNT})]
policy = ost.Policy(min_samples=3, max_seconds=0.05)
with ost.Tuner("sim:a,sim:b", store="tune.db", fleet="ray", policy=policy, progress=False) as tuner:
    print("begin", flush=True)
    report = tuner.tune("nap", naps)
print(sum(result.cached for result in report.results), len(report.results), report.best is not None)
"""


class Searching:
    """Searches on a cluster; `left` returns the processes of workers and reapers that are there."""

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path
        self.mark = uuid.uuid4().hex
        # Ray's limit for a process that cannot reach the head is 60 s.
        self.environment = {"OSTINATO_TEST_MARK": self.mark, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}

    def start(self, address: str) -> subprocess.Popen[str]:
        """Begin a search, and return its process once candidates are measured."""
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SEARCH],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._path,
            env={**os.environ, "PYTHONPATH": MODULES, "RAY_ADDRESS": address, **self.environment},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n", process.communicate()[1]
        return process

    def left(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if self.mark.encode() in environment and (b"tune/worker" in command or b"reaper" in command):
                found.append(command.replace(b"\0", b" ").decode())
        return found

    def assert_none_left(self, since: float) -> None:
        """Wait until nothing of a search that has died is left, 10 s after it died at the latest."""
        while left := self.left():
            assert time.monotonic() < since + 10.0 + 10.0 * (os.getloadavg()[0] > 2), left
            time.sleep(0.05)

    def assert_resumes(self, address: str) -> None:
        """Search once more, and find what was measured before."""
        again = self.start(address)
        out, error = again.communicate(timeout=DEADLINE)
        cached, count, best = out.split()
        assert (count, best) == (str(COUNT), "True"), error
        assert 0 < int(cached) < COUNT


@pytest.fixture
def searching(tmp_path):
    return Searching(tmp_path)


def test_when_the_search_is_killed_all_ends_on_the_nodes_and_a_rerun_resumes(tmp_path, searching):
    with served(tmp_path, **searching.environment) as cluster:
        search = searching.start(cluster.address)
        time.sleep(2.0)
        assert len(searching.left()) >= 3
        search.kill()
        search.communicate()
        searching.assert_none_left(time.monotonic())
        searching.assert_resumes(cluster.address)


def test_when_the_head_of_the_cluster_is_killed_all_ends_and_a_rerun_on_another_resumes(tmp_path, searching):
    with served(tmp_path, **searching.environment) as cluster:
        search = searching.start(cluster.address)
        time.sleep(2.0)
        cluster.kill_head()
        _, error = search.communicate(timeout=DEADLINE)  # Ray ends a process that cannot reach the head
        died = time.monotonic()
        assert search.returncode != 0, error
        searching.assert_none_left(died)
    with served(tmp_path, **searching.environment) as cluster:
        searching.assert_resumes(cluster.address)
