"""Whether what one variant computed is what another did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ostinato.graph.arrays import Array
from ostinato.runtime.memory import contents, value_bytes

_PIECE = 1 << 18
"""Elements that are compared at a time: what comparing takes beside the arrays is bounded."""

_SHOWN = 80

_Mask = npt.NDArray[np.bool_]


def first_difference(wanted: Array, got: Array) -> tuple[int, ...] | None:
    """Return the index of the first element of which a bit differs, padding aside; None where there is none.

    Both may lie in the memory of devices.

    Examples
    --------
    >>> import numpy as np
    >>> first_difference(np.array([1.0, 0.0]), np.array([1.0, -0.0]))
    (1,)
    """
    one, other = value_bytes(contents(wanted)), value_bytes(contents(got))
    return None if np.array_equal(one, other) else first_index((one != other).any(-1))


def first_index(mask: _Mask) -> tuple[int, ...]:
    """Return the index of the first true element."""
    return tuple(int(i) for i in np.argwhere(mask)[0])


def array_difference(wanted: Array, got: Array, rtol: float = 0.0, unwritten: Array | None = None) -> str:
    """Return where two arrays of one shape and dtype differ first, and in what; an empty text if they are the same.

    Elements are the same if all their bits are, padding aside, or both are NaN; with `rtol`, numbers that are not
    whole are also if they differ by at most that part of what was wanted. But an element with the bits of `unwritten`
    is the same only as one that has them too. Python objects are compared by `same_value`.

    Examples
    --------
    >>> import numpy as np
    >>> array_difference(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    ''
    >>> array_difference(np.array([[1.0, 2.0]]), np.array([[1.0, 2.5]]))
    'at index (0, 1) it gives 2.5 instead of 2.0'
    >>> array_difference(np.array([2.0]), np.array([2.5]), rtol=0.5)
    ''
    """
    for first, some, others in _pieces(wanted, got):
        unlike = ~_alike(some, others, rtol)
        if unwritten is not None:
            left = (value_bytes(others) == value_bytes(unwritten)).all(-1)
            if left.any():
                unlike |= left & ~(value_bytes(some) == value_bytes(unwritten)).all(-1)
        if unlike.any():
            place = first_index(unlike)
            index = (place[0] + first, *place[1:]) if place else ()
            return f"at index {index} it gives {_shown(others[place])} instead of {_shown(some[place])}"
    return ""


def same_value(wanted: object, got: object, rtol: float = 0.0) -> bool:
    """Return whether two Python objects hold the same: numbers, arrays, containers, and objects by what makes a copy.

    Of objects that cannot be taken apart like that, equality by ``==`` is asked for.

    Examples
    --------
    >>> same_value({"a": [1, 2.0, float("nan")]}, {"a": [1, 2.0, float("nan")]}), same_value([1], [1.0])
    (True, False)
    """
    try:
        return bool(_Values(rtol).same(wanted, got))
    except Exception:  # what cannot be compared cannot be said to be the same
        return False


class _Values:
    """Compares objects, each pair of them once: they may refer to each other in circles."""

    def __init__(self, rtol: float) -> None:
        self._rtol = rtol
        self._seen: dict[tuple[int, int], tuple[object, object]] = {}

    def same(self, wanted: Any, got: Any) -> bool:
        if wanted is got or (id(wanted), id(got)) in self._seen:
            return True
        if type(wanted) is not type(got):
            return False
        self._seen[id(wanted), id(got)] = wanted, got
        if isinstance(wanted, float | complex | np.generic | np.ndarray):
            one, other = np.asarray(wanted), np.asarray(got)
            alike = one.shape == other.shape and one.dtype == other.dtype
            return alike and not array_difference(one, other, self._rtol)
        if isinstance(wanted, list | tuple):
            return len(wanted) == len(got) and all(map(self.same, wanted, got))
        if isinstance(wanted, Mapping):
            return wanted.keys() == got.keys() and all(self.same(value, got[key]) for key, value in wanted.items())
        if isinstance(wanted, type | FunctionType | ModuleType):
            return False
        if isinstance(wanted, bool | int | str | bytes | bytearray | set | frozenset):
            return bool(wanted == got)
        parts = _parts(wanted)
        return bool(wanted == got) if parts is None else self.same(parts, _parts(got))


def _parts(value: object) -> list[object] | None:
    """Return what a copy of an object is made of, as pickle and `copy` have it; None where that cannot be told."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return None
    if isinstance(reduced, str):
        return None  # by name: there is one of it
    # What makes it, the arguments of that, the state, and iterators over what it contains.
    return [list(part) if place >= 3 and part is not None else part for place, part in enumerate(reduced)]


def _pieces(wanted: Array, got: Array) -> Iterator[tuple[int, Array, Array]]:
    """Yield pieces of two arrays along their first axis, and where each begins."""
    if wanted.ndim == 0 or wanted.size <= _PIECE:
        yield 0, wanted, got
        return
    rows = max(1, _PIECE * len(wanted) // wanted.size)
    for first in range(0, len(wanted), rows):
        yield first, wanted[first : first + rows], got[first : first + rows]


def _alike(wanted: Array, got: Array, rtol: float) -> _Mask:
    """Return which elements are the same."""
    if wanted.dtype.hasobject:
        return _alike_objects(wanted, got, rtol)
    found: _Mask = (value_bytes(wanted) == value_bytes(got)).all(-1)
    if found.all():
        return found
    names = wanted.dtype.names
    if names is not None:
        by_field = (_alike(wanted[name], got[name], rtol) for name in names)
        inner = [mask.all(axis=tuple(range(wanted.ndim, mask.ndim))) for mask in by_field]  # of subarrays
        return cast("_Mask", np.logical_and.reduce(inner))
    if wanted.dtype.kind not in "fc":
        return found
    found |= np.isnan(wanted) & np.isnan(got)
    if rtol > 0:
        wide = np.result_type(wanted.dtype, np.float64)
        with np.errstate(all="ignore"):
            one, other = wanted.astype(wide), got.astype(wide)
            found |= np.isfinite(one) & np.isfinite(other) & (np.abs(one - other) <= rtol * np.abs(one))
    return found


def _alike_objects(wanted: Array, got: Array, rtol: float) -> _Mask:
    found = np.empty(wanted.shape, np.bool_)
    for index in np.ndindex(wanted.shape):
        found[index] = same_value(wanted[index], got[index], rtol)
    return found


def _shown(value: object) -> str:
    try:
        text = repr(value.item() if isinstance(value, np.generic) and value.dtype.names is None else value)
    except Exception:  # code of the user's
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
