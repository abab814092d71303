"""Processes that compute on a device without asking for a lease."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from ostinato.tune.lease.device import Device
from ostinato.tune.lease.nvml import nvml

__all__ = ["ForeignProcesses", "descendants"]

PID_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's number of the namespace that the host itself has


class ForeignProcesses:
    """Looks for processes on a CUDA device, where ``nvidia-ml-py`` is installed.

    In a container with process numbers of its own it finds none: the library tells the host's numbers, which cannot be
    compared. Contention for cores shows as preemption instead, where times are measured.

    Parameters
    ----------
    device
        The device.

    Examples
    --------
    >>> from ostinato.tune.lease.devices import devices
    >>> ForeignProcesses(devices("cpu:0")[0]).pids(set)
    []
    """

    def __init__(self, device: Device) -> None:
        self._module = nvml() if device.kind == "cuda" and _counts_like_the_host() else None
        self._uuid = device.identities[0]

    def pids(self, ours: Callable[[], Collection[int]]) -> list[int]:
        """Return the processes on the device that are none of ours, sorted; `ours` is asked only if there is a way to
        know."""
        module = self._module
        if module is None:
            return []
        try:
            handle = module.nvmlDeviceGetHandleByUUID(self._uuid)
            running = {process.pid for process in module.nvmlDeviceGetComputeRunningProcesses(handle)}
        except module.NVMLError:
            return []
        return sorted(running.difference(ours()))


def descendants(pid: int) -> set[int]:
    """Return a process and all that descend from it, as far as they are still there.

    Examples
    --------
    >>> os.getpid() in descendants(os.getpid())
    True
    """
    found = {pid}
    waiting = [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                children = set(map(int, task.read_text().split())) - found
                found |= children
                waiting += children
    return found


def _counts_like_the_host() -> bool:
    try:
        return os.readlink(PID_NAMESPACE) == _FIRST_NAMESPACE
    except OSError:
        return False
