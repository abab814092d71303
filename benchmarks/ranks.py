"""A stencil of Python tasks on two ranks of this host, beside what else runs Python on two cores.

In each round, each contestant runs in new processes, so that none is affected by the one before.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import rounds
from benchmarks.context import Context
from benchmarks.peers import Absent
from ostinato.ranks.launch import find_launcher

BENCHMARK, CASE = "ranks", "16 Python tasks of 20 us"
ONE, SHARED, MPI = "ostinato, 1 rank", "ostinato, 2 ranks, shared memory", "ostinato, 2 ranks, MPI"
HAND_C, MPI4PY = "C by hand, 2 ranks, MPI", "mpi4py by hand, 2 ranks"
_PYTHON = {"a plain loop": "loop", "multiprocessing, 2 processes": "multiprocessing"}
_NEED = {"joblib, 2 processes": "joblib", "Ray, 2 actors": "ray"}
_ROOT = Path(__file__).parent.parent
_LIMIT = 120.0  # seconds that a contestant may take


def run(context: Context) -> None:
    """Measure how long a step takes, in interleaved rounds."""
    steps, each, times = ("20", "5", 1) if context.quick else ("50", "20", 5)
    worker = [sys.executable, "-W", "ignore", "-m", "benchmarks.ranks_worker"]
    contestants = {ONE: [*worker, "auto", steps, each]}
    with TemporaryDirectory() as directory:
        try:
            launcher = find_launcher()
        except ImportError as error:
            context.absent.append(Absent("MPI", str(error)))
        else:
            two = [*launcher, "-n", "2"]
            for name, kind in ((SHARED, "shared"), (MPI, "mpi"), (MPI4PY, "mpi4py")):
                contestants[name] = [*two, *worker, kind, steps, each]
            mpicc = shutil.which("mpicc", path=Path(launcher[0]).parent)  # of the same library
            if mpicc is not None:
                stencil, source = f"{directory}/stencil", _ROOT / "benchmarks" / "peers" / "ranks_stencil.c"
                subprocess.run([mpicc, "-O2", "-o", stencil, str(source)], check=True)
                contestants[HAND_C] = [*two, stencil, steps, each]
        for name, kind in _PYTHON.items():
            contestants[name] = [*worker, kind, steps, each]
        for name, kind in _NEED.items():
            if importlib.util.find_spec(kind) is None:
                context.absent.append(Absent(name, f"{kind} is not installed"))
            else:
                contestants[name] = [*worker, kind, steps, each]
        measured = {name: _sample_of(command) for name, command in contestants.items()}
        context.rows += rounds.take(BENCHMARK, CASE, "us a step", measured, rounds=times, reference=ONE)


def _sample_of(command: list[str]) -> Callable[[], float]:
    def sample() -> float:
        ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT, timeout=_LIMIT)
        return float(ran.stdout.split()[-1])

    return sample
