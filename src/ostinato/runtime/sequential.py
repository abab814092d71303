"""A graph as plain sequential Python: what every replay must equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ostinato import _core
from ostinato._core import call_native
from ostinato.devices.array import DeviceArray
from ostinato.devices.registry import any_allocations, device_array
from ostinato.errors import ContractError, TaskError
from ostinato.graph.access import STREAM
from ostinato.graph.arrays import HOST, READ, Array, Operand, memory_of
from ostinato.graph.body import Acquire, Arrive, Await, Body, Copy, Fill, NativeCall, PythonCall, Release, Until
from ostinato.graph.eager import Use, call_c, call_python
from ostinato.graph.op import Op
from ostinato.graph.param import STEP, Param, as_scalar
from ostinato.runtime.arguments import resolve_conditions
from ostinato.runtime.memory import assign, contents
from ostinato.runtime.outcome import MUST_NOT_WAIT, failure_message, wait_for_all

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Substitution
    from ostinato.events import Reservation
    from ostinato.runtime.engine import Engine


class AsCaptured:
    """The captured arrays and tokens themselves, where a substitution is asked for."""

    def substitute(self, array: Array) -> Array:
        return array

    def value(self, value: object) -> object:
        return value


RunOp: TypeAlias = "Callable[[Op, int, Substitution, Mapping[str, Any]], bool]"


def run_sequentially(
    ops: Sequence[Op],
    steps: int,
    first_step: int = 0,
    substitution: Substitution | None = None,
    params: Mapping[str, Any] | None = None,
    run: RunOp | None = None,
) -> int:
    """Run steps of a graph's ops, one after the other, and return how many; a failure ends the run at once.

    `run` is called for each op, in place of `run_op`.
    """
    for step in range(first_step, first_step + steps):
        last = False
        for op in ops:
            last |= (run or run_op)(op, step, substitution or AsCaptured(), params or {})
        if last:
            return step + 1 - first_step
    return steps


def run_op(op: Op, step: int, substitution: Substitution, params: Mapping[str, Any]) -> bool:
    """Run one op in one step, and return whether it says that this step is the last."""
    try:
        code = run_body(op.body, step, substitution, params)
    except Exception as error:
        raise TaskError(failure_message(op, step, error), op.original, step) from error
    if code != 0:
        raise TaskError(failure_message(op, step, code), op.original, step)
    return isinstance(op.body, Until) and ends_run(op.body, step, substitution)


def operand_array(operand: Operand, step: int, substitution: Substitution) -> Array:
    """Return the array that an operand, which is no token, stands for in a step."""
    views = operand.arrays
    offset = operand.ring.offset if operand.ring is not None else 0
    return substitution.substitute(views[(step + offset) % len(views)])


def run_body(body: Body, step: int, substitution: Substitution, params: Mapping[str, Any]) -> int:
    """Do what an op does to arrays and tokens; return the code of a native task, 0 for any other.

    What it does outside of the graph, with events, barriers and reservations, is left out.
    """

    def array(operand: Operand) -> Array:
        return operand_array(operand, step, substitution)

    if isinstance(body, PythonCall | NativeCall) and on_device(body, array):
        return _call_on_device(body, step, substitution, params)
    if isinstance(body, PythonCall):
        _call(body, step, substitution, params)
    elif isinstance(body, NativeCall):
        arrays = [array(arg) for arg in body.args if isinstance(arg, Operand)]
        pairs = [(arg, kind) for arg, kind in zip(body.args, body.task.kinds, strict=True) if isinstance(kind, type)]
        scalars = [as_scalar(plain_value(arg, step, params), kind, "a scalar argument") for arg, kind in pairs]
        return call_native(body.task.address, body.task.user_address, arrays, scalars, step)
    elif isinstance(body, Copy):
        _copy(body, array)
    elif isinstance(body, Fill):
        assign(array(body.target), plain_value(body.value, step, params))
    elif body.operands:
        body.perform(*map(array, body.operands))
    return 0


def on_device(body: PythonCall | NativeCall, array: Callable[[Operand], Array]) -> bool:
    """Whether a device has a part in a call: then it is made as outside captures, arrays of devices and all."""
    operands = (arg for arg in body.args if isinstance(arg, Operand) and arg.arrays)
    return body.takes_stream or (any_allocations() and any(memory_of(array(each)) != HOST for each in operands))


def ends_run(body: Until, step: int, substitution: Substitution) -> bool:
    return (step + 1) % body.every == 0 and bool(contents(operand_array(body.flag, step, substitution)).any())


def _call(body: PythonCall, step: int, substitution: Substitution, params: Mapping[str, Any]) -> None:
    values = [
        task_value(arg, step, substitution) if isinstance(arg, Operand) else plain_value(arg, step, params)
        for arg in body.args
    ]
    positional = len(values) - len(body.keywords)
    body.function(*values[:positional], **dict(zip(body.keywords, values[positional:], strict=True)))


def _call_on_device(
    body: PythonCall | NativeCall, step: int, substitution: Substitution, params: Mapping[str, Any]
) -> int:
    """Make a call as outside captures: on the stream of a device, or on copies of what lies there."""
    args: list[object] = []
    for arg in body.args:
        if not isinstance(arg, Operand):
            args.append(arg if arg is STREAM else plain_value(arg, step, params))
        elif arg.arrays and (body.takes_stream or not _is_foreign(arg)):
            args.append(Use(task_value(arg, step, substitution), operand_array(arg, step, substitution), arg.mode))
        else:
            args.append(substitution.value(arg.value))
    if isinstance(body, PythonCall):
        call_python(body.task.name, body.function, args, body.keywords)
        return 0
    return call_c(body.task.name, body.task.address, body.task.user_address, args, step)


def _is_foreign(operand: Operand) -> bool:
    return operand.ring is None and not isinstance(operand.value, np.ndarray | DeviceArray)


def task_value(operand: Operand, step: int, substitution: Substitution) -> object:
    """What a task gets for an operand."""
    if operand.arrays and (operand.ring is not None or isinstance(operand.value, np.ndarray)):
        view = operand_array(operand, step, substitution).view(np.ndarray)
        if operand.mode == READ:
            view.flags.writeable = False
        return view if memory_of(view) == HOST else device_array(view)
    return substitution.value(operand.value)  # a token, or an array of another library


def plain_value(value: object, step: int, params: Mapping[str, Any]) -> Any:
    """The value of an argument that is no operand."""
    if value is STEP:
        return step
    return value.value_in(params) if isinstance(value, Param) else value


def _copy(body: Copy, array: Callable[[Operand], Array]) -> None:
    where = array(body.target)
    target = contents(where)
    source = contents(array(body.source))
    moved = source.copy()  # overlapping arrays: as if the source had been copied first
    if body.indices is not None:
        moved = moved[contents(array(body.indices))]
    if body.scatter is not None:
        places = contents(array(body.scatter)).copy()
        if body.reduce is None:
            target[places] = moved
        else:
            body.reduce.scatter(target, places, moved)
    elif body.reduce is not None:
        body.reduce.combine(target, moved)
    else:
        np.copyto(target, moved, casting="same_kind")
    if target is not where:
        assign(where, target)


_Call: TypeAlias = "Callable[[int], int]"
"""Does an operation in a step; returns the code of a native task, 0 for any other."""


def replay_eagerly(engine: Engine, steps: int, params: Mapping[str, Any]) -> int:
    """Run steps without the core; see `Program.replay_eagerly`."""
    if _core.serving():
        raise ContractError(f"replay_eagerly inside a task: {MUST_NOT_WAIT}")
    engine.values(params)  # raises what a replay with these would
    resolve_conditions(engine.executable.preconditions, None)
    if engine.workers.prepare_caller is not None:
        engine.workers.prepare_caller()
    wait_for_all(engine.in_flight(), False)
    replay = _EagerReplay(engine, params)
    first, done = engine.step, 0
    try:
        while done < steps:
            done += 1
            if replay.run_step(first + done - 1):
                break
    finally:
        replay.release_all()
        while not engine.number_from(first + done):  # another thread has submitted runs meanwhile
            wait_for_all(engine.in_flight(), False)
    return done


class _EagerReplay:
    """The operations of a program, each as a function of the number of the step."""

    def __init__(self, engine: Engine, params: Mapping[str, Any]) -> None:
        self._params = params
        self._substitution: Substitution = engine.binding or AsCaptured()
        self._first = engine.step
        outside = {index: arguments for index, _, arguments in engine.lowered.outside}
        self._bases: dict[int, int] = {}  # by op, the phase that step 0 belongs to
        self._held: list[Reservation] = []
        self._calls = []
        for op in engine.executable.step.recorded.nodes:
            if isinstance(op.body, Arrive | Await):
                given = self._value(op.body.barrier)
                fixed = op.body.barrier is given
                self._bases[op.index] = outside[op.index][1] if fixed else given.phase - self._first
            self._calls.append((op, self._call_of(op)))

    def run_step(self, step: int) -> bool:
        """Run one step; return whether it is the run's last. What a task raises gets a note that names it."""
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
        body, substitution = op.body, self._substitution
        if isinstance(body, PythonCall) and not on_device(
            body, lambda operand: operand_array(operand, 0, substitution)
        ):
            return self._python_call(body)
        if isinstance(body, Arrive):
            return partial(self._arrive, op, body)
        if isinstance(body, Await):
            return partial(self._wait, op, body)
        if isinstance(body, Acquire):
            return partial(self._acquire, body)
        if isinstance(body, Release):
            return partial(self._release, body)
        return lambda step: run_body(body, step, substitution, self._params)

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
            task_value(arg, turn, self._substitution)
            if isinstance(arg, Operand)
            else plain_value(arg, turn, self._params)
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
        values = () if body.value is Arrive.NO_VALUE else (self._value(body.value),)
        barrier.arrive(self._value(body.count), *values)
        return 0

    def _wait(self, op: Op, body: Await, step: int) -> int:
        self._value(body.barrier).event(self._bases[op.index] + step).wait()
        return 0

    def _acquire(self, body: Acquire, step: int) -> int:
        body.reservation.acquire(body.exclusive).wait()
        self._held.append(body.reservation)
        return 0

    def _release(self, body: Release, step: int) -> int:
        place = next((place for place, held in enumerate(self._held) if held is body.reservation), None)
        if place is None:
            raise RuntimeError("the reservation is not held by this replay")
        body.reservation.release()
        self._held.pop(place)
        return 0

    def _value(self, value: Any) -> Any:
        return value.value_in(self._params) if isinstance(value, Param) else value
