"""Arrays as memory: their bytes, and other arrays at the same address."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

__all__ = ["Array", "Extent", "at_address", "extent_of"]

Array: TypeAlias = np.ndarray[Any, Any]


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
