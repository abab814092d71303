"""Addresses that stand for memory of devices: no two allocations have the same, and nothing of ours reads there."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Memory", "Reserved", "bytes_at", "view_of"]


class Reserved:
    """Addresses of this process that nobody else gets while it lives. Writing there ends the process; zeros are read
    there, since debuggers and what shows tracebacks print the arrays that they come across.

    Parameters
    ----------
    nbytes
        How many. The address behind the last is reserved, too, so that empty views at the end belong to it.
    """

    __slots__ = ("_mapping", "address")

    def __init__(self, nbytes: int) -> None:
        self._mapping = mmap.mmap(-1, nbytes + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        # Its address, without touching it; the view would keep the mapping from being closed, which nobody does.
        self.address = int(np.frombuffer(self._mapping, np.uint8).__array_interface__["data"][0])


class Memory:
    """Memory at an address, as NumPy takes it, which keeps its owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object, readonly: bool) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, readonly), "shape": (nbytes,), "typestr": "|u1"}
        self.owner = owner


def bytes_at(address: int, nbytes: int, owner: object, readonly: bool = False) -> npt.NDArray[np.uint8]:
    """Return the bytes at an address as an array, without touching them; it keeps `owner` alive."""
    return np.asarray(Memory(address, nbytes, owner, readonly))


def view_of(
    raw: npt.NDArray[np.uint8],
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None = None,
) -> np.ndarray[Any, Any]:
    """Return an array whose first element is at `offset` of the bytes, without touching them."""
    if 0 in shape:  # NumPy checks no more than that; `offset` may be the end
        return np.ndarray(shape, dtype, raw, min(offset, raw.size), strides)
    return np.ndarray(shape, dtype, raw, offset, strides)
