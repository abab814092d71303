"""A graph as plain sequential Python: what every replay must equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ostinato.errors import TaskError
from ostinato.graph.body import Copy, Fill, NativeCall, PythonCall, Until
from ostinato.graph.native_call import call_native
from ostinato.graph.op import Op
from ostinato.graph.operand import READ, Operand
from ostinato.graph.param import REQUIRED, STEP, Param
from ostinato.graph.scalar import as_scalar
from ostinato.graph.transfer import REDUCTIONS

__all__ = ["AsCaptured", "operand_array", "run_op", "run_sequentially"]

Array: TypeAlias = np.ndarray[Any, Any]


class AsCaptured:
    """The captured arrays and tokens themselves; other classes say what stands for them."""

    def substitute(self, array: Array) -> Array:
        """Return what stands for a captured array or a view of one."""
        return array

    def value(self, value: object) -> object:
        """Return what stands for a token or for an array of another library, which tasks get as it was passed."""
        return value


def run_sequentially(
    ops: Sequence[Op],
    steps: int,
    first_step: int = 0,
    substitution: AsCaptured | None = None,
    params: Mapping[str, Any] | None = None,
    run: Callable[..., bool] | None = None,
) -> int:
    """Run steps of a graph's ops, one after the other, and return how many.

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


def run_op(op: Op, step: int, substitution: AsCaptured, params: Mapping[str, Any]) -> bool:
    """Run one op in one step, and return whether it says that this step is the last.

    Raises
    ------
    TaskError
        A native task did not return 0. What a Python task raises is raised as it is.
    """

    def array(operand: Operand) -> Array:
        return operand_array(operand, step, substitution)

    body = op.body
    if isinstance(body, PythonCall):
        _call(body, step, substitution, params)
    elif isinstance(body, NativeCall):
        arrays = [array(arg) for arg in body.args if isinstance(arg, Operand)]
        pairs = zip(body.args, body.task.kinds, strict=True)
        scalars = [as_scalar(_plain(arg, step, params), kind, op.name) for arg, kind in pairs if isinstance(kind, type)]
        code = call_native(body.task.address, body.task.user_address, arrays, scalars, step)
        if code != 0:
            raise TaskError(f"returned {code}")
    elif isinstance(body, Copy):
        _copy(body, array)
    elif isinstance(body, Fill):
        array(body.target)[...] = _plain(body.value, step, params)
    else:
        assert isinstance(body, Until)
        return (step + 1) % body.every == 0 and bool(array(body.flag).any())
    return False


def operand_array(operand: Operand, step: int, substitution: AsCaptured) -> Array:
    """Return the array that an operand, which is no token, stands for in a step."""
    views = operand.arrays
    offset = operand.ring.offset if operand.ring is not None else 0
    return substitution.substitute(views[(step + offset) % len(views)])


def _call(body: PythonCall, step: int, substitution: AsCaptured, params: Mapping[str, Any]) -> None:
    values: list[object] = []
    for arg in body.args:
        if not isinstance(arg, Operand):
            values.append(_plain(arg, step, params))
        elif arg.arrays and (arg.ring is not None or isinstance(arg.value, np.ndarray)):
            view = operand_array(arg, step, substitution).view(np.ndarray)
            if arg.mode == READ:
                view.flags.writeable = False
            values.append(view)
        else:  # a token, or an array of another library
            values.append(substitution.value(arg.value))
    positional = len(values) - len(body.keywords)
    body.function(*values[:positional], **dict(zip(body.keywords, values[positional:], strict=True)))


def _plain(value: object, step: int, params: Mapping[str, Any]) -> Any:
    """The value of an argument that is no operand."""
    if value is STEP:
        return step
    if not isinstance(value, Param):
        return value
    if value.name not in params:
        return value.default
    given = params[value.name]
    return given if value.combine is None or value.default is REQUIRED else value.combine(value.default, given)


def _copy(body: Copy, array: Callable[[Operand], Array]) -> None:
    target = array(body.target)
    moved = array(body.source).copy()  # overlapping arrays: as if the source had been copied first
    if body.indices is not None:
        moved = moved[array(body.indices)]
    if body.scatter is not None:
        places = array(body.scatter).copy()
        if body.reduce is None:
            target[places] = moved
        else:
            REDUCTIONS[body.reduce].at(target, places, moved.astype(target.dtype))
    elif body.reduce is not None:
        target[...] = REDUCTIONS[body.reduce](target, moved).astype(target.dtype)
    else:
        np.copyto(target, moved, casting="same_kind")
