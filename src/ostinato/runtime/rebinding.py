"""Rebinding: other arrays that stand for those a program was captured with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ostinato.errors import GraphError
from ostinato.graph.arrays import as_ndarray
from ostinato.graph.op import Op

__all__ = ["Rebinding", "at_address"]

Array: TypeAlias = np.ndarray[Any, Any]


class _Extent(NamedTuple):
    """The bytes from the first to the last of an array."""

    low: int
    high: int

    def holds(self, other: _Extent) -> bool:
        return self.low <= other.low and other.high <= self.high

    def meets(self, other: _Extent) -> bool:
        return self.low < other.high and other.low < self.high


class _Swap(NamedTuple):
    old: Array
    new: Array
    value: object  # the new array as the user gave it


class Rebinding:
    """Which memory stands for which of the captured arrays' memory; views follow their base by address."""

    def __init__(self, ops: Sequence[Op], swaps: tuple[_Swap, ...] = ()) -> None:
        self._ops = ops
        self._swaps = swaps

    def substitute(self, array: Array) -> Array:
        """Return what stands for a captured array, or for a view of one."""
        extent = _extent(array)
        for swap in self._swaps:
            old = _extent(swap.old)
            if old.holds(extent):
                address = array.ctypes.data - old.low + _extent(swap.new).low
                return at_address(address, array, swap.new)
        return array

    def value(self, value: object) -> object:
        """Return what stands for an array of another library, which tasks get as the user passed it."""
        array = as_ndarray(value)
        for swap in self._swaps:
            if array is not None and _extent(swap.old) == _extent(array):
                return swap.value
        return value

    def rebound(self, arrays: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Rebinding:
        """Return the binding in which `arrays` hold too.

        Raises
        ------
        GraphError
            An array is not one of the program's, or what is to stand for it does not fit, or overlaps another.
        """
        captured = list({_extent(view) for op in self._ops for each in op.operands for view in each.arrays})
        swaps = {_extent(swap.old): swap for swap in self._swaps}
        for old_value, new_value in arrays.items() if isinstance(arrays, Mapping) else arrays:
            old, new = self._captured(_array(old_value), captured), _array(new_value)
            if (new.shape, new.dtype, new.strides) != (old.shape, old.dtype, old.strides):
                raise GraphError(
                    f"rebind: an array of shape {old.shape}, {old.dtype}, strides {old.strides} cannot be replaced by "
                    f"one of shape {new.shape}, {new.dtype}, strides {new.strides}"
                )
            if not new.flags.writeable:
                raise GraphError("rebind: the new array is read-only; programs own the memory they run on")
            swaps[_extent(old)] = _Swap(old, new, new_value)
        result = Rebinding(self._ops, tuple(swaps.values()))
        result._check_overlaps(captured)
        return result

    def _captured(self, array: Array, captured: list[_Extent]) -> Array:
        """The captured array that is meant: `array`, or the one it stands for by now."""
        for swap in self._swaps:
            if _extent(swap.new) == _extent(array) and _extent(array) not in captured:
                return swap.old
        extent = _extent(array)
        inside = [view for view in captured if extent.holds(view)]
        if not inside:
            raise GraphError(
                f"rebind: the array of shape {array.shape} and dtype {array.dtype} is not one of the program's"
            )
        if any(extent.meets(view) for view in captured if view not in inside):
            raise GraphError("rebind: the program also uses memory across the bounds of this array; rebind its base")
        return array

    def _check_overlaps(self, captured: list[_Extent]) -> None:
        """What did not overlap before must not now."""
        for swap in self._swaps:
            old, new = _extent(swap.old), _extent(swap.new)
            for view in captured:
                if not old.holds(view) and new.meets(self._moved(view)):
                    raise GraphError("rebind: the new array overlaps other memory that the program uses")

    def _moved(self, view: _Extent) -> _Extent:
        for swap in self._swaps:
            old = _extent(swap.old)
            if old.holds(view):
                shift = _extent(swap.new).low - old.low
                return _Extent(view.low + shift, view.high + shift)
        return view


class _Memory:
    """Memory at an address, as NumPy takes it, which keeps its owner alive."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def at_address(address: int, like: Array, owner: object) -> Array:
    """Return an array at `address`, of the shape, dtype and strides of `like`, which keeps `owner` alive."""
    interface = {
        "version": 3,
        "data": (address, False),
        "shape": like.shape,
        "strides": like.strides,
        "typestr": like.dtype.str,
    }
    array = np.asarray(_Memory(interface, owner))
    return array if array.dtype == like.dtype else array.view(like.dtype)


def _array(value: object) -> Array:
    array = as_ndarray(value)
    if array is None:
        raise TypeError(f"rebind: {type(value).__name__} is no array")
    return array


def _extent(array: Array) -> _Extent:
    return _Extent(*np.lib.array_utils.byte_bounds(array))
