"""The values of a run: parameters resolved for native and for Python tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.events import Barrier
from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.scalar import as_scalar
from ostinato.integers import integer

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.lower import Lowered

__all__ = ["Values", "barriers_of"]


class Values:
    """Gives the values of a run: made once for a plan, since submitting takes little more than this.

    Parameters
    ----------
    params
        The parameters that a run may give, by name.
    lowered
        The plan.
    """

    def __init__(self, params: Mapping[str, Param], lowered: Lowered) -> None:
        self._params = params
        self._required = [name for name, param in params.items() if param.default is REQUIRED]
        self._lowered = lowered
        used = [*(param for param, _ in lowered.native_values), *lowered.objects, *lowered.counts]
        used += [param for param, _ in lowered.fills]
        # Where tasks get values as they are given, which need not be tried.
        self._plain = not (lowered.counts or lowered.fills) and all(
            type(param) is Param and param.combine is None for param in used
        )
        self._numbers = [(param.name, param.default, kind) for param, kind in lowered.native_values]
        self._objects = [(param.name, param.default) for param in lowered.objects]
        self._used = list({id(param): param for param in used}.values())  # those of nested graphs may share a name

    def of(self, given: Mapping[str, Any]) -> tuple[list[float] | None, list[object] | None]:
        """Return the numbers for native tasks, and the objects for others, that a run gives, as the plan wants them.

        Raises
        ------
        TypeError
            A parameter is not known or not given, or its value is of the wrong type.
        ValueError
            A value cannot be assigned to what it is to fill.
        """
        params = self._params
        for name in given:
            if name not in params:
                known = ", ".join(map(repr, params)) or "no parameters"
                raise TypeError(f"this program has no parameter {name!r}; it has {known}")
        for name in self._required:
            if name not in given:
                raise TypeError(f"parameter {name!r} has no default, so give it: replay(..., {name}=...)")
        if self._plain:  # loops written out: what this takes is much of what submitting takes
            numbers = []
            for name, default, kind in self._numbers:
                value = given.get(name, default)
                numbers.append(value if kind is float is type(value) else _number(value, kind, name))
            objects = []
            for name, default in self._objects:
                objects.append(given.get(name, default))
            return numbers, objects
        lowered = self._lowered
        values = {id(param): param.value_in(given) for param in self._used}
        for param in lowered.counts:
            count = values[id(param)]
            integer(f"parameter {param.name!r}, a number of arrivals,", count, 1)
        for param, target in lowered.fills:
            _check_fill(values[id(param)], target, param.name)
        numbers = [_number(values[id(param)], kind, param.name) for param, kind in lowered.native_values]
        return numbers, [values[id(param)] for param in lowered.objects]


def barriers_of(lowered: Lowered, given: Mapping[str, Any]) -> tuple[_core.Barrier, ...]:
    """Return the core's side of the barriers that are given as parameters, in the order the plan wants them.

    Raises
    ------
    TypeError
        A value is no barrier.
    """
    barriers = [param.value_in(given) for param in lowered.barriers]
    for param, barrier in zip(lowered.barriers, barriers, strict=True):
        if not isinstance(barrier, Barrier):
            raise TypeError(f"parameter {param.name!r} must be an ostinato.Barrier, got {barrier!r}")
    return tuple(barrier._core for barrier in barriers)


def _number(value: Any, kind: type, name: str) -> float:
    return value if kind is float is type(value) else as_scalar(value, kind, f"parameter {name!r}")


def _check_fill(value: Any, target: np.ndarray[Any, Any], name: str) -> None:
    """Make the assignment once, to memory that nobody uses."""
    element = np.empty(1, target.dtype)
    try:
        np.lib.stride_tricks.as_strided(element, target.shape, (0,) * target.ndim)[...] = value
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(
            f"parameter {name!r} cannot fill an array of {target.shape}, {target.dtype}: {error}"
        ) from None
