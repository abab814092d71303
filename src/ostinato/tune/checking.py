"""Checks of what candidates compute, for `verify` functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike

_PIECE = 1 << 14  # elements


@dataclass(frozen=True, slots=True)
class CommandOutputs:
    """What a command candidate left, as a `verify` function gets it.

    Attributes
    ----------
    stdout
        What it printed.
    scratch
        Its directory: what ``{scratch}`` stood for.

    Examples
    --------
    >>> CommandOutputs("42\\n", Path("/tmp")).stdout
    '42\\n'
    """

    stdout: str
    scratch: Path


def equal_within(outputs: object, reference: object, rtol: float = 1e-7, atol: float = 0.0) -> None:
    """Check that outputs are close to a reference: ``|output - reference| <= atol + rtol * |reference|`` everywhere.

    Parameters
    ----------
    outputs, reference
        Arrays or numbers, or tuples, lists and dicts of such, of the same form.
    rtol, atol
        Relative and absolute tolerance. NaN equals NaN, and infinities equal themselves only.

    Raises
    ------
    AssertionError
        If they differ; it says where most, by how much, and in how many places.

    Examples
    --------
    >>> equal_within([1.0, 2.0], [1.0, 2.0 + 1e-9])
    >>> equal_within((np.zeros(2), 1), (np.array([0.0, 0.5]), 1))
    Traceback (most recent call last):
        ...
    AssertionError: output[0]: 1 of 2 elements differ; most at (1,): 0.0, but the reference has 0.5
    """
    _compare("output", outputs, reference, rtol, atol)


def _compare(name: str, outputs: object, reference: object, rtol: float, atol: float) -> None:
    if isinstance(reference, Mapping):
        if not isinstance(outputs, Mapping) or outputs.keys() != reference.keys():
            raise AssertionError(f"{name} is {_short(outputs)}, but the reference is a dict of {list(reference)}")
        for key, part in reference.items():
            _compare(f"{name}[{key!r}]", outputs[key], part, rtol, atol)
    elif _is_group(reference):
        if (
            not isinstance(outputs, Sequence | np.ndarray)
            or getattr(outputs, "shape", None) == ()
            or len(outputs) != len(reference)
        ):
            raise AssertionError(f"{name} is {_short(outputs)}, but the reference has {len(reference)} parts")
        for index, part in enumerate(reference):
            _compare(f"{name}[{index}]", outputs[index], part, rtol, atol)
    else:
        _compare_arrays(name, outputs, reference, rtol, atol)  # type: ignore[arg-type]


def _is_group(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a list or tuple of several arrays, and not one array written as a list of numbers."""
    return isinstance(value, list | tuple) and not all(isinstance(item, int | float | complex) for item in value)


def _compare_arrays(name: str, outputs: ArrayLike, reference: ArrayLike, rtol: float, atol: float) -> None:
    actual, wanted = np.asarray(outputs), np.asarray(reference)
    if actual.shape != wanted.shape:
        raise AssertionError(f"{name} has shape {actual.shape}, but the reference {wanted.shape}")
    if actual.dtype.kind not in "biufc" or wanted.dtype.kind not in "biufc":
        if not np.array_equal(actual, wanted):
            raise AssertionError(f"{name} is {_short(actual)}, but the reference {_short(wanted)}")
        return
    if all(_close(a, b, rtol, atol)[0].all() for a, b in _pieces(actual, wanted)):
        return
    close, away = _close(actual, wanted, rtol, atol)
    away = np.where(close, -1, np.where(np.isnan(away), np.inf, away))
    worst = np.unravel_index(int(np.argmax(away)), away.shape)
    place = tuple(int(index) for index in worst)
    count = int(close.size - np.count_nonzero(close))
    unwritten = (
        " (NaN is also what no call has written since the tuner overwrote it)" if np.isnan(actual[worst]) else ""
    )
    raise AssertionError(
        f"{name}: {count} of {close.size} elements differ; most at {place}: {actual[worst]}, "
        f"but the reference has {wanted[worst]}{unwritten}"
    )


def _pieces(actual: np.ndarray, wanted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut two arrays along their first axis, so that what is computed of a piece stays in the cache."""
    actual, wanted = np.atleast_1d(actual, wanted)
    rows = max(1, _PIECE * len(actual) // max(1, actual.size))
    for begin in range(0, len(actual), rows):
        yield actual[begin : begin + rows], wanted[begin : begin + rows]


def _close(actual: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where two arrays are close, and how far they are from each other."""
    # Integers of 64 bits, and their differences, have no place in a double, but in an extended one they have. That
    # takes ten times as long, though.
    integers = any(array.dtype.kind in "iu" and array.dtype.itemsize == 8 for array in (actual, wanted))
    exact = np.result_type(actual, wanted, np.longdouble if integers else np.float64)
    a, b = actual.astype(exact, copy=False), wanted.astype(exact, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        away = np.abs(a - b)
        close = np.isfinite(b) & (away <= atol + rtol * np.abs(b))
        return close | (a == b) | (np.isnan(a) & np.isnan(b)), away


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
