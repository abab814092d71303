"""Which ops wait for something outside of their program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.graph.body import Acquire, Await, Precondition, PythonCall

if TYPE_CHECKING:
    from ostinato.graph.body import Body

__all__ = ["waits_outside"]


def waits_outside(body: Body) -> bool:
    """Whether an op waits for something outside: an event, a phase of a barrier, a reservation, or what a task may."""
    return isinstance(body, Precondition | Await | Acquire) or (isinstance(body, PythonCall) and body.blocking)
