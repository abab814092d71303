"""Two cores as devices against one: the whole search of an example that compiles, runs and checks every candidate."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.peers import Absent
from benchmarks.rounds import take
from ostinato.tune.job import Job, load

BENCHMARK, CASE, UNIT = "tuning", "examples/tune_matmul", "candidates a second"
ONE, TWO = "1 core", "2 cores"

_FILE = Path(__file__).parent.parent / "examples" / "tune_matmul" / "matmul.toml"
_numbers = itertools.count()


def _rate(job: Job, devices: list[str], directory: Path, most: int | None) -> float:
    """Return the candidates a second of a search, from its call to its report."""
    candidates = list(itertools.islice(iter(job.candidates()), most))
    with ost.Tuner(
        devices,
        store=directory / f"devices-{next(_numbers)}.db",
        timeout=job.timeout,
        policy=job.policy,
        progress=False,
    ) as tuner:
        begin = time.perf_counter()
        report = tuner.tune(job.op, candidates, key=job.key, verify=job.verify)
        seconds = time.perf_counter() - begin
    if any(result.status not in ("ok", "raced") for result in report.results):
        raise RuntimeError(f"not every candidate is ok:\n{report.table()}")
    return len(report.results) / seconds


def run(context: Context, directory: Path) -> None:
    """Search with one device and with two."""
    if len(os.sched_getaffinity(0)) < 2:
        context.absent.append(Absent(CASE, "it needs two cores"))
        return
    job = load(_FILE)
    sys.path[:0] = [path for path in job.path if path not in sys.path]
    most = 12 if context.quick else None
    contestants = {
        TWO: lambda: _rate(job, ["cpu:0", "cpu:1"], directory, most),
        ONE: lambda: _rate(job, ["cpu:0"], directory, most),
    }
    context.rows += take(BENCHMARK, CASE, UNIT, contestants, rounds=1 if context.quick else 3, reference=ONE)
