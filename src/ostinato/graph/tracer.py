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

__all__ = ["Origin", "TracedRing", "Tracer"]


class Origin:
    """Where the tracers of one argument come from.

    Attributes
    ----------
    name
        The argument as the function's code has it: ``u``, ``tiles[0]``, ``state.x``.
    function
        The name of the function.
    recording
        The recording of the call that they are arguments of.
    """

    __slots__ = ("function", "name", "recording")

    def __init__(self, name: str, function: str, recording: Recording) -> None:
        self.name = name
        self.function = function
        self.recording = recording


class Tracer(AbstractArray):
    """An array among the arguments of a function that is being compiled, or a view of one.

    It has a shape, a dtype and views, and is passed to tasks. Whatever needs its elements raises `TracerError`: tasks
    have them, in every step; the function runs once.
    """

    __slots__ = ("__weakref__", "_origin", "_parent", "_taken", "_value")

    def __init__(self, value: Any, origin: Origin, parent: Tracer | None = None, taken: Taken | None = None) -> None:
        self._value = value  # the view that tasks get
        self._origin = origin
        self._parent = parent
        self._taken = taken

    def real(self) -> Any:
        """Return the array, or the view of it, that this stands for.

        Raises
        ------
        TracerError
            The function has returned.
        """
        if self._origin.recording.ended:
            raise self._error("a statement uses", _ENDED)
        return self._value

    def __getitem__(self, index: Any) -> Tracer:
        value = self._value
        if self._origin.recording.ended:
            self.real()
        try:
            basic = view_index(index)
        except NotBasicError as error:
            raise self._fancy(error.entry) from None
        if type(value) is np.ndarray:
            return Tracer(value[basic], self._origin, self, ("[]", index))
        found: object
        if isinstance(value, RingElement | DeviceArray):
            found = value[basic]
        elif isinstance(value, np.ndarray):  # of a subclass, which may have a way of its own
            found = value[index]
            if not isinstance(found, np.ndarray):
                found = value[basic]
        else:
            found = self._of_another_library(value, index)
        return Tracer(found, self._origin, self, ("[]", index))

    def __repr__(self) -> str:
        return f"<tracer of {self._path()}, shape {self.shape}, {self.dtype}>"

    def _sample(self) -> Array:
        value = self._value
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
        return Tracer(found, self._origin, self, taken)

    def _title(self) -> str:
        origin = self._origin
        when = "stood for an array while" if origin.recording.ended else "has no elements while"
        argument = f"argument {origin.name!r} of {origin.function}()"
        return f"{self._path()} ({argument}), which {when} {origin.function}() is recorded"

    def _path(self) -> str:
        steps: list[Taken] = []
        link: Tracer | None = self
        while link is not None and link._taken is not None:
            steps.append(link._taken)
            link = link._parent
        return self._origin.name + "".join(map(written, reversed(steps)))

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

    __slots__ = ("__weakref__", "_elements", "_name", "_ring")

    def __init__(self, ring: Ring, origin: Origin) -> None:
        self._ring = ring
        self._name = origin.name
        self._elements = tuple(
            Tracer(element, Origin(f"{origin.name}[{place}]", origin.function, origin.recording))
            for place, element in enumerate(ring)
        )

    def _why(self) -> str:
        return f"{self!r} has no value while recording: pass an element of it to tasks, as in {self._name}[0]"

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
        return f"<tracer of {self._name}, a {repr(self._ring)[1:]}"
