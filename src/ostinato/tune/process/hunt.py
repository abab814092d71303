"""Killing processes by descriptors: a number may be another process's by the time that a signal is sent to it."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["kill_descendants", "kill_group", "open_child"]

_PROCESS_GROUP = 1 << 2  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9
_LEADER_SECONDS = 0.5


def kill_descendants(pid: int) -> bool:
    """Kill all that descend from a child of this process, but not the child; return whether any were alive.

    Orphans must come back to the child as their subreaper, or they are missed.
    """
    found = False
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in _children(parent):
            waiting.append(child)
            try:
                descriptor = os.pidfd_open(child)
            except OSError:  # it has ended
                continue
            try:
                state, now = _state(child)
                if now in (parent, pid) and state not in "ZX":
                    found = True
                    with suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
    return found


def open_child(pid: int, parent: int) -> int:
    """Return a descriptor of a process that has this parent; -1 if there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return -1
    if _state(pid)[1] == parent:
        return descriptor
    os.close(descriptor)
    return -1


def kill_group(leader: int, pid: int) -> None:
    """Kill the process group of a leader, which may have ended: `leader` is its descriptor, and `pid` its number."""
    try:
        signal.pidfd_send_signal(leader, signal.SIGKILL, None, _PROCESS_GROUP)
    except (ProcessLookupError, PermissionError):
        return
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A group keeps its number from being used again, and so does its leader until it is waited for.
        end = time.monotonic() + _LEADER_SECONDS
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
            if not select.select([leader], [], [], 0)[0]:  # it is alive, and so the number is its own
                break
            time.sleep(0.001)
        else:
            if os.path.exists(f"/proc/{pid}"):
                return  # another process has the number
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, thread.read_text().split())
    return found


def _state(pid: int) -> tuple[str, int]:
    """Return the letter of a process's state, and its parent; X if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError, ValueError):
        return "X", 0
