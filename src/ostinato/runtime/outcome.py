"""How a run ended: the number of its steps, or what to raise."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from ostinato.errors import PoisonError, TaskError, told
from ostinato.events import cause_of
from ostinato.graph.body import Arrive, Release
from ostinato.graph.op import shown

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.graph.op import Op

__all__ = ["delivered", "failure_message", "outcome"]


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


def delivered(run: _core.Run, end: int | BaseException) -> int:
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
        why = "" if cause is None else f": {told(cause)}"
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


def failure_message(op: Op, step: int, reason: object) -> str:
    """Say that an op failed, `reason` being what it raised or returned."""
    how = f"raised {told(reason)}" if isinstance(reason, BaseException) else f"returned {reason}"
    return f"{shown(op)} {how}, in step {step}; called at {op.call_site}"
