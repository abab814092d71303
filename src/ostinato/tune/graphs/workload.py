"""One op of a graph with copies of all that it accesses: what its variants are called with, and compared by."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ostinato.checking.checked_run import argument
from ostinato.checking.comparison import array_difference, same_value
from ostinato.checking.copies import Replacements, allocations
from ostinato.compiler.ir import Node
from ostinato.devices.registry import address_of, allocation_under, any_allocations, view_of
from ostinato.graph.arrays import READ, READ_WRITE, WRITE, Array, Operand
from ostinato.graph.body import Copy, Fill, NativeCall, PythonCall
from ostinato.graph.containers import PLAIN
from ostinato.graph.param import Param, Step
from ostinato.runtime.memory import extent_of, raw_bytes
from ostinato.runtime.sequential import AsCaptured

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ostinato.devices.array import Allocation
    from ostinato.graph.op import Op


_GUARD = 4096
_AS_CAPTURED = AsCaptured()


class Unmeasurable(Exception):
    """Why an op, or one of its variants, cannot be measured."""


class Workload:
    """One op (a call of a task, a copy or a fill) with copies of its arguments, as they are in step 0.

    Raises `Unmeasurable` if what the op accesses cannot be copied.
    """

    def __init__(self, op: Op) -> None:
        self.op = at_step_0(op)
        body, memo = self.op.body, dict[int, object]()
        if isinstance(body, PythonCall):  # calls must not change the user's objects
            body.args = tuple(
                arg if isinstance(arg, Operand | Param | Step) else copy_object(arg, memo, op.name) for arg in body.args
            )
        try:
            self._originals = allocations([self.op], _AS_CAPTURED, whole=False)
        except TypeError as error:
            raise Unmeasurable(str(error)) from None
        self._plain = [original for original in self._originals if not original.objects]
        distinct = list({id(operand): operand for operand in self.op.operands}.values())
        self._arrays = [operand for operand in distinct if operand.arrays]
        self._written = [operand for operand in distinct if operand.mode & WRITE]
        self._changing = [operand for operand in self._arrays if operand.mode == READ_WRITE]
        # Tokens and Python objects cannot be restored in place: they are copied again.
        self._replaced = len(self._arrays) < len(distinct) or len(self._plain) < len(self._originals)
        self.changes = bool(self._changing) or any(not operand.arrays for operand in self._written)
        """Whether calls change what they are given, so that the next ones find something else."""
        self.replacements = self._copied()
        """The copies; others after `renew`, where some cannot be put back in place."""
        for operand in self._written:
            if not operand.arrays and self.replacements.value(operand.value) is operand.value:
                kind = type(operand.value).__name__
                raise Unmeasurable(f"{self.op.name!r} changes an argument, a {kind}, that cannot be copied")

    def renew(self) -> None:
        """Restore the arguments as they were captured, with a pattern in arrays that calls must overwrite."""
        if self._replaced:
            self.replacements = self._copied()
        else:
            for original, block in zip(self._plain, self.replacements.memory.plain, strict=True):
                block[...] = original.bytes
        self.replacements.memory.set_guards()
        patterned = [operand for operand in self._written if operand.mode == WRITE and _has_bytes(operand)]
        for operand in patterned:
            fill_with_pattern(self._array(operand))
        for operand in self._arrays if patterned else ():
            if operand.mode & READ and _has_bytes(operand):  # it may overlap them
                self._put_back(operand)

    def put_back(self) -> None:
        """Restore what calls change."""
        if self._replaced:
            self.renew()
        else:
            for operand in self._changing:
                self._put_back(operand)

    def outputs(self) -> list[object]:
        """Return copies of what the op writes, as it is now."""
        return [
            self._array(operand).copy() if _has_bytes(operand) else self._value(operand) for operand in self._written
        ]

    def difference(self, wanted: Sequence[object], rtol: float) -> str:
        """Say in what the copies differ from outputs of the default; what the op writes is then as it was captured."""
        for operand, expected in zip(self._written, wanted, strict=True):
            found = self._value(operand)
            if not operand.arrays:
                if not same_value(expected, found, rtol):
                    return "it leaves an argument that is no array in another state"
                continue
            pattern = pattern_of(operand.arrays[0].dtype) if operand.mode == WRITE and _has_bytes(operand) else None
            difference = array_difference(cast("Array", expected), cast("Array", found), rtol, pattern)
            if difference:
                return f"{self._named(operand)}: {difference}"
        return self._trespass()

    def _trespass(self) -> str:
        """Say where something was written that was not declared to be."""
        for operand in self._written:
            if _has_bytes(operand):
                self._put_back(operand)
        for original, block in zip(self._plain, self.replacements.memory.plain, strict=True):
            if array_difference(original.bytes, block):
                return "it writes to what it should only read, or beside its arguments in their memory"
        for operand in self._arrays:
            compared = operand.mode != READ or _has_bytes(operand)
            if not compared and not same_value(operand.arrays[0], self._value(operand)):
                return f"{self._named(operand)}: it writes to what it should only read"
        return "" if self.replacements.memory.guards_hold() else "it writes beyond the ends of its arguments"

    def _copied(self) -> Replacements:
        try:
            return Replacements([self.op], _AS_CAPTURED, self._originals, _GUARD)
        except TypeError as error:  # of arrays of other libraries
            raise Unmeasurable(str(error)) from None

    def _put_back(self, operand: Operand) -> None:
        raw_bytes(self._array(operand))[...] = raw_bytes(operand.arrays[0])

    def _array(self, operand: Operand) -> Array:
        return self.replacements.substitute(operand.arrays[0])

    def _value(self, operand: Operand) -> object:
        return self._array(operand) if operand.arrays else self.replacements.value(operand.value)

    def _named(self, operand: Operand) -> str:
        return argument(self.op, next(place for place, each in enumerate(self.op.operands) if each is operand))


def _has_bytes(operand: Operand) -> bool:
    """Whether an operand is an array whose bytes are its values."""
    return bool(operand.arrays) and not operand.arrays[0].dtype.hasobject


def at_step_0(op: Op) -> Node:
    """Return an op with arrays in place of rings, as in step 0, and host copies of arrays in a device's memory."""
    operands = {}
    for operand in op.operands:
        operands[id(operand)] = operand
        if operand.ring is not None:
            array = operand.ring.views[operand.ring.offset % len(operand.ring.views)]
            operands[id(operand)] = Operand(array, array, None, operand.mode)
    if any_allocations():
        here = copy_to_host(operands.values())
        operands = {key: here[id(operand)] for key, operand in operands.items()}
    body = copy.copy(op.body)
    if isinstance(body, PythonCall | NativeCall):
        body.args = tuple(operands[id(arg)] if isinstance(arg, Operand) else arg for arg in body.args)
    elif isinstance(body, Copy | Fill):
        for name in type(body).__slots__:
            value = getattr(body, name)
            if isinstance(value, Operand):
                setattr(body, name, operands[id(value)])
    else:
        raise Unmeasurable(f"{op.name!r} computes nothing")
    return Node(op, 0, body, tuple(operands[id(operand)] for operand in op.operands), recorded=body)


def copy_object(value: object, memo: dict[int, object], name: str) -> object:
    """Return a deep copy of a plain argument of an op; raise `Unmeasurable` if it cannot be copied."""
    if type(value) in PLAIN or isinstance(value, ModuleType):
        return value
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:
        raise Unmeasurable(f"an argument of {name!r}, a {type(value).__name__}, cannot be copied") from error


_BYTE = 0xA5
_NAN = {2: 0x7EA5, 4: 0x7FE5A5A5, 8: 0x7FF8A5A5A5A5A5A5}
"""NaNs by their size, which no arithmetic comes to by itself."""
_LOW = 6
"""Bytes of a larger number that are not of its exponent, wherever that is kept last."""


def pattern_of(dtype: np.dtype[Any]) -> Array:
    """Return an element that is hardly a result: NaN in floating-point numbers, since whatever reads one is one."""
    memory = np.full(dtype.itemsize, _BYTE, np.uint8)
    _fill(memory, 0, dtype)
    return np.ndarray((), dtype, memory)


def fill_with_pattern(array: Array) -> None:
    """Fill an array with the pattern, padding and all."""
    raw_bytes(array)[...] = raw_bytes(pattern_of(array.dtype))


def _fill(memory: Array, begin: int, dtype: np.dtype[Any]) -> None:
    if dtype.fields is not None:
        for field, place, *_ in dtype.fields.values():
            _fill(memory, begin + place, field)
    elif dtype.subdtype is not None:
        inner = dtype.subdtype[0]
        for place in range(0, dtype.itemsize, inner.itemsize or 1):
            _fill(memory, begin + place, inner)
    elif dtype.kind == "U":
        text = np.array("\ufffd" * (dtype.itemsize // 4), dtype)  # bits that are no text raise where they are looked at
        memory[begin : begin + dtype.itemsize] = raw_bytes(text)
    elif dtype.kind in "fc":
        size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        for place in range(begin, begin + dtype.itemsize, size):
            if size in _NAN:
                number = np.array(_NAN[size], np.dtype(f"u{size}").newbyteorder(dtype.byteorder))
            else:
                number = np.array(np.nan, np.longdouble)
                raw_bytes(number)[:_LOW] = _BYTE
            memory[place : place + size] = raw_bytes(number)


def copy_to_host(operands: Collection[Operand]) -> dict[int, Operand]:
    """Return operands, of which none is a ring, by their ids: for arrays of devices copies that overlap as these do."""
    found = {id(operand): operand for operand in operands}
    extents: dict[Allocation, tuple[int, int]] = {}
    lying: list[tuple[Operand, Array, Allocation]] = []
    for operand in operands:
        array = operand.array
        allocation = None if array is None else allocation_under(array)
        if allocation is None or array is None:
            continue
        lying.append((operand, array, allocation))
        if array.size:
            low, high = extent_of(array)
            least, most = extents.get(allocation, (low, high))
            extents[allocation] = min(low, least), max(high, most)
    copies = {
        allocation: (low, allocation.array(high - low, np.uint8, low - allocation.address).get())
        for allocation, (low, high) in extents.items()
    }
    for operand, array, allocation in lying:
        if array.size:
            low, copied = copies[allocation]
            view = view_of(copied, address_of(array) - low, array.shape, array.dtype, array.strides)
        else:
            view = np.empty(array.shape, array.dtype)
        view.flags.writeable = array.flags.writeable
        found[id(operand)] = Operand(view, view, None, operand.mode)
    return found
