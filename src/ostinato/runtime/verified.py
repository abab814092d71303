"""What `verify` compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["Verified"]


@dataclass(frozen=True)
class Verified:
    """What `Program.verify` compared, and what it left out; printable, and true.

    Attributes
    ----------
    steps
        How many steps were run.
    operations
        How many operations of a step were compared.
    impure
        Operations that were left out because their tasks are declared ``pure=False``.
    dependent
        Operations that were left out because they depend on these.
    function
        The name of the function that the program was made of: it was called eagerly, and compared as well. None for a
        program that was made of a graph.
    closed_over
        The arrays that were compared although no argument of a task names them.
    """

    steps: int
    operations: int
    impure: tuple[Op, ...] = ()
    dependent: tuple[Op, ...] = ()
    function: str | None = None
    closed_over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        lines = [f"compared: {_counted(self.operations, 'operation')} in {_counted(self.steps, 'step')}"]
        if self.function is not None:
            lines.append(f"compared with {self.function}(), called in every step")
        if self.closed_over:
            lines.append(f"compared beside the arguments of tasks: {', '.join(self.closed_over)}")
        if self.impure:
            lines.append(f"left out, since their tasks are declared pure=False: {_named(self.impure)}")
        if self.dependent:
            lines.append(f"left out, since they depend on these: {_named(self.dependent)}")
        return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _named(ops: Sequence[Op]) -> str:
    return ", ".join(f"{op.name!r} at {op.call_site}" for op in ops)
