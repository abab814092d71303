"""The values of a run: parameters resolved for native and for Python tasks."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.events import Barrier
from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.scalar import as_scalar

if TYPE_CHECKING:
    from ostinato.compile.lower import Lowered

__all__ = ["barriers_of", "resolve"]


def resolve(
    params: Mapping[str, Param], lowered: Lowered, given: Mapping[str, Any]
) -> tuple[list[int] | None, list[object] | None]:
    """Return the bits of the native values, and the objects, in the order the plan wants them.

    Raises
    ------
    TypeError
        A parameter is not known or not given, or its value is of the wrong type.
    ValueError
        A value cannot be assigned to what it is to fill.
    """
    if not params and not given:
        return None, None
    unknown = [name for name in given if name not in params]
    if unknown:
        known = ", ".join(map(repr, params)) or "no parameters"
        raise TypeError(f"this program has no parameter {unknown[0]!r}; it has {known}")
    missing = [name for name, param in params.items() if param.default is REQUIRED and name not in given]
    if missing:
        raise TypeError(f"parameter {missing[0]!r} has no default, so give it: replay(..., {missing[0]}=...)")
    known: dict[int, Any] = {}  # by identity: those of nested graphs may have one name

    def value(param: Param) -> Any:
        if id(param) not in known:
            known[id(param)] = param.value_in(given)
        return known[id(param)]

    for param in lowered.counts:
        if as_scalar(value(param), int, f"parameter {param.name!r}") < 1:
            raise ValueError(f"parameter {param.name!r} counts arrivals, from 1; {value(param)!r} is less")
    for param, target in lowered.fills:
        _check_fill(value(param), target, param.name)
    bits = [_bits(value(param), kind, param.name) for param, kind in lowered.native_values]
    return bits, [value(param) for param in lowered.objects]


def barriers_of(lowered: Lowered, given: Mapping[str, Any]) -> list[Barrier]:
    """Return the barriers that are given as parameters, in the order the plan wants them.

    Raises
    ------
    TypeError
        A value is no barrier.
    """
    barriers = [param.value_in(given) for param in lowered.barriers]
    for param, barrier in zip(lowered.barriers, barriers, strict=True):
        if not isinstance(barrier, Barrier):
            raise TypeError(f"parameter {param.name!r} is a barrier, not {barrier!r}")
    return barriers


def _check_fill(value: Any, target: np.ndarray[Any, Any], name: str) -> None:
    """Make the assignment once, to memory that nobody uses."""
    element = np.empty(1, target.dtype)
    try:
        np.lib.stride_tricks.as_strided(element, target.shape, (0,) * target.ndim)[...] = value
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"parameter {name!r} cannot fill an array of {target.shape}, {target.dtype}: {error}"
        ) from None


def _bits(value: Any, kind: type, name: str) -> int:
    number = as_scalar(value, kind, f"parameter {name!r}")
    packed = struct.pack("d", number) if kind is float else struct.pack("q", number)
    bits: int = struct.unpack("Q", packed)[0]
    return bits
