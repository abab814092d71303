"""What the numbers were taken with: machine, versions, and how busy others kept the machine."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import Peer, compiler

_TICKS = os.sysconf("SC_CLK_TCK")


def _first_line(path: str, key: str = "") -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() if key else line for line in lines if line.startswith(key)), None)


def revision(directory: Path) -> str | None:
    """Return what is checked out there."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return told.stdout.strip()


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(peers: dict[str, Peer]) -> dict[str, Any]:
    """Return what a reader needs to judge the numbers."""
    names = ("ostinato", "numpy", "numba", "dask", "distributed", "ray", "warp-lang", "pyopencl")
    packages = {name: _installed(name) for name in names}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        },
        "versions": {
            "python": platform.python_version(),
            "compiler": compiler(),
            "revision": revision(Path(__file__).parent),
            **{name: version for name, version in packages.items() if version},
            **{name: peer.version for name, peer in peers.items() if peer.version != "C++"},
        },
    }


def leave_a_core_to_who_issues() -> None:
    """Have PoCL, where it is the device, use all cores but one, unless the user wants it otherwise. It looks once."""
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(max(1, len(os.sched_getaffinity(0)) - 1)))


class OthersLoad:
    """How much of the machine other processes used while this was open."""

    def __enter__(self) -> OthersLoad:
        self._begin = self._now()
        return self

    def __exit__(self, *error: object) -> None:
        wall, busy, own = np.subtract(self._now(), self._begin)
        self.share = max(0.0, float(busy - own) / float(wall * (os.cpu_count() or 1)))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Wall time, and processor time of everybody and of this process and its children, in seconds."""
        fields = [int(word) for word in (_first_line("/proc/stat") or "cpu 0 0 0 0").split()[1:]]
        user, nice, system = fields[:3]
        steal = sum(fields[7:8])
        times = os.times()
        return time.monotonic(), (user + nice + system + steal) / _TICKS, sum(times[:4])
