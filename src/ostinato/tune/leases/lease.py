"""Leases: a device belongs to one holder at a time, whichever thread or process it is in."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from ostinato.tune.leases import lock_file
from ostinato.tune.leases.cuda import nvml
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.lock_file import Holder

PID_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's number of the namespace that the host itself has


class ForeignProcesses:
    """Looks for processes that compute on a CUDA device, where ``nvidia-ml-py`` is installed.

    A process that only has memory there, such as a notebook's, disturbs nobody. Where the driver does not tell what
    each process computes, as of a part of a GPU, every process counts.

    In a container with process numbers of its own it finds none: the library tells the host's numbers, which cannot be
    compared. Contention for cores shows as preemption instead, where times are measured.

    Examples
    --------
    >>> from ostinato.tune.leases.devices import devices
    >>> ForeignProcesses(devices("cpu:0")[0]).pids(set, 1.0)
    []
    """

    def __init__(self, device: Device) -> None:
        self._module = nvml() if device.kind == "cuda" and _counts_like_the_host() else None
        self._uuid = device.identities[0]

    def pids(self, ours: Callable[[], Collection[int]], seconds: float) -> list[int]:
        """Return the processes that computed in the last `seconds` and are not `ours`, sorted; none if unknown."""
        module = self._module
        if module is None:
            return []
        try:
            handle = module.nvmlDeviceGetHandleByUUID(self._uuid)
            running = {process.pid for process in module.nvmlDeviceGetComputeRunningProcesses(handle)}
        except module.NVMLError:
            return []
        others = running.difference(ours())
        if others:
            try:
                samples = module.nvmlDeviceGetProcessUtilization(handle, int((time.time() - seconds) * 1e6))
                others &= {sample.pid for sample in samples if sample.smUtil}
            except module.NVMLError_NotFound:  # there are no samples: nobody computed
                return []
            except module.NVMLError:
                pass
        return sorted(others)


def _counts_like_the_host() -> bool:
    try:
        return os.readlink(PID_NAMESPACE) == _FIRST_NAMESPACE
    except OSError:
        return False


# A lock without a known holder may be that of somebody who is about to write his name, to give it back because he
# needs others that are taken, or who only looks (see holders): it is asked again before it counts.
_TRIES = 5
_PAUSE = 0.001

_SHORTEST_WAIT = 0.02
_LONGEST_WAIT = 0.2

# Held while descriptors are opened and closed, and while a process forks: a child knows all that it inherited. It can
# be entered twice, because a signal's handler may fork.
_files_change = threading.RLock()
_held: weakref.WeakSet[Lease] = weakref.WeakSet()


class Lease:
    """The right to use a device alone.

    It is held for all the device's identities or for none, taken in sorted order and never waited for while some
    are held, so overlapping sets of cores cannot deadlock. The kernel gives it back when its holder dies. A child that
    `os.fork` makes holds nothing: what it calls on a lease it inherited raises `RuntimeError`.

    Parameters
    ----------
    device
        The device.

    Examples
    --------
    >>> from ostinato.tune.leases.devices import devices
    >>> device = devices("sim:lease-example")[0]
    >>> with Lease(device):
    ...     print(Lease(device).try_acquire().identity)
    sim:lease-example
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._files: tuple[int, ...] = ()
        self._pid = os.getpid()

    @property
    def files(self) -> tuple[int, ...]:
        """Descriptors of the locked files; none while it is not held. Duplicates keep it held until `release`."""
        self._check_process()
        return self._files

    def try_acquire(self) -> Holder | None:
        """Take the device if it is free and return None, else return the holder, which may be this lease.

        Raises
        ------
        DeviceError
            If a lock file cannot be used at all.
        """
        for left in reversed(range(_TRIES)):
            holder = self._take()
            if holder is None or holder.running or not left:
                break
            time.sleep(_PAUSE)
        return holder

    def acquire(self, timeout: float | None = None, waiting: Callable[[Holder], None] | None = None) -> None:
        """Take the device, and wait while others hold it. Those who wait have no order.

        Parameters
        ----------
        timeout
            Most seconds to wait; None: no limit.
        waiting
            Called with the holder when the waiting begins, and whenever it is another.

        Raises
        ------
        TimeoutError
            If it was not free in time.
        DeviceError
            If a lock file cannot be used at all.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = _SHORTEST_WAIT
        told = None
        while (holder := self.try_acquire()) is not None:
            if waiting is not None and holder != told:
                waiting(holder)
                told = holder
            if end is not None:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{self.device.name} is still held after {timeout} s, by {holder}")
                pause = min(pause, left)
            time.sleep(pause)
            pause = min(_LONGEST_WAIT, pause * 1.5)

    def release(self) -> None:
        """Give the device back even if there are duplicates of the descriptors; may be called when it is not held."""
        with _files_change:
            self._check_process()
            for file in self._files:
                lock_file.unlock(file)
            self.abandon()  # only now: after an interrupt it can be released once more

    def abandon(self) -> None:
        """Close the descriptors without unlocking: whoever has duplicates holds the device, until they are gone too."""
        files, self._files = self._files, ()
        for file in files:
            os.close(file)

    def __enter__(self) -> Lease:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._pid == os.getpid():  # a forked child may leave the block: there is nothing that it could give back
            self.release()

    def __del__(self) -> None:
        if self._files and self._pid == os.getpid():
            self.abandon()  # not unlocked: what runs on the device may hold duplicates until it has ended
            message = f"the lease of {self.device.name} was never released"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease is neither copied nor pickled: it would be held twice")

    def __repr__(self) -> str:
        return f"<Lease of {self.device.name}{', held' if self._files else ''}>"

    def _take(self) -> Holder | None:
        with _files_change:
            self._check_process()
            taken: list[int] = []
            try:
                for identity in sorted(set(self.device.identities)):
                    found = lock_file.try_lock(identity)
                    if isinstance(found, Holder):
                        return found
                    taken.append(found)
                for file in taken:
                    lock_file.write_holder(file)
                self._files, taken = tuple(taken), []
                _held.add(self)
                return None
            finally:
                for file in taken:
                    lock_file.unlock(file)
                    os.close(file)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError(
                f"the lease of {self.device.name} belongs to process {self._pid}, from which this one was forked: make "
                "another Lease here"
            )


def _forget_all() -> None:
    """In a forked child: drop the copies of the parent's descriptors, which would keep its devices when it dies."""
    for lease in list(_held):
        lease.abandon()
    _held.clear()
    _files_change.release()


os.register_at_fork(before=_files_change.acquire, after_in_parent=_files_change.release, after_in_child=_forget_all)
