"""Memories: where arrays live, and the instances of allocations in other memories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ostinato.compiler.ir import HOST, Node
from ostinato.devices.registry import Reserved, address_of, bytes_at, view_of
from ostinato.errors import GraphError
from ostinato.graph.arrays import HOST as HOST_NAME
from ostinato.graph.arrays import Array, Operand, memory_of
from ostinato.graph.ring import Ring, RingElement

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op


class Homes:
    """Says in which memory the user's arrays are.

    `name_of`: gives the name of the memory that an array is in.
    """

    def __init__(self, devices: Sequence[Device], name_of: Callable[[Array], str] = memory_of) -> None:
        self._index = {HOST_NAME: HOST} | {device.name: index for index, device in enumerate(devices)}
        self._name_of = name_of

    def of(self, array: Array, op: Op) -> int:
        """Return the memory of an array that an op uses."""
        name = self._name_of(array)
        if name not in self._index:
            there = ", ".join(each for each in self._index if each != HOST_NAME) or "no device"
            raise GraphError(
                f"{op.name!r} at {op.call_site} uses an array in the memory of {name!r}, but this machine has {there}"
            )
        return self._index[name]


_PAGE = 4096


@dataclass(frozen=True, eq=False)
class Instance:
    """Memory away from an allocation's home for what ops use of it there.

    Its addresses are made up: each plan allocates memory of its own for it.
    """

    memory: int  # Where it is: `HOST`, or the index of a device.
    home: int  # Where the allocation is.
    low: int  # The first byte that is used of the allocation.
    high: int  # One more than the last.
    reservation: Reserved = field(repr=False)  # The made-up addresses of all instances of a program.
    offset: int  # Where its own begin among these.

    @property
    def base(self) -> int:
        """The made-up address of the instance's first byte; there is no memory at it."""
        return self.reservation.address + self.offset

    def at(self, array: Array) -> Array:
        """Return the array of this instance for an array at home."""
        return view_of(self._bytes, address_of(array) - self.low, array.shape, array.dtype, array.strides)

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return bytes_at(self.base, self.high - self.low, self.reservation)


class Instances:
    """The instances of allocations, made at first use; and nodes on the arrays of instances.

    `extents`: by allocation and memory, the address of the first byte that is used there, and one more than the last.
    `homes`: by allocation, the memory that it is in.
    """

    def __init__(
        self,
        extents: Mapping[tuple[int, int], tuple[int, int]],
        homes: Sequence[int],
        allocation_of: Callable[[Array], int],
    ) -> None:
        self._extents = extents
        self._homes = homes
        self._allocation_of = allocation_of
        self._known: dict[tuple[int, int], Instance] = {}
        # One reservation for all: making one takes longer than everything else that an instance does.
        self._offsets: dict[tuple[int, int], int] = {}
        self._size = 0
        for key, (low, high) in extents.items():
            self._offsets[key] = self._size
            self._size += -(-(high - low + 1) // _PAGE) * _PAGE  # one byte more: empty views may be behind the end
        self._reservation: Reserved | None = None
        self._operands: dict[tuple[int, int], Operand] = {}
        self._rings: dict[tuple[int, int], Ring] = {}

    @property
    def all(self) -> tuple[Instance, ...]:
        """The instances that are in use."""
        return tuple(self._known.values())

    def at(self, array: Array, allocation: int, memory: int) -> Array:
        """Return an array of an allocation in a memory: the array itself at home, else that of an instance.

        An array without elements is the same everywhere.
        """
        if not array.size or memory == self._homes[allocation]:
            return array
        instance = self._known.get((allocation, memory))
        if instance is None:
            if self._reservation is None:
                self._reservation = Reserved(self._size)
            low, high = self._extents[allocation, memory]
            instance = self._known[allocation, memory] = Instance(
                memory, self._homes[allocation], low, high, self._reservation, self._offsets[allocation, memory]
            )
        return instance.at(array)

    def move_node(self, op: Op, index: int, memories: Sequence[int]) -> Op:
        """Return an op at another index, its operands in these memories; the op itself if nothing changes."""
        operands = tuple(self._operand(each, memory) for each, memory in zip(op.operands, memories, strict=True))
        if index == op.index and all(new is old for new, old in zip(operands, op.operands, strict=True)):
            return op
        moved = {id(old): new for old, new in zip(op.operands, operands, strict=True)}
        return Node(op, index, op.body.map_operands(lambda each: moved.get(id(each), each)), operands)

    def _operand(self, operand: Operand, memory: int) -> Operand:
        known = self._operands.get((id(operand), memory))
        if known is None:
            known = self._operands[id(operand), memory] = self._moved(operand, memory)
        return known

    def _moved(self, operand: Operand, memory: int) -> Operand:
        if operand.array is not None:
            array = self._array(operand.array, memory)
            return operand if array is operand.array else Operand(array, array, None, operand.mode)
        if operand.ring is None:
            return operand
        views = tuple(self._array(view, memory) for view in operand.ring.views)
        if all(new is old for new, old in zip(views, operand.ring.views, strict=True)):
            return operand
        element = RingElement(self._ring(operand.ring.ring, memory), operand.ring.offset, views)
        return Operand(element, None, element, operand.mode)

    def _ring(self, ring: Ring, memory: int) -> Ring:
        known = self._rings.get((id(ring), memory))
        if known is None:
            known = Ring(tuple(self._array(array, memory) for array in ring.arrays))
            self._rings[id(ring), memory] = known
        return known

    def _array(self, array: Array, memory: int) -> Array:
        return self.at(array, self._allocation_of(array), memory)
