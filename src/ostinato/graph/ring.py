"""Arrays that take turns, step by step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from ostinato.counting import counted
from ostinato.devices.views import NotBasicError, Taken, view_index
from ostinato.graph.abstract_array import AbstractArray
from ostinato.graph.arrays import Array, as_ndarray, memory_of
from ostinato.graph.guard import writable_view
from ostinato.one_line import brief

__all__ = ["Ring", "RingElement", "ring"]

# How hard to look for an overlap of two arrays before assuming one; the exact answer can take exponential time.
_OVERLAP_EFFORT = 10_000


class RingElement(AbstractArray):
    """What is at one place of a ring: another of its arrays in each step.

    Attributes
    ----------
    ring
        The ring.
    offset
        In step s it is ``views[(s + offset) % len(views)]``.
    views
        The ring's arrays, each sliced as this element is.
    """

    __slots__ = ("__weakref__", "offset", "ring", "views")

    def __init__(self, ring: Ring, offset: int, views: tuple[Array, ...]) -> None:
        self.ring = ring
        self.offset = offset
        self.views = views

    def _sample(self) -> Array:
        return self.views[0]

    def _taking(self, take: Callable[[Array], Array], taken: Taken) -> RingElement:
        return RingElement(self.ring, self.offset, tuple([take(view) for view in self.views]))

    def _title(self) -> str:
        return (
            f"{self!r}, which stands for another array in each step, and only has a meaning as an argument of a task "
            "inside a capture, or of a method of a Graph"
        )

    def __getitem__(self, index: Any) -> RingElement:
        """Slice it like an array, with integers, slices, ``...`` and ``None``; every result is a view."""
        try:
            index = view_index(index)
        except NotBasicError as error:
            raise self._fancy(error.entry) from None
        return self.sliced(index)

    def sliced(self, index: Any) -> RingElement:
        """Return what an index gives that makes a view of each of the arrays."""
        return RingElement(self.ring, self.offset, tuple([view[index] for view in self.views]))

    def __repr__(self) -> str:
        return f"<element {self.offset} of a ring of {len(self.views)}, shape {self.shape}, {self.dtype}>"


class Ring:
    """Arrays that take turns; made by `ring`.

    Attributes
    ----------
    arrays
        The arrays' memory, in order.
    values
        The arrays as they were given.
    disjoint
        Whether no two of the arrays overlap.
    """

    __slots__ = ("__weakref__", "_elements", "arrays", "disjoint", "values")

    def __init__(self, values: tuple[object, ...]) -> None:
        self.values = values
        self.arrays = tuple(_member(value, place) for place, value in enumerate(values))
        first = self.arrays[0]
        for place, array in enumerate(self.arrays):
            if array.shape != first.shape or array.dtype != first.dtype:
                raise ValueError(
                    f"the arrays of a ring must have one shape and dtype: array 0 is {first.shape} {first.dtype}, "
                    f"array {place} is {array.shape} {array.dtype}"
                )
        memories = [memory_of(array) for array in self.arrays]
        for place, memory in enumerate(memories):
            if memory != memories[0]:
                raise ValueError(
                    f"the arrays of a ring must lie in one memory: array 0 in that of {memories[0]}, "
                    f"array {place} in that of {memory}"
                )
        self.disjoint = not any(_overlap(a, b) for a, b in combinations(self.arrays, 2))
        self._elements = tuple(RingElement(self, offset, self.arrays) for offset in range(len(self.arrays)))

    def __len__(self) -> int:
        return len(self.arrays)

    def __iter__(self) -> Iterator[RingElement]:
        return iter(self._elements)

    def __getitem__(self, offset: int) -> RingElement:
        """Return this step's array for 0, the next step's for 1, the last step's for -1."""
        return self._elements[self.place(offset)]

    def place(self, offset: int) -> int:
        """Return which of the elements is meant by a number of steps."""
        try:
            return operator.index(offset) % len(self._elements)
        except TypeError:
            raise TypeError(
                f"the index of a ring must be a number of steps, as in u[0] or u[-1], got {brief(offset)}; "
                "slice the element: u[0][2:5]"
            ) from None

    def __repr__(self) -> str:
        return f"<ring of {counted(len(self), 'array')}, shape {self.arrays[0].shape}, {self.arrays[0].dtype}>"


def ring(*arrays: Any) -> Ring:
    """Let arrays of one shape and dtype take turns.

    In step s, ``r[k]`` is ``arrays[(s + k) % len(arrays)]``.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> u = ost.ring(np.zeros(8), np.zeros(8))
    >>> u[1][2:5]
    <element 1 of a ring of 2, shape (3,), float64>
    >>> u[-1] is u[1]
    True
    """
    if not arrays:
        raise ValueError("ring() must be given at least one array")
    return Ring(tuple([each.real() if isinstance(each, AbstractArray) else each for each in arrays]))


def _member(value: object, place: int) -> Array:
    array = as_ndarray(value)
    if array is None:
        raise TypeError(f"argument {place + 1} of ring() must be an array, got {brief(value)}")
    # A view of our own: guards leave it alone, so that slices taken while recording are as writable as the array is.
    return writable_view(array)


def _overlap(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_EFFORT))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
