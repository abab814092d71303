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
    """Another op with the body that a variant of its task has."""

    __slots__ = ("_op", "_variant")

    def __init__(self, op: Op, body: Body, variant: Variant | None) -> None:
        super().__init__(op.graph, op.index, op.name, op.call_site, body, op.operands, op.on, op.priority)
        self._op = op
        self._variant = variant

    @property
    def original(self) -> Op:
        """The op that was recorded."""
        return self._op.original

    @property
    def recorded(self) -> Body:
        """What it does by the task that was recorded."""
        return self._op.recorded

    @property
    def variant(self) -> Variant | None:
        """The variant that it runs; None for the task itself."""
        return self._variant

    def with_variant(self, variant: Variant, known: dict[object, Any]) -> Op:
        """Return the other op with a variant, instead of this one."""
        return _with_variant(self._op, variant, known)


def with_variants(ops: tuple[Op, ...], chosen: Mapping[int, Variant]) -> tuple[Op, ...]:
    """Return ops with variants of the tasks that were recorded, by index, in place of what they run.

    Raises
    ------
    TypeError, ValueError, OverflowError, GraphError, ImportError
        A variant cannot take the arguments of its op.
    """
    result = list(ops)
    known: dict[object, Any] = {}
    for index, variant in chosen.items():
        result[index] = _with_variant(ops[index], variant, known)
    return tuple(result)


def _with_variant(op: Op, variant: Variant, known: dict[object, Any]) -> Op:
    if isinstance(op, VariantOp):
        return op.with_variant(variant, known)
    body = variant.implement(op.recorded, known)
    if body is op.body:
        return op
    return VariantOp(op, body, None if body is op.recorded else variant)
