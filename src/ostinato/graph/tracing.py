"""Tracers in place of the arrays among the arguments of a function, and these again in place of the tracers."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from ostinato.graph.arrays import as_ndarray, is_array
from ostinato.graph.containers import Container, can_be_made, is_container, taken_apart
from ostinato.graph.context import Recording
from ostinato.graph.refusal import PLAIN
from ostinato.graph.ring import Ring, RingElement
from ostinato.graph.tracer import Attribute, Origin, TracedRing, Tracer

__all__ = ["Traced", "rebuilt", "untraced", "untraced_all"]

Path: TypeAlias = tuple[object, ...]
"""The path of an `Origin`."""

Leaf: TypeAlias = Callable[[Any, Path], Any]
"""Says what stands for what is no container, at a path."""

_DONE = frozenset({*PLAIN, np.ndarray, RingElement})
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
        return rebuilt(value, (name,), self._leaf, self._made)

    def changed(self) -> type | None:
        """Return the class of a container that the function changed; None if it changed none of those with tracers.

        The function gets a copy of such a container, once. A change, such as a swap of two arrays, would be lost.
        """
        for given, copied in self._made.values():
            container = None if copied is given or not is_container(copied) else taken_apart(given)
            if container is None:
                continue
            parts = [self._made.get(id(part), (part, part))[1] for part in container.parts]
            if not container.is_unchanged(copied, parts):
                return container.kind
        return None

    def _leaf(self, value: Any, path: Path) -> Any:
        if type(value) is np.ndarray:
            self.arrays.append(value)
            return Tracer(value, Origin(path, self._function, self._recording))
        if isinstance(value, Tracer | TracedRing) or not _is_array(value):
            return value
        origin = Origin(path, self._function, self._recording)
        if isinstance(value, Ring):
            self.arrays += [each for each in value.values if isinstance(each, np.ndarray)]
            return TracedRing(value, origin)
        if isinstance(value, RingElement):
            self.arrays += [each for each in value.ring.values if isinstance(each, np.ndarray)]
        elif isinstance(value, np.ndarray):
            self.arrays.append(value)
        return Tracer(value, origin)


def untraced_all(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call with arrays in place of tracers."""
    found = []
    for value in values:  # written out, since this is most of what tracers add to recording
        if type(value) is Tracer and not value.origin.recording.ended:
            found.append(value.value)
        else:
            found.append(value if type(value) in _DONE else untraced(value))
    return tuple(found)


def untraced(value: Any) -> Any:
    """Return what is passed to a task with arrays in place of tracers, in containers too."""
    kind = type(value)
    if kind is Tracer:
        return value.real()
    if kind in _DONE:
        return value
    return rebuilt(value, (), _untraced_leaf, {})


def _untraced_leaf(value: Any, _: Path) -> Any:
    return value.real() if isinstance(value, Tracer | TracedRing) else value


def _is_array(value: object) -> bool:
    if isinstance(value, _ARRAYS) or is_array(value):
        return True
    if isinstance(value, bytearray | memoryview) or type(value).__module__ in ("array", "mmap"):
        array = as_ndarray(value)
        return array is not None and array.flags.writeable
    return False


def rebuilt(value: Any, path: Path, leaf: Leaf, made: dict[int, tuple[object, object]]) -> Any:
    """Return a container of what `leaf` says of its parts; where these all stay, the container itself."""
    if type(value) in PLAIN:
        return value
    known = made.get(id(value))
    if known is not None:
        return known[1]
    container = None if type(value) is np.ndarray else taken_apart(value)
    if container is None:
        found = leaf(value, path)
    else:
        made[id(value)] = value, value  # for what contains itself
        found = _with_leaves(value, container, path, leaf, made)
    made[id(value)] = value, found
    return found


def _with_leaves(
    value: object, container: Container, path: Path, leaf: Leaf, made: dict[int, tuple[object, object]]
) -> object:
    parts = container.parts
    if PLAIN.issuperset(map(type, parts)):
        return value
    steps = container.keys if container.keys is not None else range(len(parts) - len(container.names))
    names = [Attribute(f".{name}") for name in container.names]
    new = [rebuilt(part, (*path, step), leaf, made) for step, part in zip((*steps, *names), parts, strict=True)]
    if all(map(is_, new, parts)):
        return value
    if any(part is value for part in parts):
        raise ValueError(f"an argument is a {container.kind.__name__} that contains itself; pass the arrays in it")
    if not can_be_made(container.kind):
        raise TypeError(
            f"an argument is a {container.kind.__name__} of arrays, and Ostinato cannot make another; pass a list, "
            "tuple, dict or dataclass of its arrays"
        )
    return container.make(new)
