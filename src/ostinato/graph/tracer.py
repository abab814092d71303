"""Arrays as a function sees them while it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.devices.array import DeviceArray
from ostinato.devices.views import NotBasicError, Taken, view_index, written
from ostinato.graph.abstract_array import AbstractArray
from ostinato.graph.arrays import Array, as_ndarray
from ostinato.graph.no_value import NoValue
from ostinato.graph.ring import Ring, RingElement

if TYPE_CHECKING:
    from ostinato.graph.context import Recording

__all__ = ["Attribute", "Origin", "TracedRing", "Tracer", "path_name"]


class Origin:
    """Where the tracers of one argument come from.

    Parameters
    ----------
    path
        The name of the parameter, then the steps into containers: ``"[0]"`` as ``0``, ``.x`` as an `Attribute`.

    Attributes
    ----------
    function
        The name of the function.
    recording
        The recording of the call that they are arguments of.
    """

    __slots__ = ("function", "path", "recording")

    def __init__(self, path: tuple[object, ...], function: str, recording: Recording) -> None:
        self.path = path
        self.function = function
        self.recording = recording

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
    have them, in every step; the function runs once.

    Attributes
    ----------
    value
        The array, or the view of it, that tasks are passed.
    origin
        The argument that it comes from.
    """

    __slots__ = ("__weakref__", "_parent", "_taken", "origin", "value")

    def __init__(self, value: Any, origin: Origin, parent: Tracer | None = None, taken: Taken | None = None) -> None:
        self.value = value
        self.origin = origin
        self._parent = parent
        self._taken = taken

    def real(self) -> Any:
        """Return the array, or the view of it, that this stands for.

        Raises
        ------
        TracerError
            The function has returned.
        """
        if self.origin.recording.ended:
            raise self._error("a statement uses", _ENDED)
        return self.value

    def __getitem__(self, index: Any) -> Tracer:
        value, origin = self.value, self.origin
        if origin.recording.ended:
            self.real()
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
        value = self.real()
        if isinstance(value, RingElement | DeviceArray):
            found = value._taking(take, taken)
        elif isinstance(value, np.ndarray):
            found = take(value)
        else:
            raise self._error(
                f"{written(taken)} is no view that Ostinato can take of",
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
        return self.origin.name + "".join(map(written, reversed(steps)))

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
            Tracer(element, Origin((*origin.path, place), origin.function, origin.recording))
            for place, element in enumerate(ring)
        )

    def _why(self) -> str:
        return f"{self!r} has no value while recording: pass an element of it to tasks, as in {self._origin.name}[0]"

    def real(self) -> Ring:
        """Return the ring."""
        return self._ring

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[Tracer]:
        return iter(self._elements)

    def __getitem__(self, offset: int) -> Tracer:
        return self._elements[self._ring.place(offset)]

    def __repr__(self) -> str:
        return f"<tracer of {self._origin.name}, a {repr(self._ring)[1:]}"
