"""What a variant was compared with the default under: layouts, overlaps and scalars.

Costs assume that two ops of one signature take the same time. But a variant that is right for contiguous arrays may be
wrong for strided ones, where its input is its output, or for another scalar. So a variant counts as right only for ops
whose call context is that of an op for which its outputs were compared.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ostinato._core.passes import extent
from ostinato.compiler.flatten import replace_params
from ostinato.compiler.ir import Node
from ostinato.errors import GraphError
from ostinato.graph.arrays import WRITE, Operand
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.op import Op
from ostinato.graph.param import Param, Step
from ostinato.tune.candidate import hashed

_ENOUGH_SCALARS = 32
"""A variant that is right for so many different scalars is taken to be right for others."""
_MOST_LAYOUTS = 16
_MOST_STEPS = 64
_MOST_BYTES = 1 << 20
"""More of an object is not looked at."""

_PROCESS = os.urandom(8).hex()
_alive: dict[int, object] = {}  # objects without a digest, by id: kept alive, so that no other object gets the id
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
_CONTAINERS = (list, dict, set, bytearray)
"""Of a token that is one of these, what it holds is data, as what arrays hold."""


class CallContext(NamedTuple):
    """Digests, the same in every process."""

    layout: str
    """Of strides, alignment and overlaps; empty where these differ from step to step, which is never compared."""
    scalars: str
    """Of arguments that are no arrays: of plain values, and of what other objects hold."""


class CallContexts:
    """The call contexts of ops; what they share is looked at once."""

    def __init__(self) -> None:
        self._places: dict[Operand, _Place] = {}
        self._kinds: dict[tuple[object, ...], int] = {}  # of layouts, by what tells them at a glance
        self._layouts: list[object] = []  # by their numbers
        self._numbers: dict[object, int] = {}
        self._digests: dict[tuple[int, ...], str] = {}
        self._scalars: dict[tuple[object, ...], str] = {}
        self._objects: dict[int, tuple[object, str]] = {}

    def of(self, op: Op) -> CallContext:
        """Return the call context of a call of a task."""
        body, operands = op.body, op.operands
        scalars: tuple[object, ...] = ()
        if isinstance(body, PythonCall | NativeCall) and len(body.args) > len(operands):
            scalars = tuple([self._scalar(arg) for arg in body.args if type(arg) is not Operand])
        if scalars not in self._scalars:
            self._scalars[scalars] = hashed(repr(scalars))[:16]
        return CallContext(self._layout(operands), self._scalars[scalars])

    def _layout(self, operands: tuple[Operand, ...]) -> str:
        known = self._places
        places = [known.get(operand) or self._place(operand) for operand in operands]
        look = _look([now for now, _ in places])
        periods = [len(turns) for _, turns in places if turns]
        if periods:
            for step in range(1, math.lcm(*periods)):
                then = _look([turns[step % len(turns)] if turns else now for now, turns in places])
                if step == _MOST_STEPS or then != look:
                    return ""
        if look not in self._digests:
            count = len(places) + 1
            layouts = [self._layouts[number] for number in look[1:count]]
            self._digests[look] = hashed(repr((layouts, look[count:])))[:16]
        return self._digests[look]

    def _place(self, operand: Operand) -> _Place:
        array, ring, writes = operand.array, operand.ring, operand.mode & WRITE
        turns: tuple[_Where, ...] = ()
        if array is not None:
            now = (self._kind(array), *extent(array), writes)
        elif ring is not None:
            found = [(self._kind(view), *extent(view), writes) for view in ring.views]
            turns = (*found[ring.offset :], *found[: ring.offset])
            now = turns[0]
        else:  # a token: the same one is the same place; what is written changes from step to step anyway
            data = writes or isinstance(operand.value, _CONTAINERS)
            layout = "token" if data else ("token", self._held_by(operand.value))
            now = (self._numbered(layout), id(operand.value), id(operand.value) + 1, writes)
        place = self._places[operand] = now, turns
        return place

    def _scalar(self, value: object) -> object:
        if isinstance(value, Step):
            return "step"
        if isinstance(value, Param):
            return "param", self._scalar(value.default)
        if isinstance(value, _PLAIN):
            return type(value).__name__, repr(value)
        return "object", self._held_by(value)

    def _held_by(self, value: object) -> str:
        if id(value) not in self._objects:
            self._objects[id(value)] = value, _content(value)
        return self._objects[id(value)][1]

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


_Where: TypeAlias = tuple[int, int, int, int]
"""The number of an array's layout, its first byte, what is behind its last, and whether it is written."""

_Place: TypeAlias = tuple[_Where, tuple[_Where, ...]]
"""Where an operand is in step 0, and of a ring in each step."""


def _look(places: list[_Where]) -> tuple[int, ...]:
    """Return the layouts by number, and which operands, one of them written, overlap and how far apart they are."""
    found = [len(places), *[place[0] for place in places]]
    for second, (_, low, high, writes) in enumerate(places):
        for first, other in enumerate(places[:second]):
            if other[1] < high and low < other[2] and (writes or other[3]):
                found += (first, second, low - other[1])
    return tuple(found)


def _content(value: object) -> str:
    """Return a digest of what an object holds; if it cannot be pickled, one for this process only."""
    held = b""
    with suppress(Exception):
        held = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    if 0 < len(held) <= _MOST_BYTES:
        return hashlib.sha256(held).hexdigest()[:16]
    _alive[id(value)] = value
    return f"{_PROCESS} {os.getpid()} {id(value)}"


def representatives(ops: Iterable[Op], call_contexts: CallContexts) -> tuple[Op, ...]:
    """Return an op for each call context, the first op first; of very many call contexts, some that differ most."""
    by_layout: dict[str, dict[str, Op]] = {}
    for op in ops:
        layout, scalars = call_contexts.of(op)
        by_layout.setdefault(layout, {}).setdefault(scalars, op)
    found = []
    for alike in list(by_layout.values())[:_MOST_LAYOUTS]:
        several = list(alike.values())
        few = min(len(several), _ENOUGH_SCALARS)
        found += [several[place * (len(several) - 1) // max(few - 1, 1)] for place in range(few)]
    return tuple(found)


class Checked:
    """The call contexts under which the variants of a signature were compared."""

    def __init__(self, call_contexts: Iterable[tuple[str, str]]) -> None:
        self._scalars: dict[str, set[str]] = {}
        for layout, scalars in call_contexts:
            if layout:
                self._scalars.setdefault(layout, set()).add(scalars)

    def covers(self, call_context: CallContext) -> bool:
        """Whether a variant that was right under all of these is taken to be right under this one."""
        scalars = self._scalars.get(call_context.layout, ())
        return call_context.scalars in scalars or len(scalars) >= _ENOUGH_SCALARS

    def plain(self) -> list[list[str]]:
        """Return them as JSON has them."""
        return sorted([layout, each] for layout, scalars in self._scalars.items() for each in scalars)

    def includes(self, other: Checked) -> bool:
        """Whether it covers all that another one holds."""
        return all(self.covers(CallContext(*each)) for each in other.plain())

    def __or__(self, other: Checked) -> Checked:
        return Checked(CallContext(*each) for each in (*self.plain(), *other.plain()))


_PART = 7 / 8
"""Of the default: another value of its sign and about its size, which is seldom one that a task cannot take."""


def probe(op: Op) -> Op | None:
    """Return an op whose floating-point parameters are not what they are by default; None if it has none.

    If outputs were compared for the defaults only, a variant that has them built in would pass.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> graph = ost.Graph()
    >>> op = graph.task(np.multiply, np.ones(3), graph.param("by", 2.0), access=(ost.ReadWrite, None))
    >>> probe(op).body.args[1]
    1.75
    """
    params = [arg for arg in getattr(op.body, "args", ()) if isinstance(arg, Param)]
    values = {param.name: param.value_in({}) for param in params}
    floats = {name: value for name, value in values.items() if isinstance(value, float) and math.isfinite(value)}
    if not any(floats.values()):
        return None
    values |= {name: type(value)(_PART * value) for name, value in floats.items()}
    try:
        body = replace_params(op, values)
    except (TypeError, ValueError, OverflowError, GraphError):
        return None
    return Node(op, body=body, recorded=body)
