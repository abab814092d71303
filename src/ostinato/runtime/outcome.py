"""How runs end: waits for that, and the number of steps or what to raise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from ostinato.devices.device import lose
from ostinato.errors import DeviceError, PoisonError, TaskError, describe_error
from ostinato.events import cause_of
from ostinato.graph.body import Arrive, NativeCall, Release
from ostinato.graph.native import RAISED
from ostinato.graph.op import format_op
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.ir import Executable
    from ostinato.graph.op import Op

_log = logging.getLogger("ostinato")


def wait_for_all(runs: Sequence[_core.Run | _core.Spawned], cancelled: bool) -> None:
    """Wait for the ends of runs.

    Where they were cancelled, Ctrl-C is raised inside their Python tasks that are running, too: it is the second one.
    """
    try:
        for run in runs:
            run.wait(-1.0)
    except KeyboardInterrupt:
        if cancelled:
            for run in runs:
                run.interrupt()
        raise


def outcome(run: _core.Run, ops: Sequence[Op]) -> int | BaseException:
    """Return the number of steps that a finished run made, or the exception that it ended with."""
    if run.good:
        return run.steps
    failures, unlisted = run.failures()
    for _, _, reason in failures:
        if isinstance(reason, KeyboardInterrupt | SystemExit):
            return reason
    if failures:
        return _task_error(failures, unlisted, ops)
    if run.cancelled:
        return CancelledError()
    if run.poisoned:
        return _poison_error(run, ops)
    return int(run.steps)


def deliver(run: _core.Run, end: int | BaseException) -> int:
    """Return how a run ended, or raise it: the run need not remember it any more."""
    run.forget()
    try:
        if isinstance(end, BaseException):
            raise end
        return end
    finally:
        del end  # its traceback leads to this frame


def _poison_error(run: _core.Run, ops: Sequence[Op]) -> PoisonError:
    source = run if run.poisoned_by is not None else run.skipped_for
    if source is not None and source.poisoned_by is not None:
        cause = cause_of(source.poisoned_by)
        why = "" if cause is None else f": {describe_error(cause)}"
        error = PoisonError(f"operations of this run were skipped, because a precondition is poisoned{why}")
        error.__cause__ = cause
        return error
    error = PoisonError("operations of this run were skipped, because what they depend on failed in an earlier run")
    if source is not None:
        earlier, more = source.failures()
        if earlier:
            error.__cause__ = _task_error(earlier, more, ops)
    return error


def _task_error(failures: list[tuple[int, int, object]], unlisted: int, ops: Sequence[Op]) -> TaskError:
    """The failure least in (step, program order), the others as notes."""
    ranked = sorted(failures, key=lambda failure: (failure[1], failure[0]))
    index, step, reason = ranked[0]
    op = ops[index]
    reason = _reason(op, reason)
    error = TaskError(failure_message(op, step, reason), op.original, step)
    if isinstance(reason, BaseException):
        error.__cause__ = reason
    for index, step, reason in ranked[1:]:
        error.add_note("also: " + failure_message(ops[index], step, _reason(ops[index], reason)))
    if unlisted:
        error.add_note(f"and {unlisted} more failures")
    return error


def _reason(op: Op, reason: object) -> object:
    """What an op failed with; for those on barriers and reservations the core has a code."""
    if isinstance(op.body, Arrive) and not isinstance(reason, BaseException):
        return RuntimeError("more arrivals than the phase of the barrier has left")
    if isinstance(op.body, Release) and not isinstance(reason, BaseException):
        return RuntimeError("the reservation is not held by this program")
    return reason


MUST_NOT_WAIT = (  # as in core/bindings/bindings.h
    "a task on a lane must not wait: what it waits for may need this very lane; declare the task blocking=True"
)


def failure_message(op: Op, step: int, reason: object) -> str:
    """Say that an op failed, `reason` being what it raised or returned."""
    if isinstance(reason, BaseException):
        how = f"raised {describe_error(reason)}"
    else:
        is_kernel = isinstance(op.body, NativeCall) and op.body.task.kernel is not None
        how = RAISED if is_kernel else f"returned {reason}"
    return f"{format_op(op)} {how}, in step {step}; called at {op.call_site}"


_MOST_TOLD = 8


def ended(executable: Executable, run: _core.Run) -> int | BaseException:
    """Return how a run of a program ended, as `outcome` does; note devices that cannot be used any more."""
    end = outcome(run, executable.step.nodes)
    if not executable.step.uses_devices or not isinstance(end, BaseException):
        return end
    for index, _, reason in run.failures()[0]:
        if not isinstance(reason, DeviceError):
            continue
        if not reason.usable:
            for device in executable.step.used_devices:
                if device.name == reason.device:
                    lose(device)
        if isinstance(end, TaskError) and reason is end.__cause__:
            others = _issued_with(executable, index)
            if others:
                named = ", ".join(f"{op.name!r} at {op.call_site}" for op in others[-_MOST_TOLD:])
                end.add_note(f"the device tells of these together with it, so it may have been one of them: {named}")
    return end


def _issued_with(executable: Executable, index: int) -> list[Op]:
    """The ops before one on its stream after which nobody looked whether the device was done."""
    looked = {each.of[0] for _, each in executable.step.streams.fences if each.waits and len(each.of) == 1}
    lane = next((lane.tolist() for lane in executable.lane_ops if index in lane), [index])
    before = lane[: lane.index(index)]
    kept = [place for place, op in enumerate(before) if op in looked]
    return [executable.step.nodes[op] for op in before[kept[-1] + 1 if kept else 0 :]]


def log_failure(error: BaseException) -> None:
    """Log the failure of a run that nobody has retrieved, and nobody can retrieve any more.

    Whoever pressed Ctrl-C knows of it.
    """
    if _is_failure(error) and not isinstance(error, KeyboardInterrupt):
        _log.error("a run failed, and nobody retrieved its exception: %s", describe_error(error), exc_info=error)


class LeastFailure:
    """The least of many failures, and how many more there were: however many runs fail, memory is bounded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a run that is dropped meanwhile may fail, too
        self._least: BaseException | None = None
        self._more = 0

    def add(self, error: BaseException) -> None:
        """Note one more failure."""
        if not _is_failure(error):
            return
        with self._lock:
            self._more += self._least is not None
            self._least = error if self._least is None else min(self._least, error, key=_rank)

    def take(self) -> list[BaseException]:
        """Return the least failure, if there is any, and forget all."""
        with self._lock:
            errors = [] if self._least is None else [self._least]
            if self._more:
                errors[0].add_note(f"{counted(self._more, 'more run')} failed that nobody asked for its end")
            self._least, self._more = None, 0
            return errors


def raise_failures(errors: Iterable[BaseException], left_by: BaseException | None) -> None:
    """At the end of a ``with`` block: raise the least of the failures, the others as notes.

    Where another exception leaves the block, log them instead.
    """
    ranked = sorted(filter(_is_failure, errors), key=_rank)
    if left_by is not None:
        for error in ranked:
            log_failure(error)
        return
    if ranked:
        for error in ranked[1:]:
            ranked[0].add_note(f"another run failed, too: {describe_error(error)}")
        raise ranked[0]


def _is_failure(error: BaseException) -> bool:
    """Whether anybody need be told: not of what was skipped because a run was cancelled."""
    return not isinstance(error.__cause__, CancelledError)


def _rank(error: BaseException) -> tuple[int, int, int]:
    """What leaves the program comes first, then failures by step and program order, then what they poisoned."""
    if isinstance(error, TaskError):
        return 1, error.step or 0, getattr(error.op, "index", 0)
    return 2 if isinstance(error, PoisonError) else 0, 0, 0
