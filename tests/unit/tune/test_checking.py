"""Comparing outputs with a reference: what passes, and what is said of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ostinato.tune.checking import equal_within

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(
    arrays.arrays(np.float32, arrays.array_shapes(max_side=4), elements=st.floats(width=32)), st.floats(0, 1), finite
)
def test_equals_numpys_verdict(reference: np.ndarray, rtol: float, off: float) -> None:
    with np.errstate(over="ignore"):
        output = (reference + np.float32(off)).astype(np.float32)
    try:
        equal_within(output, reference, rtol, 0.25)
    except AssertionError:
        same = False
    else:
        same = True
    a, b = output.astype(np.longdouble), reference.astype(np.longdouble)
    assert same == np.allclose(a, b, rtol=np.longdouble(rtol), atol=np.longdouble(0.25), equal_nan=True)


@pytest.mark.parametrize(
    ("outputs", "reference"),
    [
        (1, 1.0),
        ([1, 2], (1, 2)),
        ([], []),
        (np.zeros((2, 0)), np.zeros((2, 0))),
        ((np.zeros(2), {"a": [np.ones(3), 2]}), [[0, 0], {"a": (np.ones(3), 2)}]),
        ([np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf]),
        (1 + 1e-9j, 1),
        (True, np.True_),
        ("text", "text"),
        (np.array(["a"]), ["a"]),
        (None, None),
    ],
)
def test_what_is_the_same_passes(outputs: object, reference: object) -> None:
    equal_within(outputs, reference)


@pytest.mark.parametrize(
    ("outputs", "reference", "said"),
    [
        ([[1.0, 2.0], [3.0, 4.5]], [[1.0, 2.0], [3.0, 4.0]], r"^output\[1\]: 1 of 2 .* \(1,\): 4.5, .* 4.0$"),
        (np.zeros(3), np.zeros((3, 1)), r"^output has shape \(3,\), but the reference \(3, 1\)$"),
        (
            [np.nan, 5.0],
            [0.0, 0.0],
            r"2 of 2 elements differ; most at \(0,\): nan, but .* 0.0 \(NaN is also what no call has written",
        ),
        (np.inf, -np.inf, r"^output: 1 of 1 .* \(\): inf, .* -inf$"),
        (1e300, np.inf, "1 of 1"),
        (np.arange(4).reshape(2, 2), np.zeros((2, 2), int), r"^output: 3 of 4 .* \(1, 1\): 3, .* 0$"),
        ((np.zeros(1), 2), (np.zeros(1), 3), r"^output\[1\]: "),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, r"^output\['a'\]\['b'\]: "),
        ({"a": 1}, {"b": 1}, r"^output is \{'a': 1\}, but the reference is a dict of \['b'\]$"),
        ((np.zeros(1),), (np.zeros(1), np.zeros(1)), "but the reference has 2 parts$"),
        (3, (np.zeros(1), np.zeros(1)), "^output is 3, but"),
        ("text", "other", "^output is "),
        (None, 1.0, "^output is "),
        ("x" * 1000, 1.0, r"\.\.\., but"),
    ],
)
def test_what_differs_is_named_with_its_place(outputs: object, reference: object, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        equal_within(outputs, reference)


def test_integers_are_compared_exactly() -> None:
    with pytest.raises(AssertionError, match=r"4611686018427387905, .* 4611686018427387904$"):
        equal_within(np.int64(2**62 + 1), np.int64(2**62), rtol=0)


def test_tolerances() -> None:
    equal_within(1.1, 1.0, rtol=0.11)
    equal_within(1.1, 1.0, rtol=0.0, atol=0.11)
    with pytest.raises(AssertionError):
        equal_within(1.1, 1.0, rtol=0.09)
    with pytest.raises(AssertionError):
        equal_within(1e-9, 0.0, rtol=1.0)
    equal_within(np.uint8(0), np.uint8(255), atol=255)  # no difference of theirs wraps around
    with pytest.raises(AssertionError):
        equal_within(np.uint8(0), np.uint8(255), atol=1)


@pytest.mark.parametrize("at", [(0, 0), (299, 399), (150, 7)])
def test_a_difference_is_found_anywhere_in_large_arrays(at: tuple[int, int]) -> None:
    reference = np.arange(120_000, dtype=np.float32).reshape(400, 300).T  # compared in pieces
    equal_within(reference.copy(), reference)
    output = reference.copy()
    output[at] = -1
    with pytest.raises(AssertionError, match=rf"1 of 120000 elements differ; most at \({at[0]}, {at[1]}\): -1.0"):
        equal_within(output, reference)
