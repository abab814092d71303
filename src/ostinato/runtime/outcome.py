"""How a run ended: the number of its steps, or what to raise."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from ostinato.errors import PoisonError, TaskError
from ostinato.runtime.detached import DetachedOp

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.graph.op import Op

__all__ = ["failure_message", "outcome"]


def outcome(run: _core.Run, ops: Sequence[Op]) -> int | BaseException:
    """Return the number of steps that a finished run made, or the exception that it ended with."""
    failures, unlisted = run.failures()
    for _, _, reason in failures:
        if isinstance(reason, KeyboardInterrupt | SystemExit):
            return reason
    if failures:
        return _task_error(failures, unlisted, ops)
    if run.cancelled:
        return CancelledError()
    if run.poisoned:
        error = PoisonError("operations of this run were skipped, because what they depend on failed in an earlier run")
        origin = run.origin
        if origin is not None:
            earlier, more = origin.failures()
            error.__cause__ = _task_error(earlier, more, ops)
        return error
    return int(run.steps)


def _task_error(failures: list[tuple[int, int, object]], unlisted: int, ops: Sequence[Op]) -> TaskError:
    """The failure least in (step, program order), the others as notes."""
    ranked = sorted(failures, key=lambda failure: (failure[1], failure[0]))
    index, step, reason = ranked[0]
    op = ops[index]
    error = TaskError(failure_message(op, step, reason), op.original if isinstance(op, DetachedOp) else op, step)
    if isinstance(reason, BaseException):
        error.__cause__ = reason
    for index, step, reason in ranked[1:]:
        error.add_note("also: " + failure_message(ops[index], step, reason))
    if unlisted:
        error.add_note(f"and {unlisted} more failures")
    return error


def failure_message(op: Op, step: int, reason: object) -> str:
    """Say that an op failed, `reason` being what it raised or returned."""
    how = f"raised {type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else f"returned {reason}"
    return f"{op.name!r} {how}, in step {step}; called at {op.call_site}"
