"""Checks of arguments."""

from __future__ import annotations

import operator
from typing import Literal, TypeAlias

Runs: TypeAlias = Literal["pipelined", "serial", "concurrent", "once"]
"""How the runs of a program relate."""

OnError: TypeAlias = Literal["stop", "continue"]
"""What a failure does to the rest of a run."""

ReductionName: TypeAlias = Literal["+", "*", "min", "max"]
"""How values are combined."""


_LEAST, _MOST = -(2**63), 2**63 - 1
_LEAST_PRIORITY, _MOST_PRIORITY = -(2**31), 2**31 - 1


def integer(name: str, value: object, least: int = _LEAST, most: int = _MOST) -> int:
    """Return a value as a plain int, within bounds that by default are those of 64 bits.

    Examples
    --------
    >>> integer("steps", 3, 0)
    3
    >>> integer("steps", 2.5, 0)
    Traceback (most recent call last):
    TypeError: steps must be an integer, got 2.5
    >>> integer("steps", -1, 0)
    Traceback (most recent call last):
    ValueError: steps must be at least 0, got -1
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def priority_of(value: object) -> int:
    """Return a priority: an integer of 32 bits."""
    return integer("priority", value, _LEAST_PRIORITY, _MOST_PRIORITY)
