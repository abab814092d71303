"""Which results count as the same."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest

from ostinato.checking import comparison as same
from ostinato.checking.comparison import array_difference, same_value
from ostinato.runtime.memory import raw_bytes
from ostinato.tune.graphs.workload import fill_with_pattern, pattern_of

NAN, INF = np.nan, np.inf
OTHER_NAN = np.array([0x7FF8000000000001], np.uint64).view(float)[0]
PAIR = np.dtype([("value", "f8"), ("count", "i4")], align=True)


def array(*values: Any, dtype: Any = float) -> np.ndarray:
    return np.array(list(values), dtype)


@pytest.mark.parametrize(
    ("wanted", "got", "rtol"),
    [
        (array(1.0, -0.0), array(1.0, -0.0), 0.0),
        (array(NAN), array(OTHER_NAN), 0.0),
        (array(INF, -INF), array(INF, -INF), 0.1),
        (array(complex(NAN, 1), dtype=complex), array(complex(1, NAN), dtype=complex), 0.0),
        (array(2.0), array(2.19), 0.1),
        (array(-2.0, 1e300), array(-2.2, 1.1e300), 0.11),
        (array(1.0, dtype=">f4"), array(1.0, dtype=">f4"), 0.0),
        (array(3 + 4j, dtype=complex), array(3.1 + 4j, dtype=complex), 0.03),
        (array(0.0), array(-0.0), 0.1),
        (array(1, 2, dtype=np.int8), array(1, 2, dtype=np.int8), 0.0),
        (array((1.0, 2), dtype=PAIR), array((1.05, 2), dtype=PAIR), 0.1),
        (np.empty((0, 3)), np.empty((0, 3)), 0.0),
        (np.full((), 3.0), np.full((), 3.0), 0.0),
        (array("NaT", dtype="M8[s]"), array("NaT", dtype="M8[s]"), 0.0),
    ],
)
def test_what_is_the_same(wanted: np.ndarray, got: np.ndarray, rtol: float) -> None:
    assert array_difference(wanted, got, rtol) == ""


@pytest.mark.parametrize(
    ("wanted", "got", "rtol"),
    [
        (array(0.0), array(-0.0), 0.0),
        (array(1.0), array(np.nextafter(1.0, 2.0)), 0.0),
        (array(2.0), array(2.3), 0.1),
        (array(0.0), array(1e-300), 0.5),
        (array(INF), array(1.0), 0.5),
        (array(1.0), array(INF), 0.5),
        (array(INF), array(-INF), 0.5),
        (array(1.0), array(NAN), 0.5),
        (array(NAN), array(1.0), 0.5),
        (array(100, dtype=int), array(101, dtype=int), 0.5),
        (array((1.0, 2), dtype=PAIR), array((1.05, 3), dtype=PAIR), 0.1),
        (array((1.0, 2), dtype=PAIR), array((1.5, 2), dtype=PAIR), 0.1),
        (np.ones(()), np.zeros(()), 0.0),
    ],
)
def test_what_differs(wanted: np.ndarray, got: np.ndarray, rtol: float) -> None:
    assert array_difference(wanted, got, rtol).startswith("at index (")


def test_padding_is_no_difference() -> None:
    wanted, got = np.zeros(3, PAIR), np.zeros(3, PAIR)
    got.view(np.uint8).reshape(3, -1)[:, 12:] = 0xFF
    assert array_difference(wanted, got) == ""
    long = np.zeros(2, np.longdouble)
    other = long.copy()
    other.view(np.uint8).reshape(2, -1)[:, 10:] = 0xFF
    if np.finfo(np.longdouble).nmant == 63:
        assert array_difference(long, other) == ""


def test_the_first_difference_is_found_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same, "_PIECE", 10)
    for shape in ((100,), (7, 5), (3, 40), (1, 1, 50)):
        wanted = np.arange(float(np.prod(shape))).reshape(shape)[..., ::-1]
        got = wanted.copy()
        assert array_difference(wanted, got) == ""
        index = tuple(length - 1 for length in shape)
        got[index] = -1
        assert array_difference(wanted, got) == f"at index {index} it gives -1.0 instead of {wanted[index]}"


def test_what_was_left_unwritten_is_no_nan_like_others() -> None:
    pattern = pattern_of(np.dtype(float))
    left = np.empty(2)
    fill_with_pattern(left)
    assert array_difference(array(NAN, NAN), left) == ""
    assert array_difference(array(NAN, NAN), left, 0.5, pattern) == "at index (0,) it gives nan instead of nan"
    assert array_difference(left, left.copy(), 0.0, pattern) == ""


DTYPES = ["f2", "f4", "f8", ">f8", "g", "c8", "c16", "G", "i1", "u8", "?", "S3", "U2", "M8[s]", PAIR]


@pytest.mark.parametrize("dtype", DTYPES)
def test_patterns(dtype: Any) -> None:
    block = np.zeros((4, 6), dtype)
    fill_with_pattern(block[1:3, ::2])
    raw = raw_bytes(block)
    assert (raw[1:3, ::2] == raw[1, 0]).all()
    assert not raw[0].any()
    assert not raw[:, 1::2].any()
    assert raw[1, 0, 0]
    if np.dtype(dtype).kind in "fc":
        assert np.isnan(block[1, 0].real)
        assert np.isnan(block[1, 0].imag or np.nan)
    assert repr(block)


class Thing:
    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("a", "b")


class Silent:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = object.__hash__

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("no")


def looped() -> Thing:
    thing = Thing(values=[np.arange(3.0), {"x": {1, 2}}])
    thing.itself = thing  # type: ignore[attr-defined]
    return thing


def slotted() -> Slotted:
    thing = Slotted()
    thing.a = [1]
    return thing


COPIED = [
    np.random.default_rng(1),
    np.random.RandomState(1),
    looped(),
    slotted(),
    {"a": [1, 2.5, None, NAN], 2: (True, b"x", "y")},
    {1, 2},
    bytearray(b"abc"),
    [np.array([1, "a"], object)],
]


@pytest.mark.parametrize("value", COPIED, ids=lambda value: type(value).__name__)
def test_copies_hold_the_same(value: object) -> None:
    assert same_value(value, copy.deepcopy(value))


def test_objects_that_differ() -> None:
    rng = np.random.default_rng(1)
    drawn = copy.deepcopy(rng)
    drawn.random()
    thing, other = looped(), looped()
    other.values[0][1] = 7  # type: ignore[attr-defined]
    more = slotted()
    more.b = 2
    pairs: list[tuple[object, object]] = [
        (rng, drawn),
        (thing, other),
        (slotted(), more),
        (1, 1.0),
        (1, True),
        ([1], (1,)),
        ([1, 2], [1]),
        ({"a": 1}, {"b": 1}),
        ("a", "b"),
        (0.0, -0.0),
        (np.ones(2), np.ones(3)),
        (np.ones(2), np.ones(2, np.float32)),
        (threading.Lock(), threading.Lock()),
        (Silent(), Silent()),
        (len, print),
        (int, float),
    ]
    assert [pair for pair in pairs if same_value(*pair)] == []
    assert same_value([1.0], [1.01], rtol=0.1)
    assert not same_value([1.0], [1.01])
