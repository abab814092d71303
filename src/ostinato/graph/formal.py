"""The parameters that tasks of all kinds declare, to compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, NamedTuple

__all__ = ["ACCESS", "Formal", "by_place"]

ACCESS = ("no array", "ost.Read", "ost.Write", "ost.ReadWrite")
"""By mode, what a parameter is, for messages."""


class Formal(NamedTuple):
    """A parameter of a task."""

    name: str
    label: str
    """What it is, for messages."""
    mode: int
    """Its access; 0 for what is no array."""
    kind: Any
    """A kind of `inspect.Parameter`."""
    default: object = Parameter.empty

    @property
    def parameter(self) -> Parameter:
        """The same for a signature."""
        return Parameter(self.name, self.kind, default=self.default)


def by_place(modes: Sequence[int], label: Callable[[int], str]) -> tuple[Formal, ...]:
    """Return parameters that have no names."""
    return tuple(
        Formal(f"argument_{place + 1}", label(place), mode, Parameter.POSITIONAL_ONLY)
        for place, mode in enumerate(modes)
    )
