"""Two cores as devices against one: the whole search of an example that compiles, runs and checks every candidate."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.peers import Absent
from ostinato.tune.searching.job import Job, load

BENCHMARK, UNIT = "devices", "candidates a second"
SCREENED, WHOLE = "until all were measured", "the final included"
TWO = "2 devices, 2 cores"
ONE = "1 device, the other core builds"
ALONE = "1 device, 1 core that builds too"

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
    screened = max(span.end for span in report.spans if span.what in ("measure", "check"))
    return {SCREENED: len(candidates) / screened, WHOLE: len(candidates) / report.seconds}


@contextmanager
def _bound_to(cores: set[int]) -> Iterator[None]:
    """Use no other cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run(context: Context, directory: Path) -> None:
    """Search with one device and with two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        context.absent.append(Absent(SCREENED, "it needs two cores"))
        return
    job = load(_FILE)
    sys.path[:0] = [path for path in job.path if path not in sys.path]
    most, rounds = (12, 1) if context.quick else (32, 3)
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, devices, used in ((TWO, 2, 2), (ONE, 1, 2), (ALONE, 1, 1)):
            with _bound_to(set(cores[:used])):
                names = [f"cpu:{number}" for number in range(devices)]
                for case, rate in _rates(job, names, directory, most).items():
                    samples.setdefault((case, name), []).append(rate)
    context.rows += [Row(BENCHMARK, case, name, UNIT, tuple(taken), ONE) for (case, name), taken in samples.items()]
