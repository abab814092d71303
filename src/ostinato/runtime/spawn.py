"""Single tasks outside graphs, as futures."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.errors import PoisonError, TaskError, describe_error
from ostinato.events import Event, cause_of, event_of
from ostinato.events.event import limit
from ostinato.graph.context import CallSite, functions, refuse_to_run
from ostinato.graph.eager import bind_to
from ostinato.graph.recorder import Recordable, refuse_placeholder
from ostinato.graph.task import PythonTask, Task
from ostinato.runtime.outcome import log_failure
from ostinato.runtime.run import Explain, Run
from ostinato.runtime.workers import report_at_end

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.runtime.workers import Workers

ANYWHERE = -1  # of a task that is bound to no processor

_log = logging.getLogger("ostinato")

_STUCK = {
    "waiting": "waits for the event that it was spawned with as after=",
    "ready": "is ready, and waits for a thread",
    "running": "is running",
    "ended": "has ended",
}


class SpawnedOp:
    """What `TaskError.op` is for a spawned task: its name, and where it was spawned."""

    def __init__(self, name: str, call_site: CallSite) -> None:
        self.name, self.call_site = name, call_site

    def __repr__(self) -> str:
        return f"<spawned task {self.name!r}>"


class SpawnedRun(Run):
    """A single task that was spawned: a future of what it returns. Made by `Machine.spawn`."""

    def __init__(self, core: _core.Spawned, op: SpawnedOp, workers: Workers) -> None:
        self._core: _core.Spawned = core  # type: ignore[assignment]
        self._op = op
        self._owner = weakref.ref(workers)
        self._error: BaseException | None = None
        workers.unretrieved.add(self)

    def __del__(self) -> None:
        if globals().get("_drop") is None:  # the interpreter is at its end, and has cleared this module
            return
        core, workers = self._core, self._owner()
        if core.unretrieved:
            log_failure(self._ended())
        if workers is not None and (not core.done or core.unretrieved):
            _drop(workers, core, self._op)

    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._core.state == "running"

    def cancel(self) -> bool:
        """Have the task not begin, or, if it has, count as cancelled when it ends; False if it has ended already."""
        return self._core.cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the task, at most `timeout` seconds, and return what it returned.

        Raises
        ------
        TaskError
            The task raised something, which is the ``__cause__``.
        PoisonError
            The event that it was to come after is poisoned.
        concurrent.futures.CancelledError
            It was cancelled.
        TimeoutError
            It has not ended in time.
        ContractError
            A task that is not ``blocking=True`` called this.
        """
        error = self._wait(timeout)
        if error is not None:
            raise error
        return self._core.result

    @property
    def event(self) -> Event:
        """An event that happens when the task has ended; poisoned if it ends in any way but by returning."""
        if self._event is None:
            # Of nothing but the core's side: an event that held this run, which holds the event, would never end.
            self._event = Event(self._core.event(partial(_told, self._core, self._op)))
        return self._event

    @property
    def posts(self) -> dict[str, Event]:
        """Empty: a single task has no postconditions."""
        return {}

    @property
    def steps_done(self) -> int:
        """1 when the task has returned, else 0."""
        return int(self._core.done and self._ended() is None)

    @property
    def profile(self) -> None:
        """None: runs of programs have profiles."""
        return None

    def stuck(self) -> str:
        """Return what the task waits for, as text."""
        return f"task {self._op.name!r} {_STUCK[self._core.state]}"

    def __repr__(self) -> str:
        return f"<Run of spawned task {self._op.name!r}, {self._core.state}>"

    def _wait(self, timeout: float | None) -> Any:
        if not self._core.wait(limit(timeout)):
            raise TimeoutError(f"spawned task {self._op.name!r} has not ended in {timeout} s")
        self._core.retrieve()
        return self._ended()

    def _ended(self) -> Any:  # what `result` raises, or None: it may return anything
        with self._lock:
            if self._error is None:
                self._error = error_of(self._core, self._op)
        return self._error

    @property
    def _explain(self) -> Explain:
        return partial(error_of, op=self._op)

    def _call(self, fn: Callable[[Run], object]) -> None:
        self._core.retrieve()
        try:
            fn(self)
        except Exception:
            _log.exception("a callback of %r raised", self)


def spawn(
    workers: Workers,
    task: object,
    args: tuple[Any, ...],
    place: int | Device,
    after: Event | Run | None,
    priority: int,
    frame: FrameType,
) -> SpawnedRun:
    """Spawn a task; see `Machine.spawn`."""
    if functions:
        refuse_to_run("spawn()")
    if not isinstance(task, Recordable):
        raise TypeError(f"task must be a task, got {task!r}: decorate the function with @ostinato.task")
    for value in args:
        refuse_placeholder(value, task.name)
    if isinstance(task, Task):  # raises what a call with these arguments would
        if len(args) != len(task.modes):
            task.complete(args, {})
        if any(mode and type(value) is not np.ndarray for value, mode in zip(args, task.modes, strict=False)):
            task.passed(args, {})
    event = None if after is None else event_of(after)
    blocking = isinstance(task, PythonTask) and task.blocking
    if not isinstance(place, int):
        core = _core.spawn(workers.core, _OnDevice(task, place), args, event, priority, ANYWHERE, True)
        return SpawnedRun(core, SpawnedOp(task.name, CallSite(frame)), workers)
    if getattr(task, "stream", None) is not None:
        if place != ANYWHERE:
            raise ValueError(f"{task.called} takes the stream of a device, so it cannot run on a CPU")
        blocking = True  # waits for the device
    core = _core.spawn(workers.core, task, args, event, priority, place, blocking)
    return SpawnedRun(core, SpawnedOp(task.name, CallSite(frame)), workers)


def _drop(workers: Workers, core: _core.Spawned, op: SpawnedOp) -> None:
    """Nobody holds a spawned task any more: its failure is raised at the end of a block, or logged."""
    if workers.core.forked:
        return  # the task is the parent's
    explain = partial(error_of, op=op)
    if workers.in_block:
        workers.unretrieved.drop(core, explain, own=True)
    elif not core.done:
        report_at_end(workers, core, explain)


class _OnDevice:
    """A call of a task that runs on a device; it returns when the device is done."""

    def __init__(self, task: Any, device: Device) -> None:
        self._task, self._device = task, device

    def __call__(self, *args: Any) -> Any:
        with bind_to(self._device):
            found = self._task(*args)
        if getattr(self._task, "stream", None) is None:
            self._device.finish()
        return found


def _told(core: _core.Spawned, op: SpawnedOp) -> BaseException | None:
    """The same as `error_of`, for somebody who waits for the event of the end."""
    core.retrieve()
    return error_of(core, op)


def error_of(core: _core.Spawned, op: SpawnedOp) -> BaseException | None:
    """What a task that has ended raises for those who wait, or None."""
    raised: Any = core.exception
    if isinstance(raised, KeyboardInterrupt | SystemExit):
        return raised
    if core.cancelled:
        return CancelledError()
    if raised is not None:
        error = TaskError(f"{op.name!r} raised {describe_error(raised)}; spawned at {op.call_site}", op, 0)
        error.__cause__ = raised
        return error
    if core.poisoned_by is not None:
        cause = cause_of(core.poisoned_by)
        why = "" if cause is None else f" ({describe_error(cause)})"
        poison = PoisonError(
            f"{op.name!r} has not run, because the event it was to come after is poisoned{why}; "
            f"spawned at {op.call_site}"
        )
        poison.__cause__ = cause
        return poison
    return None
