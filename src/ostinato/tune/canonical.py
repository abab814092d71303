"""One text for equal values, and identifiers made from it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.one_line import brief

__all__ = ["canonical", "digest", "hashed", "plain"]

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def plain(value: object, what: str) -> Any:
    """Return a copy of `value` as JSON has it: tuples become lists, NumPy scalars and enum members what they stand for.

    Raises
    ------
    TypeError, ValueError
        If it holds something that JSON has no form for, named after `what`.
    """
    try:
        return _plain(value, what)
    except RecursionError:
        raise ValueError(f"{what} holds itself, or is nested too deeply") from None


def _plain(value: object, what: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # Subclasses, such as enums and NumPy's float64, would print as something else than what JSON makes of them.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"{what} must be a value that JSON has a form for, got {value!r}; say None, or a word of your own"
            )
        return float.__float__(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{what}: names must be str, got {key!r}")
        return {str.__str__(key): _plain(item, f"{what}[{key!r}]") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(item, f"{what}[{index}]") for index, item in enumerate(value)]
    scalar = getattr(value, "item", None)  # a NumPy scalar, without importing NumPy
    if scalar is not None and getattr(value, "shape", None) == ():
        return _plain(scalar(), what)
    raise TypeError(
        f"{what} must be None, a bool, int, float, str, list or dict, got {brief(value)}: configurations and keys "
        "must mean the same in every process"
    )


def canonical(value: object) -> str:
    """Return the JSON of a plain value: sorted names, no spaces, so that equal values give equal texts."""
    return _ENCODER.encode(value)


def digest(value: object) -> str:
    """Return the first 128 bits of the SHA-256 of a plain value's canonical text, in hexadecimal."""
    return hashed(canonical(value))


def hashed(text: str) -> str:
    """Return the first 128 bits of the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
