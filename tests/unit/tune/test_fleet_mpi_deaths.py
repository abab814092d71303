"""The rank with the search is killed: nothing goes on, whether MPI notices it or not, and a rerun resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from support.deaths import SEARCH, Marked, assert_resumed
from tune import test_fleet_mpi as mpi

pytestmark = [*mpi.pytestmark, pytest.mark.slow]

DEADLINE = 120
RANKS = 3
PRELUDE = """
import builtins, os
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank

def print(*values, flush=True):
    if rank == 0:
        builtins.print(os.getpid() if values == ("begin",) else " ".join(map(str, values)), flush=True)
"""


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("noticed", [True, False])
def test_when_rank_0_is_killed_all_ends_and_a_rerun_resumes(tmp_path, noticed):
    search = SEARCH.replace("FLEET", "'mpi'")
    (tmp_path / "script.py").write_text(textwrap.dedent(mpi.RANKS).replace("HOSTS", "True") + PRELUDE + search)
    marked = Marked()
    environment = {**os.environ, **mpi.RANKS_ENVIRONMENT, **marked.environment, "PYTHONPATH": mpi.MODULES}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [mpi.MPIEXEC, "-n", str(RANKS), sys.executable, "script.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
        )

    first = start()
    stopped = []
    try:
        rank_0 = int(first.stdout.readline())
        time.sleep(2.0)
        assert len(marked.left()) >= RANKS
        pid = rank_0
        while not noticed and pid != first.pid:  # what MPI has started to watch the ranks
            pid = parent(pid)
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        os.kill(rank_0, signal.SIGKILL)
        marked.assert_none_left(time.monotonic())
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    _, error = first.communicate(timeout=DEADLINE)
    assert first.returncode != 0, error
    out, error = start().communicate(timeout=DEADLINE)
    assert_resumed(out.partition("\n")[2], error)
