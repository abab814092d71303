"""Tracers in place of the arrays among the arguments of a function, and these again in place of the tracers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ostinato.graph.arrays import as_ndarray, is_array
from ostinato.graph.context import Recording
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.tracer import Origin, TracedRing, Tracer

__all__ = ["Traced", "rebuilt", "untraced"]

Leaf: TypeAlias = Callable[[Any, str], Any]
"""Says what stands for what is no container, under the name that it has in the function."""

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_ARRAYS = (np.ndarray, RingElement, Ring)


class Traced:
    """The arguments of one call, with tracers in place of arrays.

    Parameters
    ----------
    function
        The name of the function.
    recording
        The recording of the call.

    Attributes
    ----------
    arrays
        The ndarrays that tracers stand for.
    """

    def __init__(self, function: str, recording: Recording) -> None:
        self._function = function
        self._recording = recording
        self._made: dict[int, tuple[object, object]] = {}  # by the id of what it stands for, which is kept alive
        self.arrays: list[np.ndarray[Any, Any]] = []

    def value(self, value: Any, name: str) -> Any:
        """Return an argument, with tracers in place of the arrays in it."""
        return rebuilt(value, name, self._leaf, self._made)

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Tracer | TracedRing) or not _is_array(value):
            return value
        origin = Origin(name, self._function, self._recording)
        if isinstance(value, Ring):
            self.arrays += [each for each in value.values if isinstance(each, np.ndarray)]
            return TracedRing(value, origin)
        if isinstance(value, RingElement):
            self.arrays += [each for each in value.ring.values if isinstance(each, np.ndarray)]
        elif isinstance(value, np.ndarray):
            self.arrays.append(value)
        return Tracer(value, origin)


def untraced(value: Any) -> Any:
    """Return what is passed to a task with arrays in place of tracers, in containers too."""
    kind = type(value)
    if kind is Tracer:
        return value.real()
    if kind is np.ndarray or kind is float or kind is int or kind is RingElement:
        return value
    return rebuilt(value, "", _untraced_leaf, {})


def _untraced_leaf(value: Any, _: str) -> Any:
    return value.real() if isinstance(value, Tracer | TracedRing) else value


def _is_array(value: object) -> bool:
    if isinstance(value, _ARRAYS) or is_array(value):
        return True
    if isinstance(value, bytearray | memoryview) or type(value).__module__ in ("array", "mmap"):
        array = as_ndarray(value)
        return array is not None and array.flags.writeable
    return False


def rebuilt(value: Any, name: str, leaf: Leaf, made: dict[int, tuple[object, object]]) -> Any:
    """Return a container of what `leaf` says of its parts; where these all stay, the container itself."""
    if type(value) in _PLAIN:
        return value
    known = made.get(id(value))
    if known is not None:
        return known[1]
    parts = _parts(value, name)
    if parts is None:
        found = leaf(value, name)
    else:
        made[id(value)] = value, value  # for what contains itself
        pairs = [(key, part, rebuilt(part, path, leaf, made)) for key, part, path in parts]
        changes = {key: new for key, old, new in pairs if new is not old}
        if changes and any(part is value for _, part, _ in parts):
            raise ValueError(f"{name} is a {type(value).__name__} that contains itself; pass the arrays in it")
        found = _changed(value, changes) if changes else value
    made[id(value)] = value, found
    return found


def _parts(value: Any, name: str) -> list[tuple[Any, Any, str]] | None:
    """Return the parts of a list, tuple, dict or dataclass, with their keys and names; None for anything else."""
    if isinstance(value, list | tuple):
        if _PLAIN.issuperset(map(type, value)):
            return []
        return [(place, part, f"{name}[{place}]") for place, part in enumerate(value)]
    if isinstance(value, dict):
        return [(key, part, f"{name}[{key!r}]") for key, part in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return [(field, getattr(value, field), f"{name}.{field}") for field in fields]
    return None


def _changed(value: Any, changes: Mapping[Any, Any]) -> Any:
    """Return a copy of a container with other parts in some places."""
    if isinstance(value, tuple):
        parts = [changes.get(place, part) for place, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    found = copy.copy(value)
    for key, part in changes.items():
        if isinstance(value, list | dict):
            found[key] = part
        else:
            object.__setattr__(found, key, part)
    return found
