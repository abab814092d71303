"""Copies and fills of arrays with any strides, on every kind of device, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devices.kinds import Kind
from ostinato.devices.array import empty
from ostinato.devices.transfers import move, overlap, plan, plan_fill

kinds_differ = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

DTYPES = ["u1", "i2", "f4", "f8", "c16", "S3", [("a", "i4"), ("b", "u1")]]


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """How an array of `shape` may lie in a larger one: the shape of that, its axes' order, and the index."""
    order = draw(st.permutations(range(len(shape))))
    larger, index = [], []
    for axis in order:
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        before, behind = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        span = max((shape[axis] - 1) * abs(step) + 1, 0) if shape[axis] else 0
        larger.append(before + span + behind)
        chosen = list(range(before, before + span, abs(step)))[: shape[axis]]
        if not chosen:
            index.append(slice(0, 0))
        elif step > 0:
            index.append(slice(chosen[0], chosen[-1] + 1, step))
        else:
            index.append(slice(chosen[-1], chosen[0] - 1 if chosen[0] else None, step))
    return tuple(larger), (tuple(index), tuple(np.argsort(order)))


def view(array: Any, how: tuple[Any, ...]) -> Any:
    index, order = how
    return array[(*index, ...)].transpose(order)  # without the ellipsis, NumPy would make a scalar


shapes = st.lists(st.integers(0, 5), min_size=0, max_size=5).map(tuple)


def random_bytes(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.tobytes() == b.tobytes()


@kinds_differ
@given(data=st.data(), shape=shapes, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 1000))
def test_copies_are_those_of_numpy(
    kind: Kind, data: st.DataObject, shape: tuple[int, ...], dtype: Any, seed: int
) -> None:
    """From any view to any other: host to device, on the device, and back."""
    (shape_a, how_a), (shape_b, how_b), (shape_c, how_c), (shape_d, how_d) = (data.draw(views(shape)) for _ in range(4))
    host_a, host_d = random_bytes(shape_a, dtype, seed), random_bytes(shape_d, dtype, seed + 1)
    before_b, before_c = random_bytes(shape_b, dtype, seed + 2), random_bytes(shape_c, dtype, seed + 3)
    b, c = kind.array(before_b), kind.array(before_c)
    view_b, view_c = view(b.proxy, how_b), view(c.proxy, how_c)
    move(kind.device, plan(view(host_a, how_a), view_b))
    move(kind.device, plan(view_b, view_c))
    move(kind.device, plan(view_c, view(host_d, how_d)))
    wanted = random_bytes(shape_d, dtype, seed + 1)
    view(before_b, how_b)[...] = view(host_a, how_a)
    view(before_c, how_c)[...] = view(before_b, how_b)
    view(wanted, how_d)[...] = view(before_c, how_c)
    assert same(b.get(), before_b)
    assert same(c.get(), before_c)
    assert same(host_d, wanted)


@kinds_differ
@given(
    data=st.data(),
    shape=shapes,
    dtype=st.sampled_from(["?", "u1", "i2", "f4", "f8", "c16", "S4", "S16", "f2", [("a", "i4"), ("b", "i4")]]),
    seed=st.integers(0, 1000),
    uniform=st.booleans(),
)
def test_fills_are_those_of_numpy(
    kind: Kind, data: st.DataObject, shape: tuple[int, ...], dtype: Any, seed: int, uniform: bool
) -> None:
    larger, how = data.draw(views(shape))
    before = random_bytes(larger, "u1", seed).astype(dtype) if dtype == "?" else random_bytes(larger, dtype, seed)
    value = np.zeros((), dtype) if uniform else random_bytes((), dtype, seed + 1)
    array = kind.array(before)
    target = view(array.proxy, how)
    stream = kind.core.open()
    fill = plan_fill(target, value)
    assert fill is not None
    kind.core.fill(stream, fill)
    assert kind.ended(stream).wait() == 0
    kind.core.close(stream)
    view(before, how)[...] = value
    assert same(array.get(), before)


@kinds_differ
@given(data=st.data(), length=st.integers(1, 20))
def test_copies_within_an_array_are_planned_unless_they_overlap(kind: Kind, data: st.DataObject, length: int) -> None:
    size = 30
    starts = st.integers(0, size - length)
    source, target = (slice(start, start + length) for start in (data.draw(starts), data.draw(starts)))
    turn = data.draw(st.sampled_from([1, -1]))
    values = np.arange(float(size))
    array = kind.array(values)
    pair = array.proxy[source], array.proxy[target][::turn]
    if overlap(*pair):
        with pytest.raises(ValueError, match="overlap"):
            plan(*pair)
        return
    move(kind.device, plan(*pair))
    values[target][::turn] = values[source]
    np.testing.assert_array_equal(array.get(), values)


def test_interleaved_views_do_not_overlap(kind: Kind) -> None:
    array = kind.array(np.arange(10.0))
    move(kind.device, plan(array[::2], array[1::2]))
    assert array.get().tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]


def test_large_copies(kind: Kind) -> None:
    host = random_bytes((300, 200, 7), "f4", 1)
    array = empty(kind.device, (200, 300, 7), "f4")
    array.set(host.transpose(1, 0, 2))
    assert same(array[::-1, 5:, ::3].get(), np.ascontiguousarray(host.transpose(1, 0, 2)[::-1, 5:, ::3]))
