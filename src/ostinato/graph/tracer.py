"""Arrays as a function sees them while it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from ostinato.devices.array import DeviceArray
from ostinato.devices.views import NotBasicError, Taken, format_view, view_index
from ostinato.graph.arrays import Array, as_ndarray, is_array
from ostinato.graph.containers import PLAIN, Container, can_be_made, is_container, take_apart
from ostinato.graph.context import Recording
from ostinato.graph.param import NoValue
from ostinato.graph.ring import AbstractArray, Ring, RingElement


@dataclass(slots=True, eq=False)
class Origin:
    """Where the tracers of one argument come from."""

    path: tuple[object, ...]
    """The name of the parameter, then the steps into containers: ``"[0]"`` as ``0``, ``.x`` as an `Attribute`."""
    function: str
    """The name of the function."""
    recording: Recording
    """The recording of the call that they are arguments of."""

    @property
    def name(self) -> str:
        """The argument as the function's code has it: ``u``, ``tiles[0]``, ``state.x``."""
        return path_name(self.path)


def path_name(path: tuple[object, ...]) -> str:
    """Return the path of an `Origin` as Python would write it."""
    first, *steps = path
    return f"{first}{''.join(str(step) if type(step) is Attribute else f'[{step!r}]' for step in steps)}"


class Attribute(str):
    """A step into an object: a dot and the name of an attribute."""


class Tracer(AbstractArray):
    """An array among the arguments of a function that is being compiled, or a view of one.

    It has a shape, a dtype and views, and is passed to tasks. Whatever needs its elements raises `TracerError`: tasks
    have them, in every step; the function runs once. `value` is what tasks are passed, `origin` the argument that it
    comes from.
    """

    __slots__ = ("__weakref__", "_parent", "_taken", "origin", "value")

    def __init__(self, value: Any, origin: Origin, parent: Tracer | None = None, taken: Taken | None = None) -> None:
        self.value = value
        self.origin = origin
        self._parent = parent
        self._taken = taken

    def referent(self) -> Any:
        """Return the array, or view, that this stands for; raise `TracerError` if the function has returned."""
        if self.origin.recording.ended:
            raise self._error("a statement uses", _ENDED)
        return self.value

    def __getitem__(self, index: Any) -> Tracer:
        value, origin = self.value, self.origin
        if origin.recording.ended:
            self.referent()
        if type(index) is slice:
            basic: Any = (index, Ellipsis)
        else:
            try:
                basic = view_index(index)
            except NotBasicError as error:
                raise self._fancy(error.entry) from None
        if type(value) is np.ndarray:
            return Tracer(value[basic], origin, self, ("[]", index))
        if type(value) is RingElement:
            return Tracer(value.sliced(basic), origin, self, ("[]", index))
        found: object
        if isinstance(value, DeviceArray):
            found = value[basic]
        elif isinstance(value, np.ndarray):  # of a subclass, which may have a way of its own
            found = value[index]
            if not isinstance(found, np.ndarray):
                found = value[basic]
        else:
            found = self._of_another_library(value, index)
        return Tracer(found, self.origin, self, ("[]", index))

    def __repr__(self) -> str:
        return f"<tracer of {self._path()}, shape {self.shape}, {self.dtype}>"

    def _sample(self) -> Array:
        value = self.value
        if isinstance(value, RingElement):
            return value.views[0]
        array = as_ndarray(value)
        assert array is not None
        return array

    def _taking(self, take: Callable[[Any], Any], taken: Taken) -> Tracer:
        value = self.referent()
        if isinstance(value, RingElement | DeviceArray):
            found = value._taking(take, taken)
        elif isinstance(value, np.ndarray):
            found = take(value)
        else:
            raise self._error(
                f"{format_view(taken)} is no view that Ostinato can take of",
                f"Pass an ndarray of its memory, as numpy.asarray or numpy.from_dlpack give, in place of this "
                f"{type(value).__name__}",
            )
        return Tracer(found, self.origin, self, taken)

    def _title(self) -> str:
        origin = self.origin
        when = "stood for an array while" if origin.recording.ended else "has no elements while"
        argument = f"argument {origin.name!r} of {origin.function}()"
        return f"{self._path()} ({argument}), which {when} {origin.function}() is recorded"

    def _path(self) -> str:
        steps: list[Taken] = []
        link: Tracer | None = self
        while link is not None and link._taken is not None:
            steps.append(link._taken)
            link = link._parent
        return self.origin.name + "".join(map(format_view, reversed(steps)))

    def _of_another_library(self, value: Any, index: Any) -> object:
        """Index an array that is no ndarray, and make sure that the result is a view."""
        found = value[index]
        whole, part = self._sample(), as_ndarray(found)
        if part is None or (part.size and not np.may_share_memory(whole, part)):
            raise self._error(
                f"indexing copies elements of a {type(value).__name__}, and so of",
                "Pass an ndarray of its memory, as numpy.asarray gives, whose slices are views",
            )
        return found


_ENDED = (
    "The function has been recorded, and its tracers are of no use any more. Use the arrays themselves, and let the "
    "function keep no tracer"
)


class TracedRing(NoValue):
    """A ring among the arguments of a function that is being compiled: its elements are tracers."""

    __slots__ = ("__weakref__", "_elements", "_origin", "_ring")

    def __init__(self, ring: Ring, origin: Origin) -> None:
        self._ring = ring
        self._origin = origin
        self._elements = tuple(
            Tracer(element, Origin((*origin.path, index), origin.function, origin.recording))
            for index, element in enumerate(ring)
        )

    def _why(self) -> str:
        return f"{self!r} has no value while recording: pass an element of it to tasks, as in {self._origin.name}[0]"

    def referent(self) -> Ring:
        """Return the ring."""
        return self._ring

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[Tracer]:
        return iter(self._elements)

    def __getitem__(self, offset: int) -> Tracer:
        return self._elements[self._ring.index_of(offset)]

    def __repr__(self) -> str:
        return f"<tracer of {self._origin.name}, a {repr(self._ring)[1:]}"


Path: TypeAlias = tuple[object, ...]
"""The path of an `Origin`."""

Leaf: TypeAlias = Callable[[Any, Path], Any]
"""Says what stands for what is no container, at a path."""

_DONE = frozenset({*PLAIN, np.ndarray, RingElement})
_ARRAYS = (np.ndarray, RingElement, Ring)


class Traced:
    """The arguments of one call, with tracers in place of arrays; `arrays` has the ndarrays that these stand for."""

    def __init__(self, function: str, recording: Recording) -> None:
        self._function = function
        self._recording = recording
        self._made: dict[int, tuple[object, object]] = {}  # by the id of what it stands for, which is kept alive
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.named: list[tuple[str, np.ndarray[Any, Any]]] = []
        """All arrays, those of rings and of devices included, with the names of the arguments."""

    def value(self, value: Any, name: str) -> Any:
        """Return an argument, with tracers in place of the arrays in it."""
        return rebuild(value, (name,), self._leaf, self._made)

    def changed(self) -> type | None:
        """Return the class of a container that the function changed; None if it changed none of those with tracers.

        The function gets a copy of such a container, once. A change, such as a swap of two arrays, would be lost.
        """
        for given, copied in self._made.values():
            container = None if copied is given or not is_container(copied) else take_apart(given)
            if container is None:
                continue
            parts = [self._made.get(id(part), (part, part))[1] for part in container.parts]
            if not container.is_unchanged(copied, parts):
                return container.kind
        return None

    def _leaf(self, value: Any, path: Path) -> Any:
        if type(value) is np.ndarray:
            self.arrays.append(value)
            self.named.append((path_name(path), value))
            return Tracer(value, Origin(path, self._function, self._recording))
        if isinstance(value, Tracer | TracedRing) or not _is_array(value):
            return value
        origin = Origin(path, self._function, self._recording)
        if isinstance(value, Ring):
            self.arrays += [each for each in value.values if isinstance(each, np.ndarray)]
            self.named += [(path_name(path), each) for each in value.arrays]
            return TracedRing(value, origin)
        if isinstance(value, RingElement):
            self.arrays += [each for each in value.ring.values if isinstance(each, np.ndarray)]
        else:
            if isinstance(value, np.ndarray):
                self.arrays.append(value)
            self.named += [(path_name(path), each) for each in (as_ndarray(value),) if each is not None]
        return Tracer(value, origin)


def untrace_all(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call with arrays in place of tracers."""
    found = []
    for value in values:  # written out, since this is most of what tracers add to recording
        if type(value) is Tracer and not value.origin.recording.ended:
            found.append(value.value)
        else:
            found.append(value if type(value) in _DONE else untrace(value))
    return tuple(found)


def untrace(value: Any) -> Any:
    """Return what is passed to a task with arrays in place of tracers, in containers too."""
    kind = type(value)
    if kind is Tracer:
        return value.referent()
    if kind in _DONE:
        return value
    return rebuild(value, (), _untraced_leaf, {})


def _untraced_leaf(value: Any, _: Path) -> Any:
    return value.referent() if isinstance(value, Tracer | TracedRing) else value


def _is_array(value: object) -> bool:
    if isinstance(value, _ARRAYS) or is_array(value):
        return True
    if isinstance(value, bytearray | memoryview) or type(value).__module__ in ("array", "mmap"):
        array = as_ndarray(value)
        return array is not None and array.flags.writeable
    return False


def rebuild(value: Any, path: Path, leaf: Leaf, made: dict[int, tuple[object, object]]) -> Any:
    """Return a container of what `leaf` says of its parts; where these all stay, the container itself."""
    if type(value) in PLAIN:
        return value
    known = made.get(id(value))
    if known is not None:
        return known[1]
    container = None if type(value) is np.ndarray else take_apart(value)
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
    new = [rebuild(part, (*path, step), leaf, made) for step, part in zip((*steps, *names), parts, strict=True)]
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
