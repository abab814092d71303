"""What is said where ranks cannot start, for want of mpi4py or of an MPI library."""

import os
import subprocess
import sys

import pytest

RANKS = [sys.executable, "-c", "import ostinato; ostinato.Ranks()"]
FLEET = [sys.executable, "-m", "ostinato", "devices", "--fleet", "mpi"]


def last_line(command: list[str], **variables: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", [RANKS, FLEET], ids=["ranks", "fleet"])
def test_without_an_MPI_library(command: list[str]) -> None:
    pytest.importorskip("mpi4py")
    said = last_line(command, MPI4PY_LIBMPI="/there/is/no/libmpi.so", PMI_SIZE="2")
    assert said.endswith("mpi4py finds no MPI library: pip install mpich")


@pytest.mark.parametrize("command", [RANKS, FLEET], ids=["ranks", "fleet"])
def test_without_mpi4py(command: list[str], tmp_path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no such package')")
    said = last_line(command, PYTHONPATH=str(tmp_path), PMI_SIZE="2")
    assert said.endswith("mpi4py cannot be imported (no such package): pip install 'ostinato[mpi]'")
