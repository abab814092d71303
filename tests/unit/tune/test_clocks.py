"""The clock of the day may be set at any moment: nothing that measures, waits or limits looks at it."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest

import ostinato as ost

ROOT = Path(__file__).parents[3]
QUICK = ost.Policy(rel_ci=0.5, min_samples=2, max_seconds=0.05)

# What a clock of the day is for: a moment that people read, or that is compared with those of files.
OF_THE_DAY = {
    "cli.py": "whether a file was written",
    "runtime/calibrate.py": "the date of a measurement",
    "tune/graphs/stored_costs.py": "the date of a measurement",
    "tune/graphs/cost_store.py": "the date of a measurement",
    "tune/graphs/__init__.py": "whether a file has changed",
    "tune/graphs/record.py": "how old a file is",
    "tune/graphs/tune_graph.py": "the date of a measurement",
    "tune/leases/lease.py": "since when the driver of a GPU is to tell who computed",
    "tune/leases/lock_file.py": "since when a lease is held",
    "tune/report/page.py": "the date of a report",
    "tune/store/calibrations.py": "the date of a measurement",
    "tune/store/key.py": "how old a file is",
    "tune/store/store.py": "the date of a measurement",
}


def test_only_dates_are_taken_from_the_clock_of_the_day() -> None:
    day = re.compile(r"\btime\.(time|time_ns|strftime|localtime|gmtime|ctime)\b|\bdatetime\b|CLOCK_REALTIME|st_mtime")
    found = {
        str(path.relative_to(ROOT / "src" / "ostinato"))
        for path in (ROOT / "src" / "ostinato").rglob("*.py")
        if day.search(path.read_text())
    }
    assert found <= set(OF_THE_DAY)
    cpp = re.compile(r"system_clock|CLOCK_REALTIME|gettimeofday|\btime\((?:nullptr|NULL|0)\)|timed_wait|clock_t\b")
    files = [path for kind in ("*.cpp", "*.h") for root in ("core", "src") for path in (ROOT / root).rglob(kind)]
    assert files
    assert [path.name for path in files if cpp.search(path.read_text())] == []


@pytest.mark.slow
@pytest.mark.parametrize("jumps", [1e9, -1e9, 0.0])
def test_a_search_does_not_notice_that_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, jumps: float) -> None:
    """Forwards or backwards at each look at it, or it stands still; here and in the worker."""
    looks = itertools.count(1)
    begin = time.time()
    monkeypatch.setattr(time, "time", lambda: max(0.0, begin + next(looks) * jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    candidates = [
        ost.Candidate.call("tune.mean:sets_the_clock", {"n": 1}),
        ost.Candidate.call("tune.mean:naps", {"n": 2}),
        ost.Candidate.call("tune.mean:naps", {"n": 600_000}),
        ost.Candidate.command(["sh", "-c", "echo OP:op,TIME:1,WS:0"]),
        ost.Candidate.command(["sleep", "600"]),
    ]
    began = time.monotonic()
    with ost.Tuner("sim:a", timeout=2, progress=False, policy=QUICK) as tuner:
        report = tuner.tune("op", candidates, budget=60)
    assert [str(result.status) for result in report.results] == ["ok", "ok", "hang_killed", "ok", "hang_killed"]
    assert 4 <= report.seconds <= time.monotonic() - began < 60
    assert 2e6 <= min(report.results[1].samples) < 1e9
    assert report.table()


def test_a_budget_is_spent_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with ost.Tuner("sim:a", timeout=30, progress=False, policy=QUICK, store=False) as tuner:
        report = tuner.tune("op", [ost.Candidate.call("tune.mean:naps", {"n": 600_000})], budget=1)
    assert [str(result.status) for result in report.results] == ["cancelled"]
