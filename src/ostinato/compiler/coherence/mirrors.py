"""Mirrors: what stands for an array in a memory that is not its home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ostinato.devices.registry import Reserved, address_of, bytes_at, view_of
from ostinato.graph.arrays import Array

__all__ = ["Mirror", "Mirrors"]


@dataclass(frozen=True, eq=False)
class Mirror:
    """As much memory elsewhere as ops use there of an allocation.

    Its addresses are made up: each plan has memory of its own for it.
    """

    memory: int
    """Where it is: `HOST`, or the index of a device."""
    home: int
    """Where the allocation is."""
    low: int
    """The first byte that is used of the allocation."""
    high: int
    """What is behind the last."""
    reservation: Reserved = field(repr=False)
    """The addresses that stand for all mirrors of a program."""
    offset: int
    """How many of these come before its own."""

    @property
    def base(self) -> int:
        """The address that stands for the mirror's first byte; nothing is there."""
        return self.reservation.address + self.offset

    def at(self, array: Array) -> Array:
        """Return what stands for an array of the home."""
        return view_of(self._bytes, address_of(array) - self.low, array.shape, array.dtype, array.strides)

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return bytes_at(self.base, self.high - self.low, self.reservation)


_PAGE = 4096


class Mirrors:
    """The mirrors of allocations, made where they are asked for.

    Parameters
    ----------
    extents
        By allocation and memory, the first byte that is used there, and what is behind the last.
    homes
        By allocation, the memory that it is in.
    """

    def __init__(self, extents: Mapping[tuple[int, int], tuple[int, int]], homes: Sequence[int]) -> None:
        self._extents = extents
        self._homes = homes
        self._known: dict[tuple[int, int], Mirror] = {}
        # One reservation for all: to make one takes longer than all else that a mirror does.
        self._offsets: dict[tuple[int, int], int] = {}
        self._size = 0
        for place, (low, high) in extents.items():
            self._offsets[place] = self._size
            self._size += -(-(high - low + 1) // _PAGE) * _PAGE  # one more, since empty views may be behind the end
        self._reservation: Reserved | None = None

    @property
    def all(self) -> tuple[Mirror, ...]:
        """Those that were asked for."""
        return tuple(self._known.values())

    def at(self, array: Array, allocation: int, memory: int) -> Array:
        """Return what an array of an allocation is in a memory: itself at home, elsewhere its place in a mirror.

        One without elements is the same everywhere.
        """
        if not array.size or memory == self._homes[allocation]:
            return array
        mirror = self._known.get((allocation, memory))
        if mirror is None:
            if self._reservation is None:
                self._reservation = Reserved(self._size)
            low, high = self._extents[allocation, memory]
            mirror = self._known[allocation, memory] = Mirror(
                memory, self._homes[allocation], low, high, self._reservation, self._offsets[allocation, memory]
            )
        return mirror.at(array)
