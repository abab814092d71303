"""Copies and fills are planned with as few blocks as can be, and refused where they cannot be right."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato import _core
from ostinato.devices import transfers
from ostinato.devices.array import DeviceArray, empty
from ostinato.devices.transfers import move, plan, plan_fill, plan_together
from support.fake_device import FakeDevice

Row = list[int]


@pytest.fixture
def array() -> DeviceArray:
    return empty(FakeDevice(), (4, 5, 6, 7), "f4")


def blocks(source: object, target: object) -> list[Row]:
    return transfers._blocks(transfers._memory(source), transfers._memory(target))[0]  # type: ignore[arg-type]


def test_what_is_contiguous_is_one_row(array: DeviceArray) -> None:
    host = np.empty(array.shape, array.dtype)
    assert blocks(host, array) == [[host.nbytes, 1, 1, 0, 0, 0, 0, 0, 0]]
    assert blocks(host.transpose(2, 0, 1, 3), array.proxy.transpose(2, 0, 1, 3)) == blocks(host, array)
    assert blocks(host[::-1], array[::-1]) == blocks(host, array)
    assert blocks(host[1:2, ::2][:, :1], array[1:2, ::2][:, :1]) == [[6 * 7 * 4, 1, 1, 0, 0, 0, 0, 0, 0]]


def test_two_loops_are_one_block_and_each_turn_of_others_one(array: DeviceArray) -> None:
    host = np.empty(array.shape, array.dtype)
    assert len(blocks(host[:, 1:3, :, :2], array[:, 1:3, :, :2])) == 1
    assert len(blocks(host[:, :, :, ::2], array[:, :, :, ::2])) == 1
    assert len(blocks(host[::2, ::2], array[::2, ::2])) == 1
    assert len(blocks(host[:, ::2, ::2, ::2], array[:, ::2, ::2, ::2])) == 3 * 3
    assert blocks(host.T, array) == blocks(host.T, array[...])
    assert len(blocks(host.T, array)) == 4 * 5


def test_nothing_is_no_block(array: DeviceArray) -> None:
    host = np.empty((4, 0, 6, 7), "f4")
    assert blocks(host, array[:, :0]) == []
    assert plan(host, array[:, :0]).bytes == 0
    assert len(blocks(np.empty(3, "V0"), empty(array.device, 3, "V0"))) == 0


def test_a_broadcast_source_is_read_many_times(array: DeviceArray) -> None:
    row = np.arange(7, dtype="f4")
    move(array.device, plan(np.broadcast_to(row, array.shape), array))
    np.testing.assert_array_equal(array.get(), np.broadcast_to(row, array.shape))


def test_a_target_has_each_element_once(array: DeviceArray) -> None:
    twice = np.lib.stride_tricks.as_strided(array.proxy, (2, 7), (0, 4))
    with pytest.raises(ValueError, match="each of its elements once"):
        plan(np.zeros((2, 7), "f4"), twice)


def test_shapes_and_dtypes_are_the_same(array: DeviceArray) -> None:
    for host in (np.zeros((4, 5, 6, 8), "f4"), np.zeros(array.shape, "f8"), np.zeros(array.shape, ">f4")):
        with pytest.raises(ValueError, match="one shape and dtype"):
            plan(host, array)


def test_copies_are_joined(array: DeviceArray) -> None:
    array.set(np.arange(array.size).reshape(array.shape))
    host = np.zeros((10, 7), "f4")
    pairs = [(array[0, 0, 0], host[3]), (array[3, 4, 5, ::-1], host[0]), (array[:2, 1, 1], host[8:])]
    transfer = plan_together(pairs)
    assert transfer.bytes == 4 * 7 * 4
    move(array.device, transfer)
    wanted = np.zeros((10, 7), "f4")
    values = array.get()
    wanted[3], wanted[0], wanted[8:] = values[0, 0, 0], values[3, 4, 5, ::-1], values[:2, 1, 1]
    np.testing.assert_array_equal(host, wanted)


def test_only_copies_of_one_allocation_are_joined(array: DeviceArray) -> None:
    other = empty(array.device, 7, "f4")
    host = np.zeros((2, 7), "f4")
    with pytest.raises(ValueError, match="one allocation"):
        plan_together([(host[0], array[0, 0, 0]), (host[1], other)])


def test_a_fill_of_equal_bytes_has_a_pattern_of_one() -> None:
    assert transfers._shortest(bytes(12)) == b"\0"
    assert transfers._shortest(b"\xff" * 8) == b"\xff"
    assert transfers._shortest(b"abab") == b"ab"
    assert transfers._shortest(b"abcabc") == b"abc"
    assert transfers._shortest(b"aabb") == b"aabb"
    assert transfers._shortest(b"") == b""


def test_what_no_device_can_fill_has_no_pattern(array: DeviceArray) -> None:
    device = array.device
    assert plan_fill(empty(device, 3, "S12"), b"abcdefghijkl") is None
    assert plan_fill(empty(device, 3, "S32"), b"abcdefghijklmnopqrstuvwxyzabcdef") is None
    assert plan_fill(array, np.zeros(7)) is None
    assert isinstance(plan_fill(empty(device, 3, "S12"), b""), _core.devices.Pattern)
    assert isinstance(plan_fill(empty(device, 3, "S32"), b"ab" * 16), _core.devices.Pattern)
    with pytest.raises(ValueError, match="could not convert"):
        plan_fill(array, "text")
