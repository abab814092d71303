"""Ops that passes make of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.graph.op import Op

if TYPE_CHECKING:
    from ostinato.graph.body import Body
    from ostinato.graph.operand import Operand
    from ostinato.graph.variant import Variant

__all__ = ["DerivedOp"]


class DerivedOp(Op):
    """What a pass makes of another op; what that says of what was recorded, it says, too."""

    __slots__ = ("_op",)

    def __init__(self, op: Op, index: int, body: Body, operands: tuple[Operand, ...]) -> None:
        super().__init__(op.graph, index, op.name, op.call_site, body, operands, op.on, op.priority)
        self._op = op

    @property
    def original(self) -> Op:
        """The op that was recorded."""
        return self._op.original

    @property
    def recorded(self) -> Body:
        """What it does by the task that was recorded, on the arrays that were recorded."""
        return self._op.recorded

    @property
    def variant(self) -> Variant | None:
        """The variant that it runs; None for the task itself."""
        return self._op.variant

    @property
    def rtol(self) -> float:
        """By what part the variant's results may differ from those of the task itself."""
        return self._op.rtol
