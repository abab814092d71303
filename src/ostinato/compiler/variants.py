"""Variants in place of the tasks that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.compiler.ir import Node
from ostinato.graph.variant import default_variant

if TYPE_CHECKING:
    from ostinato.graph.op import Op
    from ostinato.graph.variant import Variant

__all__ = ["as_recorded", "with_variants"]


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
    body = variant.implement(op.recorded, known)
    if body is op.body:
        return op
    return Node(op, body=body).running(None if body is op.recorded else variant, rtol)
