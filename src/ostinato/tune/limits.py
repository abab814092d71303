"""Numbers that users give, checked. Equal ones must look equal in the key of the store: they become plain Python's."""

from __future__ import annotations

import math
from numbers import Integral, Real

__all__ = ["positive", "whole"]


def positive(name: str, value: object) -> float:
    """Return a number that is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return number


def whole(name: str, value: object) -> int:
    """Return a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return number
