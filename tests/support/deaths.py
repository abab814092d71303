"""A search in processes of its own, of which one is killed: what is left of it, and that another one resumes."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

COUNT = 400
SEARCH = f"""
import ostinato as ost
naps = [ost.Candidate.call("tune.candidates:sleeping", {{"seconds": 0.01 + n / 1000}}) for n in range({COUNT})]
policy = ost.Policy(min_samples=3, max_seconds=0.05)
with ost.Tuner("sim:a,sim:b", store="tune.db", fleet=FLEET, policy=policy, progress=False) as tuner:
    print("begin", flush=True)
    report = tuner.tune("nap", naps)
print(sum(result.cached for result in report.results), len(report.results), report.best is not None)
"""


class Marked:
    """Processes that have a mark in their environment, and those that they start."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = {"OSTINATO_TEST_MARK": self.mark}

    def left(self) -> list[str]:
        """Return the commands of the workers and reapers that are there."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if self.mark.encode() in environment and (b"tune/worker" in command or b"reaper" in command):
                found.append(command.replace(b"\0", b" ").decode())
        return found

    def assert_none_left(self, since: float) -> None:
        """Wait until nothing of a search that has died is left, 10 s after it died at the latest."""
        while left := self.left():
            assert time.monotonic() < since + 10.0 + 10.0 * (os.getloadavg()[0] > 2), left
            time.sleep(0.05)


def assert_resumed(out: str, error: str) -> None:
    """Check what a search printed that found a part of its results in the store."""
    cached, count, best = out.split()
    assert (count, best) == (str(COUNT), "True"), error
    assert 0 < int(cached) < COUNT
