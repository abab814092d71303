"""Recorded arrays are read-only while a capture is open, so that a statement that would not be recorded raises.

Clearing an array's `writeable` flag is all that can be done, so this is best effort: views that the user held before,
and buffers that are not ndarrays, stay as they are. What must not fail is giving the flags back. NumPy sets
one again only where the memory is known to be writable, so an array for which that is not so is left alone.
"""

from __future__ import annotations

import threading
from itertools import chain

import numpy as np

from ostinato.graph.arrays import Array

__all__ = ["Guard", "is_writable", "writable_view"]

_lock = threading.RLock()
_held: dict[int, int] = {}  # id of each array that a guard made read-only -> how many guards hold it


class Guard:
    """The arrays that one capture made read-only."""

    __slots__ = ("_arrays", "_views")

    def __init__(self) -> None:
        self._arrays: dict[int, Array] = {}  # by id, in the order in which they can be made writable again
        self._views: list[Array] = []  # views made from those meanwhile, which therefore were read-only from birth

    @property
    def holds_anything(self) -> bool:
        """Whether some array is read-only because of this guard."""
        return bool(self._arrays)

    def holds(self, array: Array) -> bool:
        """Whether an array is read-only because of this guard."""
        return id(array) in self._arrays

    def hold(self, array: Array) -> bool:
        """Make an array and its bases read-only; return whether it was writable, but for guards."""
        if id(array) in self._arrays:
            return True
        if not array.flags.writeable and id(array.base) in self._arrays:
            if _repeats(array):
                return False
            self._views.append(array)
            return True
        with _lock:
            if not array.flags.writeable and not _read_only_by_guard(array):
                return False
            base = array.base
            if isinstance(base, np.ndarray):
                self._hold_bases(base)
            if not array.flags.writeable or _can_be_given_back(array):
                self._add(array)
                array.flags.writeable = False
            return True

    def release(self) -> None:
        """Make everything as it was; safe to call again."""
        with _lock:
            for key in self._arrays:
                if _held[key] == 1:
                    del _held[key]
                else:
                    _held[key] -= 1
            for array in chain(self._arrays.values(), self._views):
                try:
                    array.flags.writeable = True
                except ValueError:
                    continue  # the user made its base read-only meanwhile
            self._arrays = {}
            self._views = []

    def _hold_bases(self, array: Array) -> None:
        if id(array) in self._arrays:
            return
        base = array.base
        if isinstance(base, np.ndarray):
            self._hold_bases(base)
        if (array.flags.writeable and _can_be_given_back(array)) or id(array) in _held:
            self._add(array)
            array.flags.writeable = False

    def _add(self, array: Array) -> None:
        self._arrays[id(array)] = array
        _held[id(array)] = _held.get(id(array), 0) + 1


def is_writable(array: Array) -> bool:
    """Whether an array is writable, but for guards."""
    with _lock:
        return array.flags.writeable or _read_only_by_guard(array)


def writable_view(array: Array) -> Array:
    """Return a view that is writable if the array is, but for guards, and that no guard will make read-only."""
    with _lock:
        view = array.view(np.ndarray)
        if not view.flags.writeable and _read_only_by_guard(array):
            root = _outermost_held(array)
            root.flags.writeable = True
            try:
                view.flags.writeable = True
            finally:
                root.flags.writeable = False
        return view


def _read_only_by_guard(array: Array) -> bool:
    """Whether a read-only array is so because a guard holds it, or held its base when it was made."""
    if id(array) in _held:
        return True
    base = array.base
    while isinstance(base, np.ndarray):
        if id(base) in _held:
            return not _repeats(array)
        base = base.base
    return False


def _repeats(array: Array) -> bool:
    """Whether a view repeats elements, as `numpy.broadcast_to` makes them, read-only on their own account."""
    strides = array.strides
    return 0 in strides and any(stride == 0 and length > 1 for stride, length in zip(strides, array.shape, strict=True))


def _outermost_held(array: Array) -> Array:
    outermost = array
    link: object = array
    while isinstance(link, np.ndarray):
        if id(link) in _held:
            outermost = link
        link = link.base
    return outermost


def _can_be_given_back(array: Array) -> bool:
    """Whether NumPy will let the flag of a writable array be set again, its bases being writable or held."""
    link: object = array
    while isinstance(link, np.ndarray):
        if link is not array and (link.flags.writeable or id(link) in _held):
            return True
        if link.base is None or link.flags.owndata:
            return link is array
        link = link.base
    try:
        memory = memoryview(link)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not memory.readonly and memory.c_contiguous
