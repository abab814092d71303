"""Applications beside what people use today: two threads each, the same arithmetic, results compared before timing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from subprocess import CalledProcessError
from typing import ClassVar

import numpy as np

from benchmarks.applications.application import OURS, Application
from benchmarks.applications.peers import Advance, Here, limit_blas, versions
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, measure
from benchmarks.peers import Absent

BENCHMARK = "applications"
APPLICATIONS = ("heat", "conjugate_gradients", "cholesky", "images", "particles", "inference")


@dataclass
class Limited(Contestant):
    """A contestant that is timed while each call of BLAS uses so many threads."""

    blas: int = 1
    latest: ClassVar[Limited | None] = None

    def time(self, steps: int) -> float:
        if Limited.latest is not self:
            Limited.latest = self
            limit_blas(self.blas)
            _wait_until_idle()
        return super().time(steps)


def _wait_until_idle() -> None:
    """Wait for threads of the contestant before: those of BLAS and OpenMP go on polling for tens of milliseconds."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        begin = time.process_time()
        time.sleep(0.005)
        if time.process_time() - begin < 0.0005:
            return


def run(context: Context, names: tuple[str, ...] = APPLICATIONS) -> None:
    """Time every application."""
    context.versions |= versions()
    for name in names:
        try:
            cases = import_module(f"benchmarks.applications.{name}").cases(context.quick)
        except ImportError as error:
            context.absent.append(Absent(name, str(error)))
            continue
        for application in cases:
            if context.wants(application.case):
                _compare(context, application)


def beside_best(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return our row of each case, and that of the fastest of the others."""
    by_place = {(row.case, row.contestant): row for row in rows if row.benchmark == BENCHMARK}
    ours = [row for (_, name), row in by_place.items() if name == OURS]
    return [(row, by_place[row.case, row.reference or ""]) for row in ours]


def _compare(context: Context, application: Application) -> None:
    here = Here(context.machine)
    with here.stack:
        contestants = _checked(context, application, here)
        for contestant in contestants:  # the same for all: long enough to compile, and for programs to adapt
            begin = time.monotonic()
            while time.monotonic() - begin < (0.05 if context.quick else 5.0):
                contestant.time(application.multiple)
        measure(contestants, rounds=3 if context.quick else 21, seconds=0.01 if context.quick else 0.04)
    samples = {each.name: tuple(sample / 1e3 for sample in each.samples) for each in contestants}
    peers = {name: float(np.median(taken)) for name, taken in samples.items() if not name.startswith(OURS)}
    best = min(peers, key=peers.__getitem__)
    context.rows += [
        Row(BENCHMARK, application.case, name, application.unit, taken, best) for name, taken in samples.items()
    ]


def _checked(context: Context, application: Application, here: Here) -> list[Contestant]:
    """Start everybody who is here, and raise unless all compute the same."""
    found: list[Contestant] = []
    expected: np.ndarray | None = None
    for name, start in application.contestants().items():
        threads = application.blas.get(name, 1)
        limit_blas(threads)
        try:
            advance: Advance = start(here)
        except (ImportError, OSError, CalledProcessError) as error:
            absent = Absent(name, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            if absent not in context.absent:
                context.absent.append(absent)
            continue
        result = np.array(advance(2 * application.multiple))
        if expected is None:
            expected = result
        tolerance = application.loose.get(name, application.tolerance)
        difference = float(np.abs(result.astype(float) - expected).max() / np.abs(expected).max())
        if not difference <= tolerance:
            raise AssertionError(
                f"{application.case}: the results of {name} must be those of the first within {tolerance:g}, "
                f"but they differ by {difference:g}"
            )
        found.append(Limited(name, advance, multiple=application.multiple, blas=threads))
    return found
