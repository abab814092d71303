"""Arrays in CUDA's memory, ours and other libraries'."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.cuda.driver import Kernels
from devices.cuda.faked import Controls
from ostinato.devices.array import empty
from ostinato.devices.cuda import CudaArray, CudaDevice
from ostinato.devices.registry import allocation_at


class ByInterface:
    """An array of a library that has the interface, as CuPy, Numba and PyTorch."""

    def __init__(self, array: CudaArray, **changes: Any) -> None:
        self.kept = array
        self.said = array.__cuda_array_interface__ | changes
        if changes.get("stream", "") == "unsaid":
            del self.said["stream"]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.said


class ByDlpack:
    """An array of a library that has DLPack alone."""

    def __init__(self, array: Any, versioned: bool = True) -> None:
        self.kept = array
        self.versioned = versioned
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kept.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> object:
        if options and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return self.kept.__dlpack__(**options)


def filled(device: CudaDevice, shape: tuple[int, ...], dtype: Any = float) -> CudaArray:
    array = empty(device, shape, dtype)
    array.set(np.arange(np.prod(shape)).reshape(shape).astype(dtype))
    assert isinstance(array, CudaArray)
    return array


def test_the_interface_says_all_of_an_array(device: CudaDevice) -> None:
    array = filled(device, (4, 6), np.int32)
    assert array.__cuda_array_interface__ == {
        "shape": (4, 6),
        "typestr": "<i4",
        "descr": [("", "<i4")],
        "data": (array.allocation.base, False),
        "strides": None,
        "version": 3,
        "stream": None,
    }
    view = array[1:, ::-2]
    assert view.handle == array.handle + 24 + 20
    assert view.__cuda_array_interface__["strides"] == (24, -8)
    assert array[:0].__cuda_array_interface__["data"][0] == 0


def test_an_array_is_taken_by_dlpack_where_dlpack_has_words_for_it(device: CudaDevice) -> None:
    array = filled(device, (4, 6))
    assert array.__dlpack_device__() == (2, 0)
    for capsule in (array.__dlpack__(), array.__dlpack__(stream=1, max_version=(1, 0))):
        assert type(capsule).__name__ == "PyCapsule"
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="no type for"):
        filled(device, (3,), "M8[s]").__dlpack__()
    records = empty(device, 3, [("a", "i1"), ("b", "<f4")])
    with pytest.raises(BufferError, match="strides"):
        records["b"].__dlpack__()


def test_libraries_that_know_no_read_only_arrays_take_them(device: CudaDevice) -> None:
    array = filled(device, (4, 6))
    array.proxy.flags.writeable = False
    assert array.__cuda_array_interface__["data"] == (array.handle, False)
    assert device.adopt(ByDlpack(array)) is not None
    with pytest.raises(ValueError, match="read-only"):
        array.set(1.0)


@pytest.mark.parametrize("wrap", [ByInterface, ByDlpack, lambda array: ByDlpack(array, versioned=False)])
def test_foreign_arrays_are_adopted_without_a_copy(device: CudaDevice, other: CudaDevice, wrap: Any) -> None:
    array = filled(device, (6, 8))
    for view in (array, array[1:5:2], array[::-1, 3], array[2:3, :, None], array[:, :0]):
        foreign = wrap(view)
        adopted = device.adopt(foreign)
        assert isinstance(adopted, CudaArray)
        assert (adopted.shape, adopted.dtype) == (view.shape, view.dtype)
        np.testing.assert_array_equal(adopted.get(), view.get())
        if view.size:
            assert adopted.allocation is array.allocation
            assert adopted.handle == view.handle
            assert other.adopt(foreign) is None


def test_what_an_array_lies_in_lives_as_long_as_it_is_adopted(device: CudaDevice, controls: Controls) -> None:
    free = device.core.memory()[0]
    adopted = device.adopt(ByInterface(filled(device, (10,))[5:]))
    assert adopted is not None
    second = device.adopt(ByInterface(adopted[1:]))
    assert second is not None
    address = adopted.handle
    del adopted
    assert second.get().tolist() == [6.0, 7.0, 8.0, 9.0]
    assert allocation_at(address) is not None
    del second
    assert allocation_at(address) is None
    assert device.core.memory()[0] == free


def test_an_array_in_memory_that_the_driver_knows_only_parts_of(device: CudaDevice, controls: Controls) -> None:
    base = filled(device, (10,))
    address = base.handle
    controls.fail("cuPointerGetAttribute@2=1")
    adopted = device.adopt(ByInterface(base[4:]))
    assert adopted is not None
    assert adopted.allocation.nbytes == 48
    assert adopted.handle == address + 32
    assert adopted.get().tolist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


@pytest.mark.parametrize(
    ("stream", "waits_for"), [(None, ""), (1, "cuStreamSynchronize"), ("unsaid", "cuCtxSynchronize")]
)
def test_work_of_the_other_library_is_waited_for(
    device: CudaDevice, controls: Controls, stream: object, waits_for: str
) -> None:
    foreign = ByInterface(filled(device, (3,)), stream=stream)
    names = ("cuStreamSynchronize", "cuCtxSynchronize")
    before = {name: controls.calls(name) for name in names}
    assert device.adopt(foreign) is not None
    assert {name for name in names if controls.calls(name) > before[name]} == ({waits_for} if waits_for else set())


def test_the_others_stream_is_waited_for(device: CudaDevice, cuda: Kernels, stream: int) -> None:
    array = filled(device, (5,))
    cuda.stall(stream, 0.05)
    cuda.axpb(stream, array, 0.0, 9.0)
    adopted = device.adopt(ByInterface(array, stream=stream))
    assert adopted is not None
    assert adopted.get().tolist() == [9.0] * 5


def test_what_no_task_can_take_is_refused(device: CudaDevice) -> None:
    array = filled(device, (3,))
    with pytest.raises(TypeError, match="mask"):
        device.adopt(ByInterface(array, mask=array))
    with pytest.raises(ValueError, match="stream 0"):
        device.adopt(ByInterface(array, stream=0))
    incomplete = ByInterface(array)
    del incomplete.said["data"]
    with pytest.raises(TypeError, match="of ByInterface must have data"):
        device.adopt(incomplete)
    host = np.zeros(3)
    assert device.adopt(ByDlpack(host)) is None
    assert device.adopt(object()) is None


def test_read_only_arrays_stay_so(device: CudaDevice) -> None:
    array = filled(device, (3,))
    adopted = device.adopt(ByInterface(array, data=(array.handle, True)))
    assert adopted is not None
    assert not adopted.proxy.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        adopted.set(1.0)


def test_structured_arrays_keep_their_fields(device: CudaDevice) -> None:
    array = empty(device, 3, [("a", "<i4"), ("b", "<f8")])
    adopted = device.adopt(ByInterface(array))
    assert adopted is not None
    assert adopted.dtype == array.dtype


def test_a_stream_is_what_other_libraries_take(device: CudaDevice, stream: int) -> None:
    task_stream = device.stream(stream)
    assert isinstance(task_stream, ost.Stream)
    assert task_stream.__cuda_stream__() == (0, stream)
    assert task_stream.handle == stream
    assert ctypes.c_void_p(task_stream.handle).value == stream
