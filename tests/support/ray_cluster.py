"""A Ray cluster of three nodes on this machine, for tests of fleets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
MODULES = os.pathsep.join(map(os.fspath, (TESTS, TESTS / "unit")))

CLUSTER = """
    import json, sys, threading
    from collections import Counter
    import ray
    from ray.cluster_utils import Cluster
    import ostinato as ost

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, **ODD) for ODD in ({}, ODD_NODE)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    cluster.wait_for_nodes()
    naps = [ost.Candidate.call("tune.candidates:napping", {"number": n}) for n in range(COUNT)]
    told = {}
"""

SERVED = """
    ray.shutdown()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        cluster.head_node.kill_gcs_server(check_alive=False)
        cluster.head_node.kill_raylet(check_alive=False)
        print("killed", flush=True)
    cluster.shutdown()
"""


def in_cluster(
    script: str, count: int, tmp_path: Path, odd: dict[str, str] | None = None, **environment: str
) -> dict[str, Any]:
    """Run a script in a process of its own, as Ray wants it, and return what it puts into `told`.

    The last of `nodes` has `odd` in its environment.
    """
    whole = _begun(count, odd) + textwrap.dedent(script) + "\nprint(json.dumps(told))\n"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", whole],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": MODULES, **environment},
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


class ServedCluster:
    """A cluster that a process of its own has: searches come from others, and its head can be killed."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address

    def kill_head(self) -> None:
        """Kill what Ray runs for the head of the cluster; the other nodes stay."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "killed\n"


@contextmanager
def served(tmp_path: Path, **environment: str) -> Iterator[ServedCluster]:
    """Start a cluster, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _begun(0, None) + textwrap.dedent(SERVED)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": MODULES, **environment},
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the cluster has not started"
        yield ServedCluster(process, address)
    finally:
        process.communicate()


def _begun(count: int, odd: dict[str, str] | None) -> str:
    node = {"env_vars": odd} if odd else {}
    return textwrap.dedent(CLUSTER).replace("ODD_NODE", repr(node)).replace("COUNT", str(count))
