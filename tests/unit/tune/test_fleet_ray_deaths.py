"""The process with the search, or the head of the Ray cluster, is killed: nothing goes on, and a rerun resumes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.deaths import SEARCH, Marked, assert_resumed
from support.ray_cluster import MODULES, served

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

DEADLINE = 120
SOON = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
"""Ray ends a process that cannot reach the head after so many seconds, in place of 60."""


class Searching(Marked):
    """Searches on a cluster."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__()
        self._path = tmp_path

    def start(self, address: str, **environment: str) -> subprocess.Popen[str]:
        """Begin a search, and return its process once candidates are measured."""
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SEARCH.replace("FLEET", "'ray'")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._path,
            env={**os.environ, "PYTHONPATH": MODULES, "RAY_ADDRESS": address, **self.environment, **environment},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n", process.communicate()[1]
        return process

    def assert_resumes(self, address: str) -> None:
        """Search once more, and find what was measured before."""
        assert_resumed(*self.start(address).communicate(timeout=DEADLINE))


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
    with served(tmp_path, **searching.environment, **SOON) as cluster:
        search = searching.start(cluster.address, **SOON)
        time.sleep(2.0)
        cluster.kill_head()
        _, error = search.communicate(timeout=DEADLINE)  # Ray ends a process that cannot reach the head
        died = time.monotonic()
        assert search.returncode != 0, error
        searching.assert_none_left(died)
    with served(tmp_path, **searching.environment) as cluster:
        searching.assert_resumes(cluster.address)


def test_when_the_search_and_the_head_of_the_cluster_are_killed_all_ends(tmp_path, searching):
    """Nobody tells the nodes: Ray itself would notice after 60 s."""
    with served(tmp_path, **searching.environment) as cluster:
        search = searching.start(cluster.address)
        time.sleep(2.0)
        assert len(searching.left()) >= 3
        cluster.kill_head()
        search.kill()
        search.communicate()
        searching.assert_none_left(time.monotonic())
