"""Once a second, tells ``ostinato top``, which has started this process, how busy the process's machines are."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from ostinato.environment import ACTIVITY_PIPE

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.view.top import MachineActivity, Sample

_INTERVAL = 1.0  # seconds


class _Counters(Protocol):
    """Those of a program on one device."""

    @property
    def name(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def copies(self) -> int: ...
    @property
    def copied_bytes(self) -> int: ...


class _Statistics(Protocol):
    @property
    def devices(self) -> Iterable[_Counters]: ...


class _Engine(Protocol):
    number: int

    def statistics(self) -> _Statistics: ...


class Workers(Protocol):
    """The part of a machine's threads and devices that `Activity` reads."""

    core: _core.Machine
    closed: bool

    @property
    def known_devices(self) -> Sequence[object] | None:
        """None if the devices were not looked for yet."""

    @property
    def engines(self) -> Iterable[_Engine]:
        """The engines of the machine's programs."""


class Activity:
    """Writes a `Sample` to the pipe every second, and when a machine is closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._machines: dict[int, tuple[int, weakref.ref[Workers]]] = {}  # those that may still do something
        self._made = 0
        self._devices: dict[int, dict[str, list[int]]] = {}  # by program
        self._thread: threading.Thread | None = None

    def watch(self, workers: Workers) -> None:
        """Tell what a machine does from now on."""
        with self._lock:
            self._made += 1
            self._machines[self._made] = workers.core.activity()[0], weakref.ref(workers)
            if self._thread is None and os.getpid() == self._process:
                self._thread = threading.Thread(target=self._tell_often, name="ostinato top", daemon=True)
                self._thread.start()

    def tell(self) -> None:
        """Write a line."""
        if os.getpid() != self._process:
            return  # a forked child: its machines are not those that are watched
        import json  # only processes that are watched need it

        with self._lock:
            if self._descriptor < 0:
                return
            line = json.dumps(self._sample(), separators=(",", ":")) + "\n"
            try:
                os.write(self._descriptor, line.encode())
            except OSError:  # the reader has ended
                self._descriptor = -1

    def _tell_often(self) -> None:
        pause = threading.Event()
        while self._descriptor >= 0:
            self.tell()
            pause.wait(_INTERVAL)

    def _sample(self) -> Sample:
        machines: dict[str, MachineActivity] = {}
        for number, (begun, found) in list(self._machines.items()):
            workers = found()
            if workers is None or workers.core.forked:
                del self._machines[number]
                continue
            now, idle, steps, runs = workers.core.activity()
            busy = [now - begun - each for each in idle]
            machines[str(number)] = {"ns": now - begun, "busy": busy, "steps": steps, "runs": runs}
            for engine in list(workers.engines) if workers.known_devices else ():
                counts = {
                    each.name: [each.calls, each.copies, each.copied_bytes] for each in engine.statistics().devices
                }
                self._devices[engine.number] = counts
            if workers.closed and runs == 0:
                del self._machines[number]
        devices: dict[str, list[int]] = {}
        for program in self._devices.values():
            for name, of_program in program.items():
                devices[name] = [a + b for a, b in zip(of_program, devices.get(name, (0, 0, 0)), strict=True)]
        return {"machines": machines, "devices": devices}


_is_observed = ContextVar("_is_observed", default=True)


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Leave the machines and programs that are made meanwhile out of `top` and of traces: Ostinato measures with them.

    Users do not know of them.
    """
    token = _is_observed.set(False)
    try:
        yield
    finally:
        _is_observed.reset(token)


def is_observed() -> bool:
    """Whether machines and programs that are made now are the user's."""
    return _is_observed.get()


def process_activity() -> Activity | None:
    """Return the `Activity` for machines that are made now; None if ``ostinato top`` has not started this process."""
    return _asked_for() if is_observed() else None


@functools.cache
def _asked_for() -> Activity | None:
    # Taken away: processes that this one starts are not watched, and have no such descriptor.
    number = os.environ.pop(ACTIVITY_PIPE, "")
    if not number.isdigit():
        return None
    try:
        os.set_inheritable(int(number), False)
    except OSError:
        return None
    return Activity(int(number))
