"""Arguments that a call refuses: values where an access is declared, and arrays where none is."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from numbers import Number
from types import BuiltinFunctionType, EllipsisType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ostinato.graph.arrays import as_ndarray, is_array
from ostinato.graph.containers import is_container, parts_of
from ostinato.graph.no_value import NoValue
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.token import Token

__all__ = ["PLAIN", "array_in", "holding", "is_accessed", "is_constant", "is_value", "opaque_refusal", "refusal_of"]

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), np.float64, np.float32, np.int64})
"""Types that need no look at whether they are plain values."""

_VALUES = (Number, str, np.generic, type(None))
_CONSTANTS = (
    *_VALUES,
    bytes,
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    EllipsisType,
    Enum,
    slice,
    range,
    np.dtype,
    np.ufunc,
)
_FACES = ("__array__", "__dataframe__", "__array_interface__", "__array_struct__")


def is_value(value: object) -> bool:
    """Whether an object is a value, which has no memory that calls could share."""
    return isinstance(value, _VALUES)


def is_constant(value: object) -> bool:
    """Whether an object is plainly one that no task changes."""
    return type(value) in PLAIN or isinstance(value, _CONSTANTS)


def refusal_of(value: object) -> str | None:
    """Say why an object that is no array cannot be passed where an access is declared; None where it can."""
    if is_value(value):
        shown = value.item() if isinstance(value, np.generic) else value
        kind = "None" if value is None else f"the {type(value).__name__} {shown!r}"
        return (
            f"must be an array, got {kind}: a value has no memory that tasks could share. Pass an array, such as the "
            "slice x[:1] where x[0] is meant, or declare no access for this parameter"
        )
    if any(hasattr(type(value), name) for name in _FACES):
        return (
            f"must be an array, got a {type(value).__name__}, which does not show the memory of its data: pass "
            "s.to_numpy() or numpy.asarray(s) of it. Pass ost.token(s) where the object itself is meant, and no array "
            "shares its data"
        )
    return None


def opaque_refusal(value: object) -> str:
    """Say why a container that holds arrays, and is not taken apart, is refused."""
    return f"is a {type(value).__name__} of arrays: pass a list, tuple or dict of them, or ost.token(...) of the object"


def is_accessed(value: object) -> bool:
    """Whether what is found in a container counts as an array there, or is refused like one."""
    if type(value) in PLAIN:
        return False
    if isinstance(value, np.ndarray | RingElement | Ring | Token | NoValue):
        return True
    if isinstance(value, bytes) or is_value(value):
        return False
    return refusal_of(value) is not None or as_ndarray(value) is not None


def holding(container: object) -> frozenset[int]:
    """Return the `id` of each container within a container, itself included, that has arrays in it, at any depth."""
    held_by: dict[int, list[int]] = {}
    found: list[int] = []
    for part, outside in _inside(container):
        held_by.setdefault(id(part), []).append(outside)
        if not is_container(part) and is_accessed(part):
            found.append(id(part))
    marked: set[int] = set()
    while found:
        for outside in held_by.get(found.pop(), ()):
            if outside not in marked:
                marked.add(outside)
                found.append(outside)
    return frozenset(marked)


def array_in(value: object) -> object:
    """Return an array, a ring element or a parameter among what is passed as a plain argument; None without any."""
    return next((part for part, _ in _inside(value) if _is_no_plain_value(part)), None)


def _is_no_plain_value(value: object) -> bool:
    if type(value) in PLAIN:
        return False
    return isinstance(value, RingElement | Ring | NoValue | memoryview) or is_array(value)


def _inside(value: object) -> Iterator[tuple[Any, int]]:
    """All that is in a container, at any depth, with the `id` of what holds it; values of plain types are left out."""
    waiting = [value]
    seen = {id(value): value}  # kept, so that each id stays that of one object
    while waiting:
        outside = waiting.pop()
        parts = parts_of(outside)
        if not parts or set(map(type, parts)) <= PLAIN:
            continue
        for part in parts:
            if type(part) in PLAIN:
                continue
            yield part, id(outside)
            if id(part) not in seen:
                seen[id(part)] = part
                waiting.append(part)
