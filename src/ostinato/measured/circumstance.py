"""What a variant was compared with the default under: layouts, overlaps and scalars.

Two ops of one case take the same time, or so the costs have it. But a variant that is right for contiguous arrays may
be wrong for strided ones, or where its input is its output, or for another scalar. So a variant counts as right only
for ops that are, in all of this, like one for which its outputs were compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ostinato import _core
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
        self._kinds: dict[tuple[object, ...], int] = {}  # of layouts, by what tells them at a glance
        self._layouts: list[object] = []  # by their numbers
        self._numbers: dict[object, int] = {}
        self._digests: dict[tuple[int, ...], str] = {}
        self._scalars: dict[tuple[object, ...], str] = {}

    def of(self, op: Op) -> Circumstance:
        """Return the circumstance of a call of a task."""
        body, operands = op.body, op.operands
        scalars: tuple[object, ...] = ()
        if isinstance(body, PythonCall | NativeCall) and len(body.args) > len(operands):
            scalars = tuple([_scalar(arg) for arg in body.args if type(arg) is not Operand])
        found = self._scalars.get(scalars)
        if found is None:
            found = self._scalars[scalars] = hashed(repr(scalars))[:16]
        return Circumstance(self._layout(operands), found)

    def _layout(self, operands: tuple[Operand, ...]) -> str:
        known = self._places
        places = [known.get(operand) or self._place(operand) for operand in operands]
        look = self._look(places, 0)
        for phase in range(1, math.lcm(*[len(place[2]) for place in places])):
            if phase == _MOST_PHASES or self._look(places, phase) != look:
                return ""
        found = self._digests.get(look)
        if found is None:
            layouts = [self._layouts[number] for number in look[: len(places)]]
            found = self._digests[look] = hashed(repr((layouts, look[len(places) :])))[:16]
        return found

    def _look(self, places: list[_Place], phase: int) -> tuple[int, ...]:
        """Return the layouts in a step, by number, and which operands overlap there and how far apart they are."""
        now = [turns[(phase + offset) % len(turns)] for _, offset, turns in places]
        found = [layout for layout, _, _ in now]
        for second in range(1, len(now)):
            _, low, high = now[second]
            for first in range(second):
                _, other_low, other_high = now[first]
                if other_low < high and low < other_high and (places[first][0] or places[second][0]):
                    found += (first, second, low - other_low)
        return tuple(found)

    def _place(self, operand: Operand) -> _Place:
        arrays = operand.arrays
        if arrays:
            turns = tuple([(self._kind(array), *_core.passes.extent(array)) for array in arrays])
        else:  # a token: the same one is the same place
            turns = ((self._numbered("token"), id(operand.value), id(operand.value) + 1),)
        offset = 0 if operand.ring is None else operand.ring.offset
        place = self._places[operand] = bool(operand.mode & WRITE), offset, turns
        return place

    def _kind(self, array: np.ndarray[Any, Any]) -> int:
        look = array.strides, array.shape, array.flags.aligned
        number = self._kinds.get(look)
        if number is None:
            # Along an axis of length 1 nobody walks, and along none of those of an array without elements.
            pairs = zip(array.strides, array.shape, strict=True) if array.size else ()
            strides = [stride if length > 1 else 0 for stride, length in pairs]
            number = self._kinds[look] = self._numbered((*strides, array.flags.aligned))
        return number

    def _numbered(self, layout: object) -> int:
        number = self._numbers.setdefault(layout, len(self._layouts))
        if number == len(self._layouts):
            self._layouts.append(layout)
        return number


_Place: TypeAlias = "tuple[bool, int, tuple[tuple[int, int, int], ...]]"
"""Where an operand is: whether it is written, its offset in a ring, and of each array that takes turns: the number of
its layout, its first byte and what is behind its last."""


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
