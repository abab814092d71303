"""How much memory may be taken before others on this host are in want of it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["spare_memory"]


def spare_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes are to be had, as the kernel and the control group have it; None if nobody can tell.

    Examples
    --------
    >>> spare_memory() > 0
    True
    """
    said = _available(root / "proc/meminfo"), _in_group(root / "sys/fs/cgroup")
    return min((each for each in said if each is not None), default=None)


def _available(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def _in_group(directory: Path) -> int | None:
    for most, taken in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int((directory / most).read_text()) - int((directory / taken).read_text()))
        except (OSError, ValueError):  # there is no such group, or its limit is "max"
            continue
    return None
