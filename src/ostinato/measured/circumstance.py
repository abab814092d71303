"""What a variant was compared with the default under: layouts, overlaps and scalars.

Two ops of one case take the same time, or so the costs have it. But a variant that is right for contiguous arrays may
be wrong for strided ones, or where its input is its output, or for another scalar. So a variant counts as right only
for ops that are, in all of this, like one for which its outputs were compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.op import Op
from ostinato.graph.operand import WRITE, Operand
from ostinato.graph.param import Param, Step
from ostinato.tune.canonical import hashed

__all__ = ["Checked", "Circumstance", "Circumstances", "representatives"]

_ENOUGH_SCALARS = 32
"""A variant that is right for so many different scalars is taken to be right for others."""
_MOST_LAYOUTS = 16
_MOST_PHASES = 64
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, tuple)


class Circumstance(NamedTuple):
    """Digests, the same in every process."""

    layout: str
    """Of strides, alignment and overlaps; empty where these differ from step to step, which is never compared."""
    scalars: str
    """Of arguments that are no arrays; an object that is no plain value counts by its type."""


class Circumstances:
    """The circumstances of ops; what they share is looked at once."""

    def __init__(self) -> None:
        self._places: dict[Operand, _Place] = {}
        self._layouts: dict[object, str] = {}
        self._scalars: dict[tuple[object, ...], str] = {}
        self._by_operands: dict[tuple[Operand, ...], str] = {}

    def of(self, op: Op) -> Circumstance:
        """Return the circumstance of a call of a task."""
        body = op.body
        scalars: tuple[object, ...] = ()
        if isinstance(body, PythonCall | NativeCall) and len(body.args) > len(op.operands):
            scalars = tuple([_scalar(arg) for arg in body.args if type(arg) is not Operand])
        found = self._scalars.get(scalars)
        if found is None:
            found = self._scalars[scalars] = hashed(repr(scalars))[:16]
        return Circumstance(self._layout(op.operands), found)

    def _layout(self, operands: tuple[Operand, ...]) -> str:
        found = self._by_operands.get(operands)
        if found is None:
            places = [self._place(operand) for operand in operands]
            value = _layout(places)
            found = self._layouts.get(value)
            if found is None:
                found = self._layouts[value] = "" if value is None else hashed(repr(value))[:16]
            self._by_operands[operands] = found
        return found

    def _place(self, operand: Operand) -> _Place:
        place = self._places.get(operand)
        if place is None:
            place = self._places[operand] = _place(operand)
        return place


class _Place(NamedTuple):
    """Where an operand is."""

    layouts: tuple[object, ...]  # of the arrays that take turns, those that differ
    bounds: tuple[tuple[int, int], ...]  # of the memory of each array that takes turns
    offset: int
    writes: bool


def _place(operand: Operand) -> _Place:
    arrays = operand.arrays
    layouts = dict.fromkeys((_strides(array), bool(array.flags.aligned)) for array in arrays)
    bounds = tuple([_bounds(array) for array in arrays])
    if not arrays:  # a token: the same one is the same place
        bounds = ((id(operand.value), id(operand.value) + 1),)
    offset = 0 if operand.ring is None else operand.ring.offset
    return _Place(tuple(layouts), bounds, offset, bool(operand.mode & WRITE))


def _bounds(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The memory of an array: from its first byte to behind its last."""
    address: int = array.__array_interface__["data"][0]
    if array.flags.forc or not array.size:
        return address, address + array.nbytes
    reach = [stride * (length - 1) for stride, length in zip(array.strides, array.shape, strict=True)]
    below, above = sum(step for step in reach if step < 0), sum(step for step in reach if step > 0)
    return address + below, address + above + array.itemsize


def _strides(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Strides; those of axes that are never walked along are 0."""
    if not array.size:
        return ()
    return tuple([stride if length > 1 else 0 for stride, length in zip(array.strides, array.shape, strict=True)])


def _layout(places: Sequence[_Place]) -> tuple[object, ...] | None:
    """Return what operands' memory looks like; None if that is not the same in all steps."""
    phases = math.lcm(*(len(place.bounds) for place in places))
    if phases > _MOST_PHASES or any(len(place.layouts) > 1 for place in places):
        return None
    overlaps = {tuple(_overlaps(places, phase)) for phase in range(phases)}
    return None if len(overlaps) > 1 else (*(place.layouts for place in places), *overlaps)


def _overlaps(places: Sequence[_Place], phase: int) -> Iterator[tuple[int, ...]]:
    """Yield which operands, one of which is written, share memory in a step, and how far apart they are."""
    for second, b in enumerate(places):
        for first, a in enumerate(places[:second]):
            if a.writes or b.writes:
                low, high = a.bounds[(phase + a.offset) % len(a.bounds)]
                other_low, other_high = b.bounds[(phase + b.offset) % len(b.bounds)]
                if low < other_high and other_low < high:
                    yield first, second, other_low - low


def _scalar(value: object) -> object:
    if isinstance(value, Step):
        return "step"
    if isinstance(value, Param):
        return "param", _scalar(value.default)
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    return "object", type(value).__module__, type(value).__qualname__


def representatives(ops: Iterable[Op], circumstances: Circumstances) -> tuple[Op, ...]:
    """Return an op for each circumstance, the first op first; of very many circumstances, some that differ most."""
    by_layout: dict[str, dict[str, Op]] = {}
    for op in ops:
        layout, scalars = circumstances.of(op)
        by_layout.setdefault(layout, {}).setdefault(scalars, op)
    found = []
    for alike in list(by_layout.values())[:_MOST_LAYOUTS]:
        several = list(alike.values())
        few = min(len(several), _ENOUGH_SCALARS)
        found += [several[place * (len(several) - 1) // max(few - 1, 1)] for place in range(few)]
    return tuple(found)


class Checked:
    """The circumstances under which the variants of a case were compared."""

    def __init__(self, circumstances: Iterable[Circumstance]) -> None:
        self._scalars: dict[str, set[str]] = {}
        for layout, scalars in circumstances:
            if layout:
                self._scalars.setdefault(layout, set()).add(scalars)

    def covers(self, circumstance: Circumstance) -> bool:
        """Whether a variant that was right under all of these is taken to be right under this one."""
        scalars = self._scalars.get(circumstance.layout, ())
        return circumstance.scalars in scalars or len(scalars) >= _ENOUGH_SCALARS

    def plain(self) -> list[list[str]]:
        """Return them as JSON has them."""
        return sorted([layout, each] for layout, scalars in self._scalars.items() for each in scalars)

    def includes(self, other: Checked) -> bool:
        """Whether it covers all that another one holds."""
        return all(self.covers(Circumstance(*each)) for each in other.plain())

    def __or__(self, other: Checked) -> Checked:
        return Checked(Circumstance(*each) for each in (*self.plain(), *other.plain()))
