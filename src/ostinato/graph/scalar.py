"""Scalar arguments of native tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.graph.param import REQUIRED, Param, Step

__all__ = ["as_scalar", "check_default", "exact_scalar"]

_A = {int: "an int", float: "a float"}

_WHOLE = (int, np.integer, np.bool_)
_REAL = (float, np.floating, *_WHOLE)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def as_scalar(value: Any, kind: type, label: str) -> float | int:
    """Return a value as the Python float or int that goes to C.

    Raises
    ------
    TypeError
        If it is not of the kind; an int or a bool is a float too, and a bool an int.
    OverflowError
        If it has no 64-bit representation.
    """
    if kind is float:
        if isinstance(value, _REAL):
            return float(value)
    elif isinstance(value, _WHOLE):
        number = int(value)
        if not _INT64_MIN <= number <= _INT64_MAX:
            raise OverflowError(f"{label} must fit 64 bits, got {number}")
        return number
    raise TypeError(f"{label} must be {_A[kind]}, got {value!r}")


def exact_scalar(value: Any, kind: type, label: str) -> float | int:
    """Return a value as the Python float or int that goes to C, where that is the same number.

    Raises
    ------
    TypeError, OverflowError
        It is not of the kind, or has no exact representation.
    """
    scalar = as_scalar(value, kind, label)
    if scalar != value and scalar == scalar:
        raise OverflowError(f"{label} must be a number that {_A[kind]} holds exactly, got {value!r}")
    return scalar


def check_default(value: Param | Step, kind: type, label: str) -> None:
    """Raise `TypeError` if a parameter's default, or the step number, is not of a kind."""
    if isinstance(value, Step):
        if kind is float:
            raise TypeError(f"{label} must be a float, got the step number, an int: declare it int")
    elif value.default is not REQUIRED and value.combine is None:
        as_scalar(value.default, kind, f"{label}, the default of parameter {value.name!r},")
