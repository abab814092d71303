"""The machine: what the user makes to run programs on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ostinato.arguments import integer, priority_of
from ostinato.environment import usable_cores
from ostinato.runtime.outcome import raise_failures
from ostinato.runtime.spawn import ANYWHERE, SpawnedRun, spawn
from ostinato.runtime.workers import Memory, Processor, Workers, devices_of

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.events import Event
    from ostinato.runtime.run import Run

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

    workers: Workers  # for the rest of the package; no part of the contract

    def __init__(
        self, cpus: int | None = None, gpus: int | None = None, init: Callable[[], object] | None = None
    ) -> None:
        cores = usable_cores()
        count = len(cores) if cpus is None else integer("cpus", cpus, 1, max(len(cores), _MOST_THREADS))
        gpus = None if gpus is None else integer("gpus", gpus, 0)
        if init is not None and not callable(init):
            raise TypeError(f"init must be a function without arguments, got {init!r}")
        self.workers = Workers(count, cores, None if gpus is None else devices_of(gpus), init)

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The processors, CPUs first."""
        return self.workers.processors

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
        for processor in self.workers.cpus if str(name).startswith("cpu:") else self.processors:
            if processor.name == name:
                return processor
        from ostinato.devices.device import format_reasons

        names = ", ".join(processor.name for processor in self.processors)
        raise ValueError(f"this machine has no processor {name!r}; it has {names}{format_reasons()}")

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
        return spawn(self.workers, task, args, self._bind(on), after, priority_of(priority), sys._getframe(1))

    def _bind(self, on: Processor | str | None) -> int | Device:
        """Return the number of a CPU, a device, or `ANYWHERE` among the CPUs."""
        if on is None or on == "cpu":
            return ANYWHERE
        if isinstance(on, str):
            of_kind = None if on.startswith("cpu:") else next((p for p in self.processors if p.kind == on), None)
            on = of_kind or self.processor(on)
        if not isinstance(on, Processor):
            raise TypeError(f"on must be a processor, its name or a kind, got {on!r}")
        if on.device is None and on in self.workers.cpus:
            return self.workers.cpus.index(on)
        if on.device is None or on not in self.processors:
            raise ValueError(f"on must be a processor of this machine, got {on.name!r}")
        return on.device

    def close(self) -> None:
        """Close the machine's programs, which waits for their runs and for spawned tasks, and end its threads."""
        self.workers.close(cancel=False)

    def __enter__(self) -> Machine:
        self.workers.check_open()
        self.workers.in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.workers.close(cancel=kind is not None)
        self.workers.in_block = False
        if globals().get("raise_failures") is None:  # the interpreter is at its end, and has cleared this module
            return
        raise_failures(self.workers.take_failures(), error)

    def __repr__(self) -> str:
        if "workers" not in vars(self):
            return "<Machine that could not be made>"
        workers = self.workers
        found = workers.known_devices or ()  # looks for none
        devices = "".join(f", {each.name}{'' if each.usable else ' (not usable)'}" for each in found)
        return f"<Machine of {len(workers.cpus)} CPUs{devices}{', closed' if workers.closed else ''}>"


_default: Machine | None = None
_default_lock = threading.Lock()


def default_machine() -> Machine:
    """Return the process's default machine, made when first asked for: everything usable on this host."""
    global _default
    with _default_lock:
        if _default is None or _default.workers.closed or _default.workers.core.forked:
            _default = Machine()
        return _default
