"""Ops that know where their arrays lie, but do not keep them alive: what a program holds once arrays were rebound."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ostinato.compiler.coherence.coherent_ops import Transferred
from ostinato.devices.array import DeviceArray
from ostinato.graph.arrays import Array
from ostinato.graph.body import Body
from ostinato.graph.op import Op
from ostinato.graph.operand import Operand
from ostinato.graph.ring import RingElement
from ostinato.runtime.memory import at_address

if TYPE_CHECKING:
    from ostinato.compiler.schedule import Scheduled
    from ostinato.graph.variant import Variant

__all__ = ["DetachedOp", "detached_schedule"]


class DetachedOp(Op):
    """A copy of an op whose arrays are addresses only."""

    __slots__ = ("_original", "_recorded", "_rtol", "_variant")

    def __init__(self, op: Op, body: Body, recorded: Body, operands: tuple[Operand, ...]) -> None:
        super().__init__(cast(Any, None), op.index, op.name, op.call_site, body, operands, op.on, op.priority)
        self._recorded = recorded
        self._variant = op.variant
        self._rtol = op.rtol
        self._original = weakref.ref(op.original)

    @property
    def original(self) -> Op:
        """The op that was recorded, while the user still has it."""
        found = self._original()
        return self if found is None else found

    @property
    def recorded(self) -> Body:
        """What it does by the task that was recorded."""
        return self._recorded

    @property
    def variant(self) -> Variant | None:
        """The variant that it runs; None for the task itself."""
        return self._variant

    @property
    def rtol(self) -> float:
        """By what part the variant's results may differ from those of the task itself."""
        return self._rtol


def detached_schedule(scheduled: Scheduled) -> Scheduled:
    """Return a schedule of copies of its ops whose arrays are addresses only.

    Tokens, and arrays of other libraries, which tasks get as they were passed, stay what they are.
    """
    copies = _Copies()
    ops = tuple(map(copies.op, scheduled.ops))
    staged = scheduled.staged
    if staged is not None:
        coherent = staged.coherent
        write_backs = tuple(each._replace(pairs=_pairs(each.pairs)) for each in coherent.write_backs)
        staged = replace(
            staged,
            recorded=tuple(map(copies.op, staged.recorded)),
            ops=ops,
            coherent=coherent._replace(ops=ops[: len(coherent.ops)], write_backs=write_backs),
        )
    return replace(scheduled, ops=ops, staged=staged)


def _pairs(pairs: Iterable[tuple[Array, Array]]) -> tuple[tuple[Array, Array], ...]:
    return tuple((_address_only(source), _address_only(target)) for source, target in pairs)


def _address_only(array: Array) -> Array:
    return at_address(array.ctypes.data, array, None)


class _Copies:
    def __init__(self) -> None:
        self._operands: dict[int, Operand] = {}

    def op(self, op: Op) -> DetachedOp:
        body = self.body(op.body)
        recorded = body if op.recorded is op.body else self.body(op.recorded)
        return DetachedOp(op, body, recorded, self.operands(op.operands))

    def operands(self, operands: Iterable[Operand]) -> tuple[Operand, ...]:
        return tuple(self._operand(operand) for operand in operands)

    def body(self, body: Body) -> Body:
        if isinstance(body, Transferred):
            return Transferred(body.source, body.target, tuple(map(_pairs, body.pairs)))
        return body.map_operands(self._operand)

    def _operand(self, operand: Operand) -> Operand:
        copy = self._operands.get(id(operand))
        if copy is None:
            copy = self._operands[id(operand)] = self._copy(operand)
        return copy

    def _copy(self, operand: Operand) -> Operand:
        if operand.ring is not None:
            views = tuple(map(_address_only, operand.ring.views))
            ring = RingElement(cast(Any, None), operand.ring.offset, views)  # the ring holds the old arrays
            return Operand(None, None, ring, operand.mode)
        if operand.array is None:
            return operand
        array = _address_only(operand.array)
        is_plain = isinstance(operand.value, type(array) | DeviceArray)  # not of another library
        return Operand(array if is_plain else operand.value, array, None, operand.mode)
