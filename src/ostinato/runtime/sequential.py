"""A graph as plain sequential Python: what every replay must equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ostinato._core import call_native
from ostinato.devices.array import DeviceArray
from ostinato.devices.registry import any_allocations, device_array
from ostinato.errors import TaskError
from ostinato.graph.arrays import HOST, Array, memory_of
from ostinato.graph.body import Body, Copy, Fill, NativeCall, PythonCall, Until
from ostinato.graph.eager import Use, call_c, call_python
from ostinato.graph.op import Op
from ostinato.graph.operand import READ, Operand
from ostinato.graph.param import STEP, Param
from ostinato.graph.scalar import as_scalar
from ostinato.graph.stream import STREAM
from ostinato.runtime.memory import assign, contents
from ostinato.runtime.outcome import failure_message

if TYPE_CHECKING:
    from ostinato.compiler.lower import Substitution

__all__ = [
    "AsCaptured",
    "ends_run",
    "face",
    "on_device",
    "operand_array",
    "plain_value",
    "run_body",
    "run_op",
    "run_sequentially",
]


class AsCaptured:
    """The captured arrays and tokens themselves, where a substitution is asked for."""

    def substitute(self, array: Array) -> Array:
        """Return the array."""
        return array

    def value(self, value: object) -> object:
        """Return the value."""
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
    """Run steps of a graph's ops, one after the other, and return how many.

    A failure ends the run at once.

    Parameters
    ----------
    ops
        The ops in program order.
    steps
        How many steps, at most.
    first_step
        The number of the first one.
    substitution
        What stands for the captured arrays and tokens; None for themselves.
    params
        Values of parameters by name.
    run
        What is called for each op, in place of `run_op`, with the same arguments.
    """
    for step in range(first_step, first_step + steps):
        last = False
        for op in ops:
            last |= (run or run_op)(op, step, substitution or AsCaptured(), params or {})
        if last:
            return step + 1 - first_step
    return steps


def run_op(op: Op, step: int, substitution: Substitution, params: Mapping[str, Any]) -> bool:
    """Run one op in one step, and return whether it says that this step is the last.

    Raises
    ------
    TaskError
        The task failed.
    """
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
    return 0


def on_device(body: PythonCall | NativeCall, array: Callable[[Operand], Array]) -> bool:
    """Whether a device has a part in a call: then it is made as outside captures, arrays of devices and all."""
    operands = (arg for arg in body.args if isinstance(arg, Operand) and arg.arrays)
    return body.takes_stream or (any_allocations() and any(memory_of(array(each)) != HOST for each in operands))


def ends_run(body: Until, step: int, substitution: Substitution) -> bool:
    return (step + 1) % body.every == 0 and bool(contents(operand_array(body.flag, step, substitution)).any())


def _call(body: PythonCall, step: int, substitution: Substitution, params: Mapping[str, Any]) -> None:
    values = [
        face(arg, step, substitution) if isinstance(arg, Operand) else plain_value(arg, step, params)
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
            args.append(Use(face(arg, step, substitution), operand_array(arg, step, substitution), arg.mode))
        else:
            args.append(substitution.value(arg.value))
    if isinstance(body, PythonCall):
        call_python(body.task.name, body.function, args, body.keywords)
        return 0
    return call_c(body.task.name, body.task.address, body.task.user_address, args, step)


def _is_foreign(operand: Operand) -> bool:
    return operand.ring is None and not isinstance(operand.value, np.ndarray | DeviceArray)


def face(operand: Operand, step: int, substitution: Substitution) -> object:
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
