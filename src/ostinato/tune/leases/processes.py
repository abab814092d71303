"""Processes as /proc shows them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the children of a process, whichever of its threads made them."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, thread.read_text().split())
    return found


def descendants(pid: int) -> set[int]:
    """Return a process and all that descend from it, as far as they are still there.

    Examples
    --------
    >>> import os
    >>> os.getpid() in descendants(os.getpid())
    True
    """
    found = {pid}
    waiting = [pid]
    while waiting:
        new = set(children(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def fields(pid: int) -> list[str]:
    """Return what /proc/PID/stat says after the name: state, parent and so on; nothing if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()  # the name may hold anything
    except OSError:
        return []
