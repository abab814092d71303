"""Arrays as memory: their bytes, and other arrays at the same address."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.devices.registry import device_array
from ostinato.graph.arrays import HOST, Array, memory_of, used_bytes

Bytes: TypeAlias = npt.NDArray[np.uint8]


class Extent(NamedTuple):
    """The bytes from the first to the last of an array."""

    low: int
    high: int

    def holds(self, other: Extent) -> bool:
        """Whether all bytes of `other` are among these."""
        return self.low <= other.low and other.high <= self.high

    def meets(self, other: Extent) -> bool:
        """Whether the two have bytes in common."""
        return self.low < other.high and other.low < self.high


def extent_of(array: Array) -> Extent:
    """Return the bytes of an array."""
    return Extent(*np.lib.array_utils.byte_bounds(array))


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


def root_of(array: Array) -> Array:
    """Return the array that all views of an array are of, as far as NumPy knows, and those made by `at_address`."""
    while True:
        base = array.base.owner if isinstance(array.base, _Memory) else array.base
        if not isinstance(base, np.ndarray) or not extent_of(base).holds(extent_of(array)):
            return array
        array = base


def bytes_at(low: int, high: int, owner: object) -> Bytes:
    """Return the bytes from `low` to `high`, which keep `owner` alive."""
    return _strided_bytes(low, (high - low,), (1,), owner)


def raw_bytes(array: Array) -> Bytes:
    """Return the bytes of an array's elements, along one more axis than the array has."""
    return _strided_bytes(array.ctypes.data, (*array.shape, array.itemsize), (*array.strides, 1), array)


def value_bytes(array: Array) -> Bytes:
    """Return the bytes of an array's elements that make their values: not the padding."""
    used = used_bytes(array.dtype)
    return raw_bytes(array) if used.all() else raw_bytes(array)[..., used]


def writable(array: Array) -> Array:
    """Return the same memory as an array that can be written to."""
    return at_address(array.ctypes.data, array, array)


def contents(array: Array) -> Array:
    """Return an array whose elements can be read: itself, or a copy where it lies in the memory of a device."""
    return array if memory_of(array) == HOST else device_array(array).get()


def assign(to: Array, values: Array) -> None:
    """Copy values to an array, whatever memory it lies in."""
    if memory_of(to) == HOST:
        to[...] = values
    else:
        device_array(to).set(values)


def _strided_bytes(address: int, shape: tuple[int, ...], strides: tuple[int, ...], owner: object) -> Bytes:
    return at_address(address, np.lib.stride_tricks.as_strided(np.empty(0, np.uint8), shape, strides), owner)
