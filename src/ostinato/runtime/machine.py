"""The machine: processors, their memories, and the threads that serve them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.cores import usable_cores
from ostinato.devices.discovery import check_usable, is_usable
from ostinato.errors import ContractError, DeviceError
from ostinato.integers import integer, priority_of
from ostinato.runtime.outcome import wait_for_all
from ostinato.runtime.spawn import ANYWHERE, SpawnedOp, SpawnedRun, error_of, spawn
from ostinato.runtime.unretrieved import Unretrieved, raise_failures, report_failure

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable
    from ostinato.devices.array import DeviceArray
    from ostinato.devices.device import Device
    from ostinato.events import Event
    from ostinato.runtime.program import Program
    from ostinato.runtime.run import Run

__all__ = ["HOST", "DeviceMemory", "Machine", "Memory", "Processor", "default_machine", "processor_of"]


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

    @property
    def _state(self) -> str:
        return "" if self.usable else " (not usable)"

    def __repr__(self) -> str:
        return f"Processor(name={self.name!r}, kind={self.kind!r}, memory={self.memory!r}){self._state}"


HOST = Memory("host")


def processor_of(device: Device) -> Processor:
    """Return the processor that a device is."""
    return Processor(device.name, device.kind, DeviceMemory(device))


_MOST_THREADS = 4096  # of a machine: more are a mistake, and would take all memory


class Machine:
    """Processors that run programs.

    Parameters
    ----------
    cpus
        How many CPU processors; at most so many threads are in tasks at once, a caller in ``replay`` counted. None:
        as many as the affinity mask and the control group's quota allow. More than there are cores is slower, never
        wrong.
    gpus
        How many devices. None: all that are usable, OpenCL devices that are CPUs included; they are looked for when
        they are first needed. 0: none.
    init
        Called once on every thread that runs tasks, before its first.

    Raises
    ------
    DeviceError
        There are fewer devices than `gpus` asks for.

    Examples
    --------
    >>> import ostinato as ost
    >>> with ost.Machine(cpus=2, gpus=0) as machine:
    ...     [processor.name for processor in machine.processors]
    ['cpu:0', 'cpu:1']
    """

    _cpus: tuple[Processor, ...] = ()  # what `repr` shows where `__init__` failed
    _devices: tuple[Processor, ...] | None = None
    _closed = False

    def __init__(
        self, cpus: int | None = None, gpus: int | None = None, init: Callable[[], object] | None = None
    ) -> None:
        cores = usable_cores()
        count = len(cores) if cpus is None else integer("cpus", cpus, 1, max(len(cores), _MOST_THREADS))
        gpus = None if gpus is None else integer("gpus", gpus, 0)
        if init is not None and not callable(init):
            raise TypeError(f"init must be a function without arguments, got {init!r}")
        crowded = count > len(cores)
        self._devices = None if gpus is None else tuple(map(processor_of, _devices(gpus)))
        # All cores but the first are pinned to: there the caller of replay() is at home, whose affinity is its own.
        pinned = [-1] * count if crowded else [-1, *cores[1:count]]
        self._init = _Init(init) if init is not None else None
        self._core = _core.Machine(pinned, crowded, self._init.on_worker if self._init else None)
        self._cpus = tuple(Processor(f"cpu:{i}", "cpu", HOST) for i in range(count))
        self._programs: weakref.WeakSet[Program] = weakref.WeakSet()
        self._closed = self._ended = self._in_block = False
        self._unretrieved = Unretrieved()  # spawned tasks
        self._failures: list[BaseException] = []  # of runs whose program is no more
        self._crowded = crowded
        _machines.add(self)
        if self._init is not None:
            self._init.wait(count)

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The processors, CPUs first."""
        if self._devices is None:
            from ostinato.devices.discovery import usable

            self._devices = tuple(map(processor_of, usable()))
        return self._cpus + self._devices

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories of the processors, each once."""
        return tuple(dict.fromkeys(processor.memory for processor in self.processors))

    def processor(self, name: str) -> Processor:
        """Return a processor by name.

        Raises
        ------
        ValueError
            There is none of that name.
        """
        for processor in self._cpus if str(name).startswith("cpu:") else self.processors:
            if processor.name == name:
                return processor
        from ostinato.devices.discovery import told_reasons

        names = ", ".join(processor.name for processor in self.processors)
        raise ValueError(f"this machine has no processor {name!r}; it has {names}{told_reasons()}")

    def spawn(
        self,
        task: Callable[..., Any],
        *args: Any,
        on: Processor | str | None = None,
        after: Event | Run | None = None,
        priority: int = 0,
    ) -> SpawnedRun:
        """Run a single task, outside graphs, on the machine's threads.

        It may be called from anywhere, running tasks included. The task runs in a copy of the caller's `contextvars`
        context, whether or not anybody holds the `Run`. Among what is ready, the most urgent is next, and the older one
        of equals; nothing is passed over for ever (see "Who is next" in the documentation's Concepts).

        Parameters
        ----------
        task
            A task of any kind. One declared ``blocking=True`` gets a thread of its own.
        *args
            What it is called with; arrays that it only reads are passed read-only.
        on
            A processor, or its name: the task runs there and nowhere else. Or a kind, such as ``"cpu"``. A task that
            runs on a device has a thread of its own, and has ended when the device is done.
        after
            An event, or a run, to come after. If that is poisoned, the task does not run.
        priority
            Higher is more urgent.

        Returns
        -------
        Run
            A future of what the task returns.

        Raises
        ------
        RuntimeError
            The machine is closed.

        Examples
        --------
        >>> import ostinato as ost
        >>> @ost.task
        ... def add(x, y):
        ...     return x + y
        >>> with ost.Machine(cpus=1) as machine:
        ...     first = machine.spawn(add, 1, 2)
        ...     second = machine.spawn(add, 3, 4, after=first)
        ...     first.result(), second.result()
        (3, 7)
        """
        return spawn(self, task, args, self._place(on), after, priority_of(priority), sys._getframe(1))

    def _found_devices(self) -> tuple[Device, ...]:
        """Return the machine's devices."""
        return tuple(processor.device for processor in self.processors if processor.device is not None)

    def _check_usable(self, executable: Executable) -> None:
        """Raise if a schedule uses a device that is lost."""
        for device in executable.step.staged.used if executable.step.staged is not None else ():
            check_usable(device)

    def _place(self, on: Processor | str | None) -> int | Device:
        """Return the number of a CPU, a device, or `ANYWHERE` among the CPUs."""
        if on is None or on == "cpu":
            return ANYWHERE
        if isinstance(on, str):
            of_kind = None if on.startswith("cpu:") else next((p for p in self.processors if p.kind == on), None)
            on = of_kind or self.processor(on)
        if not isinstance(on, Processor):
            raise TypeError(f"on must be a processor, its name or a kind, got {on!r}")
        if on.device is None and on in self._cpus:
            return self._cpus.index(on)
        if on.device is None or on not in self.processors:
            raise ValueError(f"on must be a processor of this machine, got {on.name!r}")
        return on.device

    def close(self) -> None:
        """Close the machine's programs, which waits for their runs and for spawned tasks, and end its threads."""
        self._close(cancel=False)

    def _close(self, cancel: bool) -> None:
        if self._ended:
            return
        if _core.serving() or _core.on_own_thread(self._core):
            raise ContractError("a task cannot close its own machine")
        self._closed = True
        if not self._core.forked:
            if cancel:
                _cancel(_core.spawned(self._core))
            for program in list(self._programs):
                program._close(cancel)
            _core.refuse_spawns(self._core)
            # Runs of programs that nobody holds any more, and spawned tasks.
            left = [*self._core.in_flight(), *_core.spawned(self._core)]
            if cancel:
                _cancel(left)
            wait_for_all(left, cancel)
        self._core.close()
        self._ended = True  # not before: interrupted, this may be called again

    def __enter__(self) -> Machine:
        self._check_open()
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(cancel=kind is not None)
        self._in_block = False
        raise_failures(self._take_failures(), error)

    def __repr__(self) -> str:
        devices = "".join(f", {each.name}{each._state}" for each in self._devices or ())  # looks for none
        return f"<Machine of {len(self._cpus)} CPUs{devices}{', closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this machine is closed")
        if self._core.forked:
            raise RuntimeError("this process was forked after the machine was made; make a Machine in the child")

    def _drop(self, core: _core.Spawned, op: SpawnedOp) -> None:
        """Nobody holds a spawned task any more: its failure is raised at the end of a block, or logged."""
        if self._core.forked:
            return  # the task is the parent's
        if self._in_block:
            self._unretrieved.drop(core, op)
        elif not core.done:
            owner = weakref.ref(self)

            def report() -> None:
                if core.unretrieved:
                    report_failure(owner(), cast(BaseException, error_of(core, op)))

            if not core.set_callback(report):
                report()

    def _take_failures(self) -> list[BaseException]:
        """Return all failures that nobody has retrieved; from then on they count as retrieved."""
        errors, self._failures = self._failures, []
        for program in list(self._programs):
            errors += program._take_failures()
        for core, op in self._unretrieved.failed():
            errors.append(cast(BaseException, error_of(cast("_core.Spawned", core), cast(SpawnedOp, op))))
            core.retrieve()
        return errors

    def _prepare_caller(self) -> None:
        """Before the calling thread runs tasks."""
        if self._init is not None:
            self._init.on_caller()


def _devices(count: int) -> tuple[Device, ...]:
    """Return so many devices."""
    if count == 0:
        return ()
    from ostinato.devices.discovery import told_reasons, usable

    found = usable()
    if len(found) < count:
        names = ", ".join(device.name for device in found) or "none"
        raise DeviceError(f"gpus={count} was asked for; the devices that can be used here: {names}{told_reasons()}")
    return found[:count]


def _cancel(runs: Sequence[_core.Run | _core.Spawned]) -> None:
    for run in runs:
        run.cancel()


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


_machines: weakref.WeakSet[Machine] = weakref.WeakSet()
_default: Machine | None = None
_default_lock = threading.Lock()


def default_machine() -> Machine:
    """Return the process's default machine, made when first asked for: everything usable on this host."""
    global _default
    with _default_lock:
        if _default is None or _default._closed or _default._core.forked:
            _default = Machine()
        return _default


def steps_run() -> tuple[int, int] | None:
    """Return how many programs there are and how many steps they have run; None while a run is in flight."""
    programs = []
    for machine in list(_machines):
        if not (machine._closed or machine._core.forked):
            if machine._core.in_flight():
                return None
            programs += list(machine._programs)
    return len(programs), sum(core.steps_run for program in programs for core in program._cores)


def close_all() -> None:
    """Cancel what runs on any machine, and close them all."""
    for machine in list(_machines):
        cut_short = [] if machine._core.forked else machine._core.in_flight()
        machine._close(cancel=True)
        for run in cut_short:  # a failure that came of this is nobody's concern
            run.retrieve()
