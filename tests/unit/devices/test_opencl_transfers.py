"""Copies that no command of OpenCL makes, of more elements than one would make one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from devices.kinds import Kind, opencl
from ostinato.devices.array import empty
from ostinato.devices.transfers import move, plan, plan_fill, wait_for

pytest.importorskip("pyopencl")

WAYS: dict[str, Any] = {
    "backwards": lambda x: x[::-1, ::-1],
    "rows backwards": lambda x: x[::-1],
    "columns backwards": lambda x: x[:, ::-1],
    "across": lambda x: x.T,
    "across and backwards": lambda x: x.T[::-1, ::-2],
    "every other": lambda x: x[::2, ::3],
}
ONLY_FROM: dict[str, Any] = {
    "a row repeated": lambda x: np.broadcast_to(x[3], x.shape),
    "a column repeated": lambda x: np.broadcast_to(x[:, 3:4], x.shape),
    "an element repeated": lambda x: np.broadcast_to(x[3:4, 3:4], x.shape),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x[0], 8),
    "windows backwards": lambda x: np.lib.stride_tricks.sliding_window_view(x[0], 8)[::-1],
}
PLACES = ["host to device", "device to host", "device to device"]


@pytest.fixture
def kind() -> Kind:
    return opencl()


def copied(kind: Kind, source: np.ndarray[Any, Any], places: str, way: Any) -> Any:
    """What an array of its own is after a copy of `way(source)` to it; both lie where `places` says."""
    from_device, to_device = places.startswith("device"), places.endswith("device")
    there: Any = kind.array(source) if from_device else source
    begin = way(there.proxy if from_device else there)
    here: Any = empty(kind.device, begin.shape, begin.dtype) if to_device else np.zeros(begin.shape, begin.dtype)
    move(kind.device, plan(begin, here), there, here)
    return here.get() if to_device else here


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("way", {**WAYS, **ONLY_FROM})
def test_sources_of_every_shape(kind: Kind, way: str, places: str) -> None:
    source = np.arange(40 * 50, dtype=np.int32).reshape(40, 50)
    take = {**WAYS, **ONLY_FROM}[way]
    assert np.array_equal(copied(kind, source, places, take), take(source))


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_targets_of_every_shape(kind: Kind, way: str, places: str) -> None:
    from_device, to_device = places.startswith("device"), places.endswith("device")
    take = WAYS[way]
    expected = np.zeros((40, 50))
    values = np.random.default_rng(1).random(take(expected).shape)
    take(expected)[...] = values
    target: Any = kind.array(np.zeros((40, 50))) if to_device else np.zeros((40, 50))
    source: Any = kind.array(values) if from_device else values
    move(kind.device, plan(source, take(target.proxy if to_device else target)), source, target)
    assert np.array_equal(target.get() if to_device else target, expected)


@pytest.mark.parametrize("places", PLACES)
def test_they_are_captured_with_the_memory_that_they_pass_through(kind: Kind, places: str) -> None:
    from_device, to_device = places.startswith("device"), places.endswith("device")
    source: Any = kind.array(np.zeros(1000)) if from_device else np.zeros(1000)
    target: Any = kind.array(np.zeros(1000)) if to_device else np.zeros(1000)
    transfer = plan((source.proxy if from_device else source)[::-1], target)
    stream = kind.core.open()
    sequence = kind.core.capture(stream, lambda recording: kind.core.copy(recording, transfer))
    for value in range(3):
        values = np.arange(1000.0) + value
        if from_device:
            source.set(values)
        else:
            source[...] = values
        kind.core.launch(stream, sequence)
        wait_for(kind.device, stream)
        assert np.array_equal(target.get() if to_device else target, values[::-1])
    kind.core.close(stream)


def test_fills_of_every_shape(kind: Kind) -> None:
    for way in WAYS.values():
        array, expected = kind.array(np.zeros((40, 50))), np.zeros((40, 50))
        way(expected)[...] = 3.5
        fill = plan_fill(way(array.proxy), 3.5)
        assert fill is not None
        stream = kind.core.open()
        kind.core.fill(stream, fill)
        wait_for(kind.device, stream)
        kind.core.close(stream)
        assert np.array_equal(array.get(), expected)
