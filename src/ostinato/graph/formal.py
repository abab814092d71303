"""The parameters that tasks of all kinds declare, to compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, NamedTuple

__all__ = ["ACCESS", "Formal", "by_place", "filled_in", "plain"]

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


def plain(parameters: Iterable[Parameter]) -> tuple[tuple[str, Any], ...]:
    """Return names and defaults of parameters; none where there are other ones than those given by place or by name."""
    found = tuple(parameters)
    if any(each.kind is not Parameter.POSITIONAL_OR_KEYWORD for each in found):
        return ()
    return tuple((each.name, each.default) for each in found)


def filled_in(
    parameters: Sequence[tuple[str, Any]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return all values of a call, in the order of `plain` parameters; None where something is wrong with it.

    It is what binding to the signature would find, in a fraction of the time.
    """
    values, used = list(args), 0
    for name, default in parameters[len(args) :]:
        if name in kwargs:
            values.append(kwargs[name])
            used += 1
        elif default is not Parameter.empty:
            values.append(default)
    return tuple(values) if len(values) == len(parameters) and used == len(kwargs) else None


def by_place(modes: Sequence[int], label: Callable[[int], str]) -> tuple[Formal, ...]:
    """Return parameters that have no names."""
    return tuple(
        Formal(f"argument_{place + 1}", label(place), mode, Parameter.POSITIONAL_ONLY)
        for place, mode in enumerate(modes)
    )
