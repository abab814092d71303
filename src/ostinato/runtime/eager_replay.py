"""Replays line by line, in the calling thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ostinato import _core
from ostinato.errors import ContractError, TaskError
from ostinato.graph.body import Acquire, Arrive, Await, PythonCall, Release, Until
from ostinato.graph.op import Op
from ostinato.graph.operand import Operand
from ostinato.graph.param import STEP, Param
from ostinato.runtime.outcome import failure_message
from ostinato.runtime.outside import conditions
from ostinato.runtime.sequential import AsCaptured, ends_run, face, on_device, operand_array, plain_value, run_body
from ostinato.runtime.waiting import wait_for_all

if TYPE_CHECKING:
    from ostinato.compiler.lower import Substitution
    from ostinato.events import Reservation
    from ostinato.runtime.program import Program

__all__ = ["replay_eagerly"]

_Call: TypeAlias = "Callable[[int], int]"
"""Does an operation in a step; returns the code of a native task, 0 for any other."""


def replay_eagerly(program: Program, steps: int, params: Mapping[str, Any]) -> int:
    """Run steps without the core; see `Program.replay_eagerly`."""
    if _core.serving():
        raise ContractError("replay_eagerly inside a task: a task on a lane must not wait, the lane would stand still")
    program._values(params)  # raises what a replay with these would
    conditions(program._scheduled.preconditions, None)
    program._machine._prepare_caller()
    wait_for_all(program._in_flight(), False)
    replay = _EagerReplay(program, params)
    first, done = program.step, 0
    try:
        while done < steps:
            done += 1
            if replay.run_step(first + done - 1):
                break
    finally:
        replay.release_all()
        while not program._number_from(first + done):  # another thread has submitted runs meanwhile
            wait_for_all(program._in_flight(), False)
    return done


class _EagerReplay:
    """The operations of a program, each as a function of the number of the step."""

    def __init__(self, program: Program, params: Mapping[str, Any]) -> None:
        self._params = params
        self._substitution: Substitution = program._binding or AsCaptured()
        self._first = program.step
        outside = {index: arguments for index, _, arguments in program._lowered.outside}
        self._bases: dict[int, int] = {}  # by op, the phase that step 0 belongs to
        self._held: list[Reservation] = []
        self._calls = []
        for op in program._scheduled.recorded:
            if isinstance(op.body, Arrive | Await):
                given = self._value(op.body.barrier)
                fixed = op.body.barrier is given
                self._bases[op.index] = outside[op.index][1] if fixed else given.phase - self._first
            self._calls.append((op, self._call_of(op)))

    def run_step(self, step: int) -> bool:
        """Run one step; return whether it is the run's last.

        Raises
        ------
        Exception
            What a task raised, with a note that names it.
        TaskError
            A native task returned an error code.
        """
        last = False
        for op, call in self._calls:
            try:
                code = call(step)
            except Exception as error:
                error.add_note(f"in step {step}: {op.name!r}, called at {op.call_site}")
                raise
            if code:
                raise TaskError(failure_message(op, step, code), op.original, step)
            if type(op.body) is Until:
                last |= ends_run(op.body, step, self._substitution)
        return last

    def release_all(self) -> None:
        """Give back the reservations that are held, as a run that fails does."""
        while self._held:
            self._held.pop().release()

    def _call_of(self, op: Op) -> _Call:
        body = op.body
        if isinstance(body, PythonCall) and not on_device(body, partial(self._array, 0)):
            return self._python_call(body)
        if isinstance(body, Arrive):
            return partial(self._arrive, op, body)
        if isinstance(body, Await):
            return partial(self._wait, op, body)
        if isinstance(body, Acquire):
            return partial(self._acquire, body)
        if isinstance(body, Release):
            return partial(self._release, body)
        return lambda step: run_body(body, step, self._substitution, self._params)

    def _python_call(self, body: PythonCall) -> _Call:
        """Return a call whose arguments lie ready, for each turn of the rings in it."""
        rings = [len(arg.ring.views) for arg in body.args if isinstance(arg, Operand) and arg.ring is not None]
        turns = [self._arguments(body, turn) for turn in range(math.lcm(1, *rings))]
        function, names, count = body.function, body.keywords, len(body.args) - len(body.keywords)
        steps = [place for place, arg in enumerate(body.args) if arg is STEP]

        def call(step: int) -> int:
            values = turns[step % len(turns)]
            if steps:
                values = [step if place in steps else value for place, value in enumerate(values)]
            if names:
                function(*values[:count], **dict(zip(names, values[count:], strict=True)))
            else:
                function(*values)
            return 0

        return call

    def _arguments(self, body: PythonCall, turn: int) -> Sequence[Any]:
        return [
            face(arg, turn, self._substitution) if isinstance(arg, Operand) else plain_value(arg, turn, self._params)
            for arg in body.args
        ]

    def _arrive(self, op: Op, body: Arrive, step: int) -> int:
        barrier = self._value(body.barrier)
        phase = self._bases[op.index] + step
        if barrier.phase != phase:
            raise RuntimeError(
                f"step {step} arrives in phase {phase} of a barrier that is in phase {barrier.phase}; replay() can "
                "arrive in a later phase, replay_eagerly() cannot"
            )
        if body.value is Arrive.NO_VALUE:
            barrier.arrive(self._value(body.count))
        else:
            barrier.arrive(self._value(body.count), self._value(body.value))
        return 0

    def _wait(self, op: Op, body: Await, step: int) -> int:
        self._value(body.barrier).event(self._bases[op.index] + step).wait()
        return 0

    def _acquire(self, body: Acquire, step: int) -> int:
        body.reservation.acquire(body.exclusive).wait()
        self._held.append(body.reservation)
        return 0

    def _release(self, body: Release, step: int) -> int:
        if not any(held is body.reservation for held in self._held):
            raise RuntimeError("the reservation is not held by this replay")
        body.reservation.release()
        self._held.pop(next(place for place, held in enumerate(self._held) if held is body.reservation))
        return 0

    def _value(self, value: Any) -> Any:
        return value.value_in(self._params) if isinstance(value, Param) else value

    def _array(self, step: int, operand: Operand) -> Any:
        return operand_array(operand, step, self._substitution)
