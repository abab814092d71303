"""Arrays that take turns, step by step."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import combinations
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ostinato.graph.arrays import Array, as_ndarray, memory_of
from ostinato.graph.guard import writable_view

__all__ = ["Ring", "RingElement", "ring"]

_Index: TypeAlias = int | slice | EllipsisType | None

# How hard to look for an overlap of two arrays before assuming one; the exact answer can take exponential time.
_OVERLAP_EFFORT = 10_000


class RingElement:
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

    __hash__ = object.__hash__
    __array_ufunc__ = None

    def __init__(self, ring: Ring, offset: int, views: tuple[Array, ...]) -> None:
        self.ring = ring
        self.offset = offset
        self.views = views

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that it is in each step."""
        shape: tuple[int, ...] = self.views[0].shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.views[0].dtype

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return self.views[0].ndim

    @property
    def size(self) -> int:
        """Its number of elements."""
        return self.views[0].size

    @property
    def T(self) -> RingElement:
        """Its transpose."""
        return RingElement(self.ring, self.offset, tuple(view.T for view in self.views))

    def __len__(self) -> int:
        return len(self.views[0])

    def __getitem__(self, index: _Index | tuple[_Index, ...]) -> RingElement:
        """Slice it like an array, with integers, slices, ``...`` and ``None``; every result is a view."""
        indices: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
        whole = False
        for entry in indices:
            whole |= entry is Ellipsis
            if not _is_basic(entry):
                raise TypeError(
                    f"a ring element takes integers, slices, ... and None as indices, not {type(entry).__name__}: "
                    "other indices would copy"
                )
        if not whole:
            indices = (*indices, Ellipsis)  # so that an element is an array of no dimensions, not a number
        return RingElement(self.ring, self.offset, tuple([view[indices] for view in self.views]))

    def __repr__(self) -> str:
        return f"<element {self.offset} of a ring of {len(self.views)}, shape {self.shape}, {self.dtype}>"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "an element of a ring stands for another array in each step, and only has a meaning as an argument of a "
            "task inside a capture, or of a method of a Graph"
        )

    __array__ = __setitem__ = __bool__ = __float__ = __int__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


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
                    f"the arrays of a ring have one shape and dtype: array 0 is {first.shape} {first.dtype}, "
                    f"array {place} is {array.shape} {array.dtype}"
                )
        memories = [memory_of(array) for array in self.arrays]
        for place, memory in enumerate(memories):
            if memory != memories[0]:
                raise ValueError(
                    f"the arrays of a ring lie in one memory: array 0 in that of {memories[0]}, "
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
        try:
            return self._elements[operator.index(offset) % len(self._elements)]
        except TypeError:
            raise TypeError(
                f"a ring is indexed by a number of steps, as in u[0] or u[-1], not by {type(offset).__name__}; "
                "slice the element: u[0][2:5]"
            ) from None

    def __repr__(self) -> str:
        return f"<ring of {len(self)} arrays, shape {self.arrays[0].shape}, {self.arrays[0].dtype}>"


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
        raise ValueError("a ring needs at least one array")
    return Ring(arrays)


def _member(value: object, place: int) -> Array:
    array = as_ndarray(value)
    if array is None:
        raise TypeError(f"argument {place + 1} of ring() is no array but {type(value).__name__}")
    # A view of our own: guards leave it alone, so that slices taken while recording are as writable as the array is.
    return writable_view(array)


def _is_basic(entry: object) -> bool:
    if entry is None or entry is Ellipsis or type(entry) in (int, slice):
        return True
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _overlap(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_EFFORT))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
