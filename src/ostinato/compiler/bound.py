"""Parameters of nested graphs: what they are, and ops with these in place of them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from ostinato.events import Barrier
from ostinato.graph.body import Arrive, Await, Body, Fill, NativeCall, Nested, PythonCall
from ostinato.graph.op import Op
from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.scalar import as_scalar
from ostinato.graph.transfer import fill_value

__all__ = ["Combined", "given_values", "with_values"]


class Combined(Param):
    """A parameter of a nested graph which combines its default with a parameter of the graph outside.

    Its name is that of the outermost graph's parameter, which is what a run gives.
    """

    __slots__ = ("_outer",)

    def __init__(self, inner: Param, outer: Param) -> None:
        super().__init__(outer.name, inner.default, inner.combine)
        self._outer = outer

    def value_in(self, given: Mapping[str, Any]) -> Any:
        """Return what tasks get in a run that gives these values by name; `REQUIRED` where it lacks one."""
        value = self._outer.value_in(given)
        assert self.combine is not None
        return value if value is REQUIRED else self.combine(self.default, value)


def given_values(nested: Nested, outer: Mapping[str, object] | None) -> dict[str, object]:
    """Return by name what the parameters of a nested graph are: values, or parameters of the outermost graph.

    `outer` is the same for the graph that it is nested in; None for the outermost.
    """
    values: dict[str, object] = {}
    for name, param in nested.graph.params.items():
        if name not in nested.params:
            values[name] = param.default
            continue
        given = nested.params[name]
        if isinstance(given, Param) and outer is not None:
            given = outer[given.name]
        if not isinstance(given, Param):
            values[name] = param.value_in({name: given})
        elif param.combine is None or param.default is REQUIRED:
            values[name] = given
        else:
            values[name] = Combined(param, given)
    return values


def with_values(op: Op, values: Mapping[str, object]) -> Body:
    """Return the body of an op with what its parameters are in place of them.

    Raises
    ------
    TypeError, ValueError, OverflowError
        A value is not of the kind that the op takes.
    """
    body = op.body

    def value(arg: object) -> Any:
        return values[arg.name] if isinstance(arg, Param) else arg

    if isinstance(body, PythonCall):
        if any(isinstance(arg, Param) for arg in body.args):
            return body.with_args(map(value, body.args))
    elif isinstance(body, NativeCall):
        if any(isinstance(arg, Param) for arg in body.args):
            kinds = body.task.kinds
            pairs = zip(body.args, kinds, strict=True)
            return NativeCall(body.task, tuple(_scalar(arg, value(arg), kind, op) for arg, kind in pairs))
    elif isinstance(body, Fill):
        if isinstance(body.value, Param):
            constant = value(body.value)
            if not isinstance(constant, Param):
                constant = fill_value(constant, body.target.arrays[0])
            return Fill(body.target, constant)
    elif isinstance(body, Arrive):
        if any(isinstance(part, Param) for part in (body.barrier, body.count, body.value)):
            barrier = _barrier(body.barrier, value(body.barrier), op)
            amount = value(body.value)
            amount = Arrive.NO_VALUE if amount is None else amount
            return Arrive(barrier, _count(body.count, value(body.count), op), amount)
    elif isinstance(body, Await) and isinstance(body.barrier, Param):
        return Await(_barrier(body.barrier, value(body.barrier), op))
    return body


def _scalar(arg: object, value: Any, kind: Any, op: Op) -> object:
    if arg is value or isinstance(value, Param):
        return value
    return as_scalar(value, kind, _label(arg, op))


def _count(arg: object, value: Any, op: Op) -> int | Param:
    if isinstance(value, Param):
        return value
    count = operator.index(value)
    if count < 1:
        raise ValueError(f"{_label(arg, op)} must be at least 1 arrival, got {count}")
    return count


def _barrier(arg: object, value: Any, op: Op) -> Barrier | Param:
    if not isinstance(value, Barrier | Param):
        raise TypeError(f"{_label(arg, op)} must be an ostinato.Barrier, got {value!r}")
    return value


def _label(arg: object, op: Op) -> str:
    name = arg.name if isinstance(arg, Param) else ""
    return f"parameter {name!r} of a nested graph, used by {op.name!r} at {op.call_site},"
