"""Ops on the arrays that stand for theirs where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ostinato.compiler.ir import Node
from ostinato.graph.arrays import Array, Operand
from ostinato.graph.op import Op
from ostinato.graph.ring import Ring, RingElement

__all__ = ["Rewriting"]


class Rewriting:
    """Makes ops that differ from others in their index, and in where they look for their arrays.

    Parameters
    ----------
    stands_for
        Gives for an array and a memory what stands for it there: the array itself in its home.
    """

    def __init__(self, stands_for: Callable[[Array, int], Array]) -> None:
        self._stands_for = stands_for
        self._operands: dict[tuple[int, int], Operand] = {}
        self._rings: dict[tuple[int, int], Ring] = {}

    def placed(self, op: Op, index: int, memories: Sequence[int]) -> Op:
        """Return an op at another index, its operands in these memories; the op itself where nothing changes."""
        operands = tuple(self._operand(each, memory) for each, memory in zip(op.operands, memories, strict=True))
        if index == op.index and all(new is old for new, old in zip(operands, op.operands, strict=True)):
            return op
        instead = {id(old): new for old, new in zip(op.operands, operands, strict=True)}
        return Node(op, index, op.body.map_operands(lambda each: instead.get(id(each), each)), operands)

    def _operand(self, operand: Operand, memory: int) -> Operand:
        known = self._operands.get((id(operand), memory))
        if known is None:
            known = self._operands[id(operand), memory] = self._moved(operand, memory)
        return known

    def _moved(self, operand: Operand, memory: int) -> Operand:
        if operand.array is not None:
            array = self._stands_for(operand.array, memory)
            return operand if array is operand.array else Operand(array, array, None, operand.mode)
        if operand.ring is None:
            return operand
        views = tuple(self._stands_for(view, memory) for view in operand.ring.views)
        if all(new is old for new, old in zip(views, operand.ring.views, strict=True)):
            return operand
        element = RingElement(self._ring(operand.ring.ring, memory), operand.ring.offset, views)
        return Operand(element, None, element, operand.mode)

    def _ring(self, ring: Ring, memory: int) -> Ring:
        known = self._rings.get((id(ring), memory))
        if known is None:
            known = Ring(tuple(self._stands_for(array, memory) for array in ring.arrays))
            self._rings[id(ring), memory] = known
        return known
