"""Two cores as devices against one: the whole search of an example that compiles, runs and checks every candidate."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.peers import Absent
from ostinato.tune.job import Job, load

BENCHMARK, UNIT = "devices", "candidates a second"
SCREENED, WHOLE = "until all were measured", "the final included"
ONE, TWO = "1 core", "2 cores"

_FILE = Path(__file__).parent.parent / "examples" / "tune_matmul" / "matmul.toml"
_numbers = itertools.count()


def _rates(job: Job, devices: list[str], directory: Path, most: int | None) -> dict[str, float]:
    """Return the candidates a second of a search: until the last one was measured and checked, and until its report."""
    candidates = list(itertools.islice(iter(job.candidates()), most))
    store = directory / f"devices-{next(_numbers)}.db"
    with ost.Tuner(devices, store=store, timeout=job.timeout, policy=job.policy, progress=False) as tuner:
        report = tuner.tune(job.op, candidates, key=job.key, verify=job.verify)
    if any(result.status not in ("ok", "raced") for result in report.results):
        raise RuntimeError(f"not every candidate is ok:\n{report.table()}")
    screened = max(stretch.end for stretch in report.stretches if stretch.what in ("measure", "check"))
    return {SCREENED: len(candidates) / screened, WHOLE: len(candidates) / report.seconds}


def run(context: Context, directory: Path) -> None:
    """Search with one device and with two."""
    if len(os.sched_getaffinity(0)) < 2:
        context.absent.append(Absent(SCREENED, "it needs two cores"))
        return
    job = load(_FILE)
    sys.path[:0] = [path for path in job.path if path not in sys.path]
    most, rounds = (12, 1) if context.quick else (None, 3)
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, devices in ((TWO, ["cpu:0", "cpu:1"]), (ONE, ["cpu:0"])):
            for case, rate in _rates(job, devices, directory, most).items():
                samples.setdefault((case, name), []).append(rate)
    context.rows += [Row(BENCHMARK, case, name, UNIT, tuple(taken), ONE) for (case, name), taken in samples.items()]
