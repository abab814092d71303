"""Variants in place of the tasks that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.compiler.derived_op import DerivedOp
from ostinato.graph.variant import default_variant

if TYPE_CHECKING:
    from ostinato.graph.body import Body
    from ostinato.graph.op import Op
    from ostinato.graph.variant import Variant

__all__ = ["VariantOp", "as_recorded", "with_variants"]


class VariantOp(DerivedOp):
    """Another op with the body that a variant of its task has."""

    __slots__ = ("_rtol", "_variant")

    def __init__(self, op: Op, body: Body, variant: Variant | None, rtol: float) -> None:
        super().__init__(op, op.index, body, op.operands)
        self._variant = variant
        self._rtol = rtol

    @property
    def variant(self) -> Variant | None:
        """The variant that it runs; None for the task itself."""
        return self._variant

    @property
    def rtol(self) -> float:
        """By what part the variant's results may differ from those of the task itself."""
        return self._rtol

    def with_variant(self, variant: Variant, rtol: float, known: dict[object, Any]) -> Op:
        """Return the other op with a variant, instead of this one."""
        return _with_variant(self._op, variant, rtol, known)


def with_variants(
    ops: tuple[Op, ...], chosen: Mapping[int, Variant], rtol: Mapping[int, float] | None = None
) -> tuple[Op, ...]:
    """Return ops with variants of the tasks that were recorded, by index, in place of what they run.

    `rtol` says, by index, by what part results may differ from those of the task itself, where they may.

    Raises
    ------
    TypeError, ValueError, OverflowError, GraphError, ImportError
        A variant cannot take the arguments of its op.
    """
    result = list(ops)
    known: dict[object, Any] = {}
    for index, variant in chosen.items():
        result[index] = _with_variant(ops[index], variant, rtol.get(index, 0.0) if rtol else 0.0, known)
    return tuple(result)


def as_recorded(op: Op) -> Op:
    """Return a call of a task with the task that was recorded in place of what it runs."""
    variant = default_variant(op.recorded)
    assert variant is not None
    return _with_variant(op, variant, 0.0, {})


def _with_variant(op: Op, variant: Variant, rtol: float, known: dict[object, Any]) -> Op:
    if isinstance(op, VariantOp):
        return op.with_variant(variant, rtol, known)
    body = variant.implement(op.recorded, known)
    if body is op.body:
        return op
    return VariantOp(op, body, None if body is op.recorded else variant, rtol)
