"""Ranks of an MPI job, none of which outlives its test."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

MPIEXEC = os.environ.get("OSTINATO_TEST_MPIEXEC") or shutil.which(
    "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
)
"""That of the library that mpi4py loads; with another library, name both: ``OSTINATO_TEST_MPIEXEC=...
MPI4PY_LIBMPI=...``."""

# Open MPI starts as many ranks as there are cores, and as root none, unless it is told otherwise.
_ENVIRONMENT = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
ROOT = Path(__file__).parents[2]


def run_ranks(ranks: int, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on several ranks."""
    assert MPIEXEC is not None
    return run_command(MPIEXEC, "-n", str(ranks), sys.executable, *arguments, timeout=timeout)


def run_command(*command: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group, which ends with it or when the time is over."""
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env=_ENVIRONMENT | os.environ,
    )
    with started:
        try:
            out, err = started.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, started.returncode, out, err)
