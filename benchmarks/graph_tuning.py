"""What tuning a graph costs and brings: the demo's diffusion, tuned once, found again, compiled and replayed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row
from benchmarks.peers import Absent

BENCHMARK = "graphtune"
TUNE, COMPILE, STEP = "graph.tune", "graph.compile", "a step"
FIRST, AGAIN, ELSEWHERE = "first", "second", "second, in a new process"
STORE, NOTHING = "costs from the store", "estimated costs"
DEFAULT, TUNED = "default kernel", "tuned kernel"

STRIPS, HEIGHT, WIDTH = 128, 512, 437


def captured() -> ost.Graph:
    """Return a step of the demo's diffusion of a picture of noise."""
    from ostinato.demo.diffusion import NATIVE, Scene

    scene = Scene(np.random.default_rng(1).random((3, HEIGHT, WIDTH), np.float32), STRIPS, [NATIVE])
    with ost.capture() as graph:
        scene.step()
    return graph


def run(context: Context) -> None:
    """Tune for the first time and again, in this process and in others; then compile and replay."""
    missing = [name for name in ("numba", "PIL") if find_spec(name) is None]
    if missing:
        what = " and ".join(missing)
        context.absent.append(Absent("graph.tune", f"needs {what}: pip install 'ostinato[demo]'"))
        return
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory, "store.db")
        graph = captured()
        _row(context, FIRST, [_tuning(lambda: graph.tune(context.machine, store=store))])
        _row(context, AGAIN, [_tuning(lambda: graph.tune(context.machine, store=store)) for _ in range(context.rounds)])
        _elsewhere(store)  # compiles what is imported, as installing does
        _row(context, ELSEWHERE, [_elsewhere(store) for _ in range(context.rounds)])
        costs: list[tuple[str, Any]] = [(STORE, store), (NOTHING, {})]
        samples: dict[str, list[float]] = {name: [] for name, _ in costs}
        for _ in range(context.rounds):
            for name, known in costs:
                begin = time.perf_counter_ns()
                with graph.compile(context.machine, costs=known):
                    samples[name].append((time.perf_counter_ns() - begin) / 1e3 / STRIPS)
        for name, each in samples.items():
            context.rows.append(Row(BENCHMARK, COMPILE, name, "us/op", tuple(each), NOTHING))
        with (
            captured().compile(context.machine, costs={}) as default,
            captured().compile(context.machine, costs=store) as tuned,
        ):
            contestants = [Contestant(DEFAULT, default.replay), Contestant(TUNED, tuned.replay)]
            context.measure(contestants)
            for contestant in contestants:
                taken = tuple(sample / 1e3 for sample in contestant.samples)
                context.rows.append(Row(BENCHMARK, STEP, contestant.name, "us/step", taken, DEFAULT))


def _row(context: Context, name: str, milliseconds: list[float]) -> None:
    context.rows.append(Row(BENCHMARK, TUNE, name, "ms", tuple(milliseconds), None))


def _tuning(tune: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    tune()
    return (time.perf_counter() - begin) * 1e3


def _elsewhere(store: Path) -> float:
    """Milliseconds that tuning takes in a process that has done nothing but capture the graph."""
    command = [sys.executable, "-m", "benchmarks.graph_tuning", str(store)]
    root = Path(__file__).parent.parent
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(store.with_name("compiled"))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return float(done.stdout)


def main(store: str) -> None:
    """Print how many milliseconds it takes to tune the graph when the store knows it."""
    graph = captured()
    with ost.Machine(cpus=2, gpus=0) as machine:
        taken = _tuning(lambda: graph.tune(machine, store=store))
        reports = graph.tune(machine, store=store)
    assert all(result.cached for report in reports.values() for result in report.results)
    print(taken)


if __name__ == "__main__":
    main(sys.argv[1])
