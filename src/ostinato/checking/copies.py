"""Copies of all that the ops of a graph access, in which views overlap as they do in the originals."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.devices.array import DeviceArray
from ostinato.devices.registry import allocation_at, device_array
from ostinato.graph.arrays import Array, as_ndarray
from ostinato.graph.op import Op
from ostinato.graph.ring import RingElement
from ostinato.runtime.memory import Bytes, assign, at_address, bytes_at, contents, extent_of, root_of, writable

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Substitution

_LINE = 64  # bytes; copies are as well aligned within a cache line as the originals
_PAGE = 4096  # or within a page, where they have guards
_GUARD = 0xA5


@dataclass
class Allocation:
    """Memory from the first to the last byte of arrays that overlap."""

    low: int
    high: int
    array: Array
    """One of them; where some hold Python objects, one of these."""
    foreign: list[object] = field(default_factory=list)
    """Arrays of other libraries in it, which tasks get as they were passed."""

    @property
    def objects(self) -> bool:
        """Whether it holds Python objects."""
        return bool(self.array.dtype.hasobject)

    @property
    def bytes(self) -> Bytes:
        """All of the memory. Where that is a device's, nothing can be read there."""
        return bytes_at(self.low, self.high, self.array)


def allocations(
    ops: Sequence[Op], binding: Substitution, *, whole: bool = True, besides: Sequence[Array] = ()
) -> list[Allocation]:
    """Return the memory that ops access under a binding, and that of other arrays, in the order of its addresses.

    If `whole`, with all of the arrays that theirs are views of; arrays of Python objects always are with these.
    """
    found = []
    for operand in {id(operand): operand for op in ops for operand in op.operands}.values():
        foreign = operand.array is not None and not isinstance(operand.value, np.ndarray | RingElement | DeviceArray)
        for captured in operand.arrays:
            array = binding.substitute(captured)
            root = root_of(array) if whole or array.dtype.hasobject else array
            if root.size:
                low, high = extent_of(root)
                found.append(Allocation(low, high, root, [binding.value(operand.value)] if foreign else []))
    for array in besides:
        root = root_of(array) if whole else array
        found.append(Allocation(*extent_of(root), root))
    merged: list[Allocation] = []
    for each in sorted(found, key=lambda allocation: (allocation.low, -allocation.high)):
        if not merged or merged[-1].high <= each.low:
            merged.append(each)
            continue
        last = merged[-1]
        last.foreign += [value for value in each.foreign if all(value is not known for known in last.foreign)]
        if each.objects and not last.objects:
            last.array = each.array
        last.high = max(last.high, each.high)
    for each in merged:
        array = each.array
        if each.objects and (array.dtype != object or array.nbytes != each.high - each.low):
            raise TypeError(
                f"cannot copy the memory of an array of shape {array.shape} and dtype {array.dtype} as it is: arrays "
                "that hold Python objects must be of dtype object, and the array that they are views of contiguous"
            )
    return merged


class MemoryCopy:
    """A copy of allocations on the host; or `owners`, arrays that are copies already.

    `plain` is the memory that stands for each allocation that holds no Python objects: of those, bytes say nothing.
    """

    def __init__(self, originals: Sequence[Allocation], owners: Sequence[Array] | None = None) -> None:
        self._originals = originals
        self._lows = [original.low for original in originals]
        self._owners = [_copied_to_host(original, 0) for original in originals] if owners is None else list(owners)
        pairs = zip(originals, self._owners, strict=True)
        self.plain = [bytes_at(*extent_of(owner), owner) for original, owner in pairs if not original.objects]

    def at(self, array: Array) -> Array:
        """Return the array in the copy that is where `array` is in the originals."""
        place = bisect_right(self._lows, array.ctypes.data) - 1
        if not array.size or place < 0:
            return array
        owner = self._owners[place]
        address = extent_of(owner).low + array.ctypes.data - self._lows[place]
        return at_address(address, array, owner)

    def set_guards(self) -> None:
        """Fill the guards with their pattern."""
        for guard in self._guards():
            guard[...] = _GUARD

    def guards_hold(self) -> bool:
        """Whether nobody wrote to them since."""
        return all((guard == _GUARD).all() for guard in self._guards())

    def _guards(self) -> Iterator[Bytes]:
        """What lies around copies in the memory that was made for them."""
        for owner, original in zip(self._owners, self._originals, strict=True):
            if not original.objects and isinstance(owner.base, np.ndarray):
                room, (low, high) = owner.base, extent_of(owner)
                begin = extent_of(room).low
                yield room[: low - begin]
                yield room[high - begin :]


class Replacements:
    """Copies that stand for all arrays and tokens of ops: a substitution for the sequential run and the lowering.

    Tokens are copied as `copy.deepcopy` does, all at once, so that what they share they share in the copies. Those that
    cannot be copied (open files, locks) stand for themselves. On either side of each copy are `guard` bytes that nobody
    uses (see `MemoryCopy.guards_hold`), but not of arrays of other libraries and of Python objects.
    """

    def __init__(
        self, ops: Sequence[Op], binding: Substitution, originals: Sequence[Allocation], guard: int = 0
    ) -> None:
        self._binding = binding
        self._values: dict[int, object] = {}
        memo: dict[int, Any] = {}
        self.memory = MemoryCopy(originals, [_owner_for_tasks(original, memo, guard) for original in originals])
        operands = {id(operand): operand for op in ops for operand in op.operands}.values()
        for operand in operands:
            if operand.array is not None and isinstance(operand.value, np.ndarray):
                memo[id(operand.value)] = self.substitute(operand.array)
        for operand in operands:
            value = binding.value(operand.value)
            if isinstance(value, memoryview) and operand.array is not None:
                view = memoryview(self.substitute(operand.array))  # type: ignore[arg-type]
                self._values[id(operand.value)] = view.toreadonly() if value.readonly else view
            elif isinstance(operand.value, DeviceArray) and operand.array is not None:
                self._values[id(operand.value)] = device_array(self.substitute(operand.array))
            elif not operand.arrays or not isinstance(operand.value, np.ndarray | RingElement):
                self._values[id(operand.value)] = _deep_copy(value, memo)

    def substitute(self, array: Array) -> Array:
        """Return what stands for a captured array, or for a view of one."""
        return self.memory.at(self._binding.substitute(array))

    def value(self, value: object) -> object:
        """Return what stands for a token, or for an array of another library."""
        return self._values[id(value)]


def restore(originals: Sequence[Allocation], saved: MemoryCopy) -> None:
    """Have memory hold what it held, Python objects aside."""
    plain = (each for each in originals if not each.objects)
    for original, block in zip(plain, saved.plain, strict=True):
        if not np.array_equal(contents(original.bytes), block):
            assign(original.bytes, block)


@contextmanager
def put_back(originals: Sequence[Allocation], saved: MemoryCopy) -> Iterator[None]:
    """Afterwards, memory holds what it held; meanwhile, Python objects in arrays are copies."""
    objects = [(writable(each.array), each.array.copy()) for each in originals if each.objects]
    memo: dict[int, Any] = {}
    for array, held in objects:
        array[...] = copy.deepcopy(held, memo)
    try:
        yield
    finally:
        for array, held in objects:
            array[...] = held
        restore(originals, saved)


def _copied(original: Allocation, guard: int) -> Array:
    """A copy in the same memory."""
    memory = allocation_at(original.low)
    if memory is None:
        return _copied_to_host(original, guard)
    size = original.high - original.low
    copied = memory.device.allocate(size).array(size, np.uint8)
    copied.set(contents(original.bytes))
    return copied.proxy


def _copied_to_host(original: Allocation, guard: int) -> Array:
    if original.objects:
        return original.array.copy(order="K")
    size = original.high - original.low
    unit = _PAGE if guard else _LINE
    room = np.empty(size + unit + 2 * guard, np.uint8)
    shift = guard + (original.low - room.ctypes.data - guard) % unit
    room[shift : shift + size] = contents(original.bytes)
    return room[shift : shift + size]


def _owner_for_tasks(original: Allocation, memo: dict[int, Any], guard: int) -> Array:
    """A copy that tasks may use; where it has a face of another library, the memory of that."""
    if original.objects:
        return copy.deepcopy(original.array, memo)
    faces = [value for value in original.foreign if not isinstance(value, memoryview)]
    if not faces:
        return _copied(original, guard)
    owner = None
    for value in faces:
        source, copied = as_ndarray(value), as_ndarray(_deep_copy(value, memo))
        assert source is not None
        assert copied is not None
        fits = source.nbytes == original.high - original.low
        if copied.ctypes.data == source.ctypes.data or not fits or (owner is not None and not _same(owner, copied)):
            raise TypeError(
                f"cannot copy the {type(value).__name__} of shape {source.shape} together with other arrays that share "
                "its memory; capture NumPy arrays of that memory instead"
            )
        owner = copied
    assert owner is not None
    return owner


def _same(a: Array, b: Array) -> bool:
    return a.ctypes.data == b.ctypes.data and a.nbytes == b.nbytes


def _deep_copy(value: object, memo: dict[int, Any]) -> object:
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value
