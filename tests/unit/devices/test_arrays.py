"""Arrays in the memory of devices, and the addresses that stand for them."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from devices.kinds import Kind
from ostinato.devices import registry
from ostinato.devices.array import Allocation, DeviceArray, empty
from ostinato.devices.registry import Reserved
from ostinato.errors import DeviceError
from support.fake_device import FakeDevice, ForeignArray, install


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
def test_views_are_those_of_numpy(kind: Kind, data: st.DataObject, shape: tuple[int, ...]) -> None:
    values = np.arange(float(np.prod(shape))).reshape(shape)
    array = kind.array(values)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    view = array[index]
    wanted = values[index]
    assert isinstance(view, DeviceArray)
    assert view.shape == wanted.shape
    np.testing.assert_array_equal(view.get(), wanted)
    if wanted.size and wanted.ndim:
        assert view.strides == wanted.strides
    again = data.draw(hnp.basic_indices(wanted.shape))
    np.testing.assert_array_equal(view[again].get(), wanted[again])


def test_attributes_are_those_of_an_ndarray(kind: Kind) -> None:
    array = empty(kind.device, (3, 4), np.float32)
    like = np.empty((3, 4), np.float32)
    for name in ("shape", "dtype", "strides", "ndim", "size", "itemsize", "nbytes"):
        assert getattr(array, name) == getattr(like, name)
        assert getattr(array[::2, 1], name) == getattr(like[::2, 1], name)
    assert len(array) == 3
    assert array.offset == 0
    assert array[1, 2:].offset == 24
    assert array[::-1].offset == 32
    assert repr(array) == f"<{type(array).__name__} on {kind.device.name}, shape (3, 4), float32>"
    assert array.device is kind.device


def test_an_element_is_a_view_of_no_dimension(kind: Kind) -> None:
    array = kind.array([1.0, 2.0, 3.0])
    element = array[1]
    assert element.shape == ()
    assert element.get() == 2.0
    element.set(5.0)
    assert array.get().tolist() == [1.0, 5.0, 3.0]
    with pytest.raises(TypeError):
        len(element)


def test_fields_are_views(kind: Kind) -> None:
    array = kind.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    assert array["b"].get().tolist() == [2.5, 4.5]
    array["a"].set([7, 8])
    assert array.get().tolist() == [(7, 2.5), (8, 4.5)]


@pytest.mark.parametrize("index", [[0, 1], np.array([0]), np.array([True, False, True]), True, 1.5, (0, [1])])
def test_other_indices_are_refused(kind: Kind, index: Any) -> None:
    with pytest.raises(TypeError, match="must be an integer, a slice"):
        empty(kind.device, (3, 3))[index]


def test_indices_outside_are_refused(kind: Kind) -> None:
    array = empty(kind.device, (3, 3))
    for index in (3, (0, -4), (0, 0, 0)):
        with pytest.raises(IndexError):
            array[index]
    assert len(list(array)) == 3


def test_numpy_is_told_what_to_do(kind: Kind) -> None:
    array = empty(kind.device, 3)
    for use in (np.asarray, np.sum, lambda a: np.ones(3) + a, lambda a: np.copyto(np.ones(3), a), np.array):
        with pytest.raises(TypeError, match=r"array\.get\(\) is a copy of it for NumPy"):
            use(array)
    with pytest.raises(TypeError):
        array[0] = 1.0  # type: ignore[index]
    with pytest.raises(TypeError):
        memoryview(array)  # type: ignore[arg-type]


@pytest.mark.parametrize("use", [bool, pickle.dumps, copy.copy, copy.deepcopy])
def test_python_is_told_what_to_do(kind: Kind, use: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=r"array\.get\(\) is a copy of it"):
        use(empty(kind.device, 1))


def test_more_bytes_than_there_are_addresses_are_refused(kind: Kind) -> None:
    with pytest.raises(DeviceError, match="36893488147419103232 bytes cannot be allocated"):
        empty(kind.device, 2**62)


def test_set_casts_and_broadcasts_as_an_assignment_does(kind: Kind) -> None:
    array = empty(kind.device, (2, 3), "f4")
    array.set(7)
    array[1].set(np.arange(3))
    assert array.get().tolist() == [[7, 7, 7], [0, 1, 2]]
    with pytest.raises(ValueError, match="broadcast"):
        array.set(np.zeros(4))
    with pytest.raises(TypeError, match="complex"):
        array.set(1j)
    counts = empty(kind.device, 3, "u4")
    counts.set([1, 2, 3])
    assert counts.get().tolist() == [1, 2, 3]
    with pytest.raises(OverflowError):
        counts.set(-1)


def test_shapes_and_dtypes_are_those_of_numpy_empty(kind: Kind) -> None:
    assert empty(kind.device, 5).shape == (5,)
    assert empty(kind.device, [2, 0], "i2").get().shape == (2, 0)
    assert empty(kind.device, ()).get().shape == ()
    with pytest.raises(ValueError, match="negative"):
        empty(kind.device, (-1, 2))
    with pytest.raises(TypeError, match="holds Python objects"):
        empty(kind.device, 3, object)
    with pytest.raises(TypeError):
        empty(kind.device, 2.5)  # type: ignore[arg-type]


def test_read_only_memory_is_not_set() -> None:
    device = FakeDevice()
    owner = device.allocate(24)
    array = Allocation(device, owner.base, 24, owner, readonly=True).array(3)
    assert not array.proxy.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array.set(1.0)


def test_proxies_say_where_they_belong(kind: Kind) -> None:
    array, other = empty(kind.device, (4, 4)), empty(kind.device, (4, 4))
    assert registry.allocation_at(registry.address_of(array.proxy)) is array.allocation
    view = array.proxy[::-1, 3]
    found = registry.device_array(view)
    assert found.allocation is array.allocation
    assert (found.shape, found.strides, found.offset) == (view.shape, view.strides, 96 + 24)
    assert registry.allocation_at(registry.address_of(other.proxy)) is other.allocation
    assert type(found) is type(array)
    assert registry.allocation_of(kind.device.name, array.handle) is array.allocation
    assert registry.any_allocations()


def test_empty_views_belong_to_their_array(kind: Kind) -> None:
    array = empty(kind.device, 6)
    for view in (array.proxy[6:], array.proxy[:0], array.proxy[3:3], empty(kind.device, 0).proxy):
        assert registry.device_array(view).size == 0
    assert registry.device_array(array.proxy[6:]).allocation is array.allocation
    square = empty(kind.device, (4, 4))
    behind = square.proxy[4:, 4:]  # points far behind the end
    assert registry.device_array(behind).allocation is square.allocation
    assert square[4:, 4:].get().shape == (0, 0)


def test_host_arrays_belong_to_no_device() -> None:
    host = np.zeros(4)
    assert registry.allocation_at(registry.address_of(host)) is None
    with pytest.raises(ValueError, match="memory of the host"):
        registry.device_array(host)


def test_a_proxy_keeps_the_memory(kind: Kind) -> None:
    device = FakeDevice()
    view = empty(device, 10).proxy[2:][::3]
    gc.collect()
    assert device.core.allocated == 80
    address = registry.address_of(view)
    assert registry.allocation_at(address) is not None
    del view
    gc.collect()
    assert device.core.allocated == 0
    assert registry.allocation_at(address) is None


def test_overlapping_allocations_are_told_apart() -> None:
    """As those of other libraries may, adopted one by one."""
    device = FakeDevice()
    memory = Reserved(1000)

    def adopted(base: int, low: int, high: int) -> Allocation:
        return Allocation(device, base, high - low, memory, address=memory.address + low)

    long, short, twin = adopted(1, 0, 1000), adopted(2, 100, 200), adopted(3, 100, 200)
    assert registry.allocation_at(memory.address + 50) is long
    assert registry.allocation_at(memory.address + 150) is twin
    assert registry.allocation_at(memory.address + 500) is long
    del twin
    assert registry.allocation_at(memory.address + 150) is short
    del short
    assert registry.allocation_at(memory.address + 150) is long


def test_allocations_come_and_go_on_many_threads() -> None:
    device = FakeDevice()
    wrong: list[object] = []

    def use(number: int) -> None:
        rng = np.random.default_rng(number)
        kept: list[DeviceArray] = []
        for _ in range(300):
            kept.append(empty(device, int(rng.integers(0, 2000)), "u1"))
            if len(kept) > 10:
                kept.pop(int(rng.integers(10)))
            for array in kept:
                if registry.device_array(array.proxy).allocation is not array.allocation:
                    wrong.append(array)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    gc.collect()
    assert device.core.allocated == 0


def test_arrays_of_devices_and_of_other_libraries_are_adopted() -> None:
    with install(count=2) as (_, second):
        array = empty(second, 3)
        assert registry.adopt(array) is array
        assert registry.adopt(ForeignArray(array)) is array


def test_memory_of_the_host_is_not_adopted() -> None:
    class OnHost:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    for obj in (np.zeros(3), np.float64(1), 1, "text", None, [1], memoryview(b"x"), bytearray(3), OnHost(), object):
        assert registry.adopt(obj) is None
