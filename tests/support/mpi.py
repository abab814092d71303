"""Ranks of an MPI job, none of which outlives its test."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
ROOT = Path(__file__).parents[2]


def run_ranks(ranks: int, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on several ranks."""
    assert MPIEXEC is not None
    return run_command(MPIEXEC, "-n", str(ranks), sys.executable, *arguments, timeout=timeout)


def run_command(*command: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group, which ends with it or when the time is over."""
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    with started:
        try:
            out, err = started.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, started.returncode, out, err)
