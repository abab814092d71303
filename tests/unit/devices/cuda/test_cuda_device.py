"""A device of CUDA behind the protocol: what the suite for all kinds does not ask."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import pytest

from devices.cuda.driver import Kernels
from devices.cuda.faked import Controls
from devices.kinds import Kind, Notice
from ostinato import _core
from ostinato.devices.array import empty
from ostinato.devices.cuda import CudaDevice
from ostinato.devices.transfers import plan, plan_fill, wait_for
from ostinato.errors import DeviceError

PAGE = 4096


def told(device: CudaDevice, stream: int) -> Notice:
    return Kind(device, lambda stream, seconds: None).ended(stream)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def pages(count: int) -> np.ndarray:
    """Bytes that begin with a page."""
    raw = np.zeros((count + 1) * PAGE, np.uint8)
    return raw[-address(raw) % PAGE :][: count * PAGE]


def test_a_thread_gets_its_own_context_back(device: CudaDevice, other: CudaDevice, cuda: Kernels) -> None:
    now = ctypes.c_void_p()
    before = cuda.context.value
    cuda.enter()
    mine = empty(other, 10)
    mine.set(1.0)
    cuda.driver.cuCtxGetCurrent(ctypes.byref(now))
    assert now.value == before
    assert mine.get().tolist() == [1.0] * 10


def test_devices_work_from_any_thread(device: CudaDevice, other: CudaDevice) -> None:
    failures: list[Exception] = []

    def use(each: CudaDevice, value: float) -> None:
        try:
            for _ in range(20):
                array = empty(each, 100)
                array.set(value)
                assert (array.get() == value).all()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(each, number)) for number, each in enumerate([device, other] * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16"])
@pytest.mark.parametrize(
    "view",
    [
        lambda array: array,
        lambda array: array[::2],
        lambda array: array[:, ::3],
        lambda array: array[:, 1:4],
        lambda array: array[::-1, 2],
        lambda array: array[3:4],
        lambda array: array[::3, ::-2],
    ],
    ids=["whole", "rows", "elements", "columns", "backwards", "row", "both"],
)
def test_fills_of_every_size_and_shape(
    device: CudaDevice, stream: int, dtype: str, view: Callable[[object], object]
) -> None:
    array = empty(device, (9, 11), dtype)
    expected = np.arange(99).reshape(9, 11).astype(dtype)
    array.set(expected)
    value = np.array(1.5 - 2.25j if dtype == "c16" else 3.75).astype(dtype)
    view(expected)[...] = value  # type: ignore[index]
    device.core.fill(stream, plan_fill(view(array), value))
    wait_for(device, stream)
    np.testing.assert_array_equal(array.get(), expected)


def test_fills_of_memory_that_is_not_aligned(device: CudaDevice, stream: int) -> None:
    memory = empty(device, 41, np.uint8)
    memory.set(0)
    odd = memory.allocation.array(5, "<i8", offset=1)
    device.core.fill(stream, plan_fill(odd, 0x0102030405060708))
    wait_for(device, stream)
    assert memory.get()[1:].view("<i8").tolist() == [0x0102030405060708] * 5
    assert memory.get()[0] == 0


@pytest.mark.parametrize("shape", [(6, 8, 16), (6, 7, 5)], ids=["pitches that the driver takes", "that it refuses"])
def test_copies_of_boxes(device: CudaDevice, stream: int, shape: tuple[int, int, int]) -> None:
    source, target = empty(device, shape), empty(device, shape)
    values = np.arange(float(np.prod(shape))).reshape(shape)
    source.set(values)
    target.set(0.0)
    expected = np.zeros(shape)
    for index in (np.s_[1:3, 2:5, 1:4], np.s_[::2, ::2, ::2], np.s_[::-1, 1:3, :], np.s_[:, 1, ::-1]):
        device.core.copy(stream, plan(source[index], target[index]))
        expected[index] = values[index]
    wait_for(device, stream)
    np.testing.assert_array_equal(target.get(), expected)
    host = np.zeros(shape)
    device.core.copy(stream, plan(target[1:4, ::2], host[1:4, ::2]))
    wait_for(device, stream)
    np.testing.assert_array_equal(host[1:4, ::2], expected[1:4, ::2])


def test_page_locked_memory_is_copied_without_waiting(device: CudaDevice, cuda: Kernels, stream: int) -> None:
    array, host = empty(device, PAGE, np.uint8), pages(2)
    array.set(7)
    pinned = device.pin(address(host), address(host) + host.nbytes)
    assert pinned is not None
    flag, target = host[PAGE:].view(np.int32)[:1], host[:PAGE]
    cuda.hold(stream, flag)
    device.core.copy(stream, plan(array, target))
    assert target[0] == 0
    flag[0] = 1
    wait_for(device, stream)
    assert (target == 7).all()


def test_page_locking_is_shared_and_ends_with_its_last_user(
    device: CudaDevice, other: CudaDevice, controls: Controls
) -> None:
    host = pages(4)
    low, high = address(host), address(host) + host.nbytes
    before = controls.calls("cuMemHostUnregister")
    first, second = device.pin(low, high), other.pin(low + 100, high - 100)
    assert second is first is not None
    assert device.pin(low, low) is None
    assert device.pin(low - 8, high) is None  # the driver locks no page twice
    del first
    assert controls.calls("cuMemHostUnregister") == before
    del second
    assert controls.calls("cuMemHostUnregister") == before + 1


def test_memory_of_which_others_have_locked_pages_is_copied(device: CudaDevice, stream: int) -> None:
    host = pages(6)
    neighbour = device.pin(address(host), address(host) + PAGE + 100)
    assert neighbour is not None
    mine = host[PAGE + 200 : 5 * PAGE + 77]  # begins in a page that is locked, and ends in one that is not
    mine[:] = np.arange(mine.size) % 251
    array = empty(device, mine.shape, np.uint8)
    device.core.copy(stream, plan(mine, array))
    wait_for(device, stream)
    np.testing.assert_array_equal(array.get(), mine)
    back = np.s_[PAGE + 300 : 5 * PAGE + 177]
    device.core.copy(stream, plan(array, host[back]))
    wait_for(device, stream)
    np.testing.assert_array_equal(host[back], array.get())


def test_there_is_only_so_much_memory(device: CudaDevice, controls: Controls) -> None:
    free, total = device.core.memory()
    with pytest.raises(DeviceError, match=r"cuda:0: \d+ bytes cannot be allocated: CUDA_ERROR_OUT_OF_MEMORY"):
        device.allocate(total + 1)
    held = device.allocate(1000)
    assert device.core.memory()[0] <= free - 1000
    del held
    assert device.core.memory() == (free, total)


def test_a_capture_is_launched_again_and_again(device: CudaDevice, cuda: Kernels, stream: int) -> None:
    x, y = empty(device, 100), empty(device, 100)
    x.set(1.0)

    def enqueue(recording: int) -> None:
        assert recording != stream
        cuda.axpb(recording, x, 2.0, 1.0)
        device.core.copy(recording, plan(x, y))
        device.core.fill(recording, plan_fill(y[:50], 0.0))

    sequence = device.core.capture(stream, enqueue)
    assert sequence is not None
    assert (x.get() == 1.0).all()
    for _ in range(3):
        device.core.launch(stream, sequence)
    wait_for(device, stream)
    assert (x.get() == 15.0).all()
    assert y.get().tolist() == [0.0] * 50 + [15.0] * 50


def test_a_capture_of_the_same_form_updates_what_is_not_launched_any_more(
    device: CudaDevice, cuda: Kernels, stream: int, controls: Controls
) -> None:
    x = empty(device, 10)
    x.set(0.0)

    def captured(value: float, times: int) -> _core.devices.Sequence:
        sequence = device.core.capture(stream, lambda to: [cuda.axpb(to, x, 1.0, value) for _ in range(times)])
        assert sequence is not None
        return sequence

    first = captured(1.0, 3)
    device.core.launch(stream, first)
    updates, made = controls.calls("cuGraphExecUpdate_v2"), controls.calls("cuGraphInstantiateWithFlags")
    del first  # its launch goes on
    second = captured(10.0, 3)
    device.core.launch(stream, second)
    assert controls.calls("cuGraphExecUpdate_v2") == updates + 1
    assert controls.calls("cuGraphInstantiateWithFlags") == made
    third = captured(100.0, 4)  # of another form
    device.core.launch(stream, third)
    assert controls.calls("cuGraphInstantiateWithFlags") == made + 1
    del second
    controls.fail("cuGraphExecUpdate_v2=910")  # what CUDA thinks cannot be updated is made anew
    fourth = captured(1000.0, 3)
    device.core.launch(stream, fourth)
    assert controls.calls("cuGraphInstantiateWithFlags") == made + 2
    wait_for(device, stream)
    assert (x.get() == 3.0 + 30.0 + 400.0 + 3000.0).all()


def test_what_cuda_cannot_capture_is_not_captured(device: CudaDevice, stream: int, controls: Controls) -> None:
    array = empty(device, 10)

    def copy(recording: int) -> None:
        device.core.fill(recording, plan_fill(array, 1.0))

    controls.fail("cuStreamEndCapture=901")
    with pytest.raises(RuntimeError, match="CAPTURE_INVALIDATED"):
        device.core.capture(stream, copy)
    controls.fail("cuStreamBeginCapture_v2=900")
    with pytest.raises(RuntimeError, match="CAPTURE_UNSUPPORTED"):
        device.core.capture(stream, copy)
    assert device.core.capture(stream, copy) is not None
    controls.fail("cuGraphInstantiateWithFlags@1=2,cuGraphExecUpdate_v2@1=910")
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        device.core.capture(stream, lambda recording: [copy(recording) for _ in range(9)])


def test_what_raises_while_it_is_captured_is_raised(device: CudaDevice, stream: int) -> None:
    def enqueue(recording: int) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        device.core.capture(stream, enqueue)

    def allocate(recording: int) -> None:
        device.allocate(100)

    with pytest.raises(DeviceError, match="CAPTURE"):
        device.core.capture(stream, allocate)
    assert device.core.capture(stream, lambda recording: None) is not None


def test_a_capture_minds_no_other_thread(device: CudaDevice, cuda: Kernels, stream: int) -> None:
    x = empty(device, 10)
    x.set(0.0)
    worked = threading.Event()

    def work() -> None:
        array = empty(device, 10)
        array.set(5.0)
        if (array.get() == 5.0).all():
            worked.set()

    def enqueue(recording: int) -> None:
        cuda.axpb(recording, x, 1.0, 1.0)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    sequence = device.core.capture(stream, enqueue)
    assert sequence is not None
    assert worked.is_set()


def test_word_comes_during_a_capture_of_somebody_else(device: CudaDevice, cuda: Kernels, stream: int) -> None:
    """Whose mode, as PyTorch's, forbids other threads what CUDA calls unsafe; asking whether work is done is."""
    theirs = device.core.open()
    cuda.enter()
    cuda.stall(stream, 0.05)
    cuda.driver.cuStreamBeginCapture_v2(ctypes.c_void_p(theirs), 0)
    notice = told(device, stream)
    cuda.launch("nothing", theirs)
    assert notice.wait() == 0
    graph = ctypes.c_void_p()
    cuda.driver.cuStreamEndCapture(ctypes.c_void_p(theirs), ctypes.byref(graph))
    device.core.close(theirs)


def test_a_failing_kernel_breaks_the_device_and_is_told_of(
    device: CudaDevice, cuda: Kernels, stream: int, controls: Controls
) -> None:
    cuda.stall(stream, 0.02)
    cuda.launch("fault", stream)
    notice = told(device, stream)
    code = notice.wait()
    message, usable = device.core.diagnose(code)
    assert message == "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
    assert not usable
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        device.finish()
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        device.core.record(stream, _core.devices.DeviceEvent())


def test_what_can_be_tried_again_leaves_the_device_usable(device: CudaDevice, stream: int, controls: Controls) -> None:
    for code in (1, 2, 701, 400, 913):
        message, usable = device.core.diagnose(code)
        assert usable
        assert str(code) in message
    array = empty(device, 3)
    controls.fail("cuMemsetD8Async=2")
    with pytest.raises(RuntimeError, match=r"CUDA_ERROR_OUT_OF_MEMORY \(2\): out of memory"):
        device.core.fill(stream, plan_fill(array, 0.0))
    device.core.fill(stream, plan_fill(array, 0.0))
    wait_for(device, stream)
    assert array.get().tolist() == [0.0] * 3


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_where_the_driver_cannot_say_whether_work_has_ended_it_is_waited_for(
    device: CudaDevice, cuda: Kernels, stream: int, controls: Controls, nth: int
) -> None:
    array, host = empty(device, 3), np.zeros(3)
    array.set(1.0)
    cuda.stall(stream, 0.02)
    device.core.copy(stream, plan(array, host))
    controls.fail(f"cuEventQuery@{nth}=2")
    assert told(device, stream).wait() == 0
    assert host.tolist() == [1.0] * 3


def test_failures_at_once_say_of_which_device_and_whether_it_can_be_used(
    device: CudaDevice, controls: Controls
) -> None:
    controls.fail("cuMemAlloc_v2=2")
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY") as raised:
        empty(device, 3)
    assert (raised.value.device, raised.value.usable) == (device.name, True)


def test_events_are_used_again_ten_thousand_times(device: CudaDevice, stream: int) -> None:
    event, second = _core.devices.DeviceEvent(), device.core.open()
    array = empty(device, 1)
    for _ in range(10_000):
        device.core.record(stream, event)
        device.core.wait(second, event)
    device.core.fill(second, plan_fill(array, 2.0))
    assert told(device, second).wait() == 0
    assert array.get().tolist() == [2.0]
    device.core.close(second)


def test_word_of_many_streams(device: CudaDevice, cuda: Kernels) -> None:
    streams = [device.core.open() for _ in range(8)]
    for number, each in enumerate(streams):
        cuda.stall(each, 0.002 * (8 - number))
    notices = [told(device, each) for each in streams]
    assert [notice.wait() for notice in notices] == [0] * 8
    for each in streams:
        device.core.close(each)
