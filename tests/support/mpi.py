"""Ranks of an MPI job, none of which outlives its test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

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


class Library(NamedTuple):
    """An MPI library, and the mpiexec that belongs to it."""

    mpiexec: str | None
    environment: Mapping[str, str] = {}
    options: tuple[str, ...] = ()

    def with_options(self, *options: str) -> Library:
        """Return it with options for mpiexec."""
        return self._replace(options=options)


OWN = Library(MPIEXEC)
_OPEN_MPI = ROOT / "build" / "openmpi"
OPEN_MPI = Library(
    shutil.which(_OPEN_MPI / "bin" / "mpiexec"), {"MPI4PY_LIBMPI": str(_OPEN_MPI / "lib" / "libmpi.so.40")}
)
"""Beside the other one: `make build/openmpi/made` installs it."""

_NO_MPI4PY = importlib.util.find_spec("mpi4py") is None
on_own = [
    pytest.mark.mpi,
    pytest.mark.skipif(_NO_MPI4PY, reason="mpi4py is not installed"),
    pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is not installed"),
]
on_open_mpi = [
    pytest.mark.mpi,
    pytest.mark.skipif(_NO_MPI4PY, reason="mpi4py is not installed"),
    pytest.mark.skipif(OPEN_MPI.mpiexec is None, reason="there is no Open MPI: make build/openmpi/made"),
]
on_both = [pytest.param(OWN, id="own", marks=on_own), pytest.param(OPEN_MPI, id="openmpi", marks=on_open_mpi)]


def run_ranks(ranks: int, *arguments: str, timeout: float, library: Library = OWN) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on several ranks."""
    assert library.mpiexec is not None
    command = (library.mpiexec, *library.options, "-n", str(ranks), sys.executable, *arguments)
    return run_command(*command, timeout=timeout, environment=library.environment)


def run_command(*command: str, timeout: float, environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group, which ends with it or when the time is over."""
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env={**_ENVIRONMENT, **os.environ, **environment},
    )
    with started:
        try:
            out, err = started.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, started.returncode, out, err)
