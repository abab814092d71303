"""Which cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["usable_cores"]


def usable_cores() -> list[int]:
    """Return the cores of the affinity mask, as many as the control group's quota pays for.

    Examples
    --------
    >>> len(usable_cores()) >= 1
    True
    """
    cores = sorted(os.sched_getaffinity(0))
    quota = _quota(Path("/sys/fs/cgroup"))
    return cores if quota is None else cores[: max(1, min(len(cores), math.ceil(quota)))]


def _quota(root: Path) -> float | None:
    """Return how many cores' worth of time the control group gets; None for no limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        micros = int((root / "cpu/cpu.cfs_quota_us").read_text())
        return None if micros < 0 else micros / int((root / "cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
