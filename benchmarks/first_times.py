"""Times of the first compile and the first replay of a process, beside the second compile: each sample is a process."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row

BENCHMARK = "first"
MACHINE, FIRST, SECOND, REPLAY = "first machine", "first compile", "second compile", "first replay"
EMPTY, OTHER = "no store", "a store with costs of other tasks"
_TIMED = (MACHINE, FIRST, SECOND, REPLAY)


@ost.task
def _add(source: ost.Read, target: ost.Write) -> None:
    np.add(source, 1.0, out=target)


def _recorded(rows: np.ndarray) -> ost.Graph:
    with ost.capture() as graph:
        for before, after in itertools.pairwise(rows):
            _add(before, after)
    return graph


def run(context: Context) -> None:
    """Start processes, with a store in which nothing is known of their tasks and without one."""
    samples: dict[tuple[str, str], list[float]] = {(name, case): [] for name in _TIMED for case in (EMPTY, OTHER)}
    with tempfile.TemporaryDirectory() as directory:
        caches = {case: Path(directory, str(number)) for number, case in enumerate((EMPTY, OTHER))}
        graph = ost.Graph()
        graph.copy(*np.zeros((2, 8)))
        graph.tune(context.machine, store=caches[OTHER] / "tune.db", progress=False)
        for case, cache in caches.items():  # compiles what is imported, as installing does
            _times(cache if case == OTHER else Path(directory, "warm"), Path(directory, "compiled"))
        for number in range(context.rounds):
            for case, cache in caches.items():
                own = cache if case == OTHER else Path(directory, f"none {number}")
                for name, taken in zip(_TIMED, _times(own, Path(directory, "compiled")), strict=True):
                    samples[name, case].append(taken)
    for (name, case), taken in samples.items():
        context.rows.append(Row(BENCHMARK, name, case, "ms", tuple(taken), None))


def _times(cache: Path, compiled: Path) -> list[float]:
    """Return the milliseconds that a new process took for each."""
    environment = os.environ | {"OSTINATO_CACHE_DIR": str(cache), "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "benchmarks.first_times"]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return [float(taken) for taken in done.stdout.split()]


def main() -> None:
    """Print the milliseconds of the first machine, of the first and the second compile, and of the first replay."""
    graphs = [_recorded(np.zeros((8, 16))) for _ in range(2)]
    clock = [time.perf_counter()]
    machine = ost.Machine(cpus=2, gpus=0)
    clock.append(time.perf_counter())
    program, other = [(graph.compile(machine), clock.append(time.perf_counter()))[0] for graph in graphs]
    program.replay()
    clock.append(time.perf_counter())
    print(*np.diff(clock) * 1e3)
    other.close()
    machine.close()


if __name__ == "__main__":
    main()
