"""Variants in place of the tasks that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.graph.op import Op

if TYPE_CHECKING:
    from ostinato.graph.body import Body
    from ostinato.graph.variant import Variant

__all__ = ["VariantOp", "with_variants"]


class VariantOp(Op):
    """An op that does what it does by another implementation than the one recorded.

    Attributes
    ----------
    variant
        That implementation.
    """

    __slots__ = ("_original", "variant")

    def __init__(self, op: Op, body: Body, variant: Variant) -> None:
        super().__init__(op.graph, op.index, op.name, op.call_site, body, op.operands, op.on, op.priority)
        self._original = op.original
        self.variant = variant

    @property
    def original(self) -> Op:
        """The op that was recorded."""
        return self._original


def with_variants(ops: tuple[Op, ...], chosen: Mapping[int, Variant]) -> tuple[Op, ...]:
    """Return ops with variants of their tasks, by index, in place of what was recorded.

    Raises
    ------
    TypeError, ValueError, OverflowError, GraphError
        A variant cannot take the arguments of its op.
    """
    result = list(ops)
    known: dict[object, Any] = {}
    for index, variant in chosen.items():
        body = variant.implement(ops[index].body, known)
        if body is not ops[index].body:
            result[index] = VariantOp(ops[index], body, variant)
    return tuple(result)
