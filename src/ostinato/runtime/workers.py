"""The CPUs and devices of a machine, and the threads that serve them, as programs and runs use them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.devices.device import is_usable
from ostinato.environment import cores_are_shared
from ostinato.errors import ContractError, DeviceError
from ostinato.runtime.outcome import LeastFailure, log_failure, wait_for_all
from ostinato.runtime.run import Explain, Unretrieved
from ostinato.view.activity import process_activity

if TYPE_CHECKING:
    from ostinato.devices.array import DeviceArray
    from ostinato.devices.device import Device
    from ostinato.runtime.engine import ProgramStatistics


class Memory(NamedTuple):
    """A memory that processors share."""

    name: str

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> Any:
        """Return a new array in this memory, its contents undefined.

        In the memory of the CPUs, that is a NumPy array. In that of a device, it is an array whose elements are there:
        tasks on that device get it as it is, others get copies; ``get()`` and ``set(array)`` copy it to the host and
        back.

        Parameters
        ----------
        shape
            As for `numpy.empty`.
        dtype
            As for `numpy.empty`.

        Raises
        ------
        DeviceError
            The device has not so much memory left.
        """
        return np.empty(shape, dtype)

    @property
    def device(self) -> Device | None:
        """The device whose memory it is; None for that of the CPUs."""
        return None


class DeviceMemory(Memory):
    """The memory of a device."""

    _device: Device

    def __new__(cls, device: Device) -> DeviceMemory:
        """Return the memory of a device; it has its name."""
        memory = super().__new__(cls, device.name)
        memory._device = device
        return memory

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> DeviceArray:
        """Return a new array in this memory, its contents undefined; see `Memory.empty`."""
        from ostinato.devices.array import empty

        return empty(self._device, shape, dtype)

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return self._device


class Processor(NamedTuple):
    """A processor of a machine."""

    name: str
    kind: str
    memory: Memory

    @property
    def device(self) -> Device | None:
        """What the libraries of its kind know it by, such as ``device.context`` on OpenCL; None for a CPU."""
        return self.memory.device

    @property
    def usable(self) -> bool:
        """Whether it can be used; not a device that is lost to this process, such as by an illegal address with CUDA.

        Devices tell by failing: it is False once a `DeviceError` said so (`DeviceError.usable`).

        Examples
        --------
        >>> import ostinato as ost
        >>> with ost.Machine(cpus=2, gpus=0) as machine:
        ...     [processor.usable for processor in machine.processors]
        [True, True]
        """
        return self.device is None or is_usable(self.device)

    def __repr__(self) -> str:
        state = "" if self.usable else " (not usable)"
        return f"Processor(name={self.name!r}, kind={self.kind!r}, memory={self.memory!r}){state}"


HOST = Memory("host")


def processors_of(devices: Iterable[Device]) -> tuple[Processor, ...]:
    return tuple(Processor(device.name, device.kind, DeviceMemory(device)) for device in devices)


class Engine(Protocol):
    """What runs a program, as far as its machine is concerned."""

    number: int
    """In the order in which they were made."""

    def statistics(self) -> ProgramStatistics:
        """Return a snapshot of its counters."""

    @property
    def steps_run(self) -> int:
        """How many steps it has run."""

    def close(self, cancel: bool) -> None:
        """Wait for its runs, cancelled before if `cancel`, and end it."""

    def take_failures(self) -> list[BaseException]:
        """Return the failures that nobody has retrieved; from then on they count as retrieved."""


class Workers:
    """The processors of a machine, its `count` threads in the core, and what has to end with them.

    If `devices` is None, those that are usable are looked for when they are first needed.
    """

    def __init__(
        self, count: int, cores: Sequence[int], devices: Sequence[Device] | None, init: Callable[[], object] | None
    ) -> None:
        self.crowded = count > len(cores) or cores_are_shared()
        self.cpus = tuple(Processor(f"cpu:{i}", "cpu", HOST) for i in range(count))
        self.known_devices = None if devices is None else processors_of(devices)
        pinned = [-1] * count if self.crowded else cores[:count]
        self._init = _Init(init) if init is not None else None
        self._activity = process_activity()
        bound = os.sched_getaffinity(0)
        try:
            if not bound.issuperset(cores):  # threads inherit what OpenMP bound this one to
                os.sched_setaffinity(0, cores)
            on_worker = self._init.on_worker if self._init else None
            self.core = _core.Machine(pinned, self.crowded, on_worker, self._activity is not None)
        finally:
            os.sched_setaffinity(0, bound)
        self.engines: weakref.WeakSet[Engine] = weakref.WeakSet()
        self.closed = self._ended = False
        self.in_block = False
        self.unretrieved = Unretrieved()  # spawned tasks
        self._failures = LeastFailure()  # of runs whose program is no more
        _all.add(self)
        if self._init is not None:
            self._init.wait(count)
        if self._activity is not None:
            self._activity.watch(self)

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The processors, CPUs first."""
        if self.known_devices is None:
            from ostinato.devices.device import usable

            self.known_devices = processors_of(usable())
        return self.cpus + self.known_devices

    def devices(self) -> tuple[Device, ...]:
        """Return the devices."""
        return tuple(processor.device for processor in self.processors if processor.device is not None)

    def check_open(self) -> None:
        """Raise if the machine is closed, or is that of the parent process."""
        if self.closed:
            raise RuntimeError("this machine is closed")
        if self.core.forked:
            raise RuntimeError("this process was forked after the machine was made; make a Machine in the child")

    @property
    def prepare_caller(self) -> Callable[[], object] | None:
        """What the calling thread calls before it runs tasks; None where there is nothing to prepare."""
        return None if self._init is None else self._init.on_caller

    def keep_failure(self, error: BaseException) -> None:
        """Keep a failure that nobody can retrieve any more for the end of the machine's block; outside of one, log."""
        if self.in_block:
            self._failures.add(error)
        else:
            log_failure(error)

    def take_failures(self) -> list[BaseException]:
        """Return all failures that nobody has retrieved; from then on they count as retrieved."""
        errors = self._failures.take()
        for engine in list(self.engines):
            errors += engine.take_failures()
        return errors + self.unretrieved.take(lambda core: core.exception)

    def close(self, cancel: bool) -> None:
        """Close the machine's programs, which waits for their runs and for spawned tasks, and end its threads."""
        if self._ended:
            return
        if _core.serving() or _core.on_own_thread(self.core):
            raise ContractError("a task cannot close its own machine")
        self.closed = True
        if not self.core.forked:
            for spawned in _core.spawned(self.core) if cancel else ():
                spawned.cancel()
            # In the order in which they were made: ranks close programs together.
            for engine in sorted(self.engines, key=lambda engine: engine.number):
                engine.close(cancel)
            _core.refuse_spawns(self.core)
            # Runs of programs that nobody holds any more, and spawned tasks.
            left = [*self.core.in_flight(), *_core.spawned(self.core)]
            for run in left if cancel else ():
                run.cancel()
            wait_for_all(left, cancel)
            if self._activity is not None:
                self._activity.tell()
        self.core.close()
        self._ended = True  # not before: interrupted, this may be called again


def report_at_end(workers: Workers, core: _core.Run | _core.Spawned, explain: Explain) -> None:
    """Report how a run ended when it has, without keeping its program or its machine."""
    owner = weakref.ref(workers)

    def report() -> None:
        if core.unretrieved:
            error = cast(BaseException, explain(core))
            core.retrieve()
            keep = log_failure if (found := owner()) is None else found.keep_failure
            keep(error)

    if not core.set_callback(report):
        report()


def devices_of(count: int) -> tuple[Device, ...]:
    """Return so many devices."""
    if count == 0:
        return ()
    from ostinato.devices.device import format_reasons, usable

    found = usable()
    if len(found) < count:
        names = ", ".join(device.name for device in found) or "none"
        raise DeviceError(f"gpus={count} was asked for; the devices that can be used here: {names}{format_reasons()}")
    return found[:count]


class _Init:
    """The user's `init` function, called once a thread."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._done = threading.local()
        self._workers = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._made = False

    def on_worker(self) -> None:
        try:
            self.on_caller()
        except BaseException as error:
            if self._made:
                raise  # a thread that was made later: told by sys.unraisablehook
            self._error = error  # told to whoever makes the machine
        finally:
            self._workers.release()

    def on_caller(self) -> None:
        if not getattr(self._done, "yes", False):
            self._function()
            self._done.yes = True

    def wait(self, workers: int) -> None:
        for _ in range(workers):
            self._workers.acquire()
        self._made = True
        if self._error is not None:
            raise self._error


_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def steps_run() -> tuple[int, int] | None:
    """Return how many programs there are and how many steps they have run; None while a run is in flight."""
    engines: list[Engine] = []
    for workers in list(_all):
        if not (workers.closed or workers.core.forked):
            if workers.core.in_flight():
                return None
            engines += list(workers.engines)
    return len(engines), sum(engine.steps_run for engine in engines)


def close_all() -> None:
    """Cancel what runs on any machine, and close them all."""
    for workers in list(_all):
        cut_short = [] if workers.core.forked else workers.core.in_flight()
        workers.close(cancel=True)
        for run in cut_short:  # a failure that came of this is nobody's concern
            run.retrieve()
