"""Arrays on OpenCL devices: with pyopencl's attributes, and pyopencl's own, adopted."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from devices.kinds import opencl
from ostinato.devices.array import DeviceArray, empty
from ostinato.devices.registry import adopt
from ostinato.errors import DeviceError

cl: Any = pytest.importorskip("pyopencl")


@pytest.fixture
def device() -> Any:
    return opencl().device


@pytest.fixture
def queue(device: Any) -> Any:
    return cl.CommandQueue(device.context)


def numbers(device: Any, *shape: int, dtype: Any = np.float32) -> Any:
    array: Any = empty(device, shape, dtype)
    array.set(np.arange(array.size).reshape(shape))
    return array


def adopted(obj: object) -> DeviceArray:
    array = adopt(obj)
    assert array is not None
    return array


def test_an_array_has_the_attributes_that_pyopencl_gives_its_own(device: Any, queue: Any) -> None:
    array = numbers(device, 4, 8)
    assert array.base_data is array.data
    assert array.data.int_ptr == array.int_ptr == array.pointer == array.handle
    assert array.data.context == device.context
    copy = np.empty((4, 8), np.float32)
    cl.enqueue_copy(queue, copy, array.data)
    assert np.array_equal(copy, array.get())


def test_where_it_begins_inside_of_its_memory_its_data_is_a_buffer_that_begins_there(device: Any, queue: Any) -> None:
    whole = numbers(device, 4, device.alignment)
    part = whole[1:3]
    assert part.base_data is whole.data
    assert part.data is whole[1:3].data, "captured work relies on it"
    assert part.data.size == part.nbytes
    copy = np.empty(part.shape, part.dtype)
    cl.enqueue_copy(queue, copy, part.data)
    assert np.array_equal(copy, part.get())


def test_where_no_buffer_can_begin_the_error_says_what_to_pass(device: Any) -> None:
    array = numbers(device, 16)
    for view in (array[1:], array[::-1]):
        with pytest.raises(ValueError, match="pass base_data, and offset and strides"):
            view.data  # noqa: B018
    assert array[1:].offset == 4


def test_pyopencl_computes_with_it(device: Any, queue: Any) -> None:
    array = numbers(device, 16)
    theirs = array[4:8].with_queue(queue)
    theirs += 1
    theirs.finish()
    assert array.get().tolist() == [0, 1, 2, 3, 5, 6, 7, 8, *range(8, 16)]


def test_arrays_of_pyopencl_are_adopted_as_they_are(device: Any, queue: Any) -> None:
    from pyopencl import array as cl_array

    theirs = cl_array.to_device(queue, np.arange(24, dtype=np.int16).reshape(4, 6))
    ours = adopted(theirs[1:, ::2])
    assert np.array_equal(ours.get(), np.arange(24).reshape(4, 6)[1:, ::2])
    assert (ours.shape, ours.strides, ours.offset) == ((3, 3), (12, 4), 12)
    ours.set(-1)
    assert theirs.get()[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert theirs.get()[1].tolist() == [-1, 7, -1, 9, -1, 11]
    assert adopted(theirs).allocation is ours.allocation


def test_what_is_enqueued_for_an_array_is_waited_for(device: Any, queue: Any) -> None:
    from pyopencl import array as cl_array

    gate = cl.UserEvent(device.context)
    theirs = cl_array.zeros(queue, 4, np.float32)
    theirs.finish()
    theirs.add_event(cl.enqueue_fill(queue, theirs.base_data, np.float32(3), 16, wait_for=[gate]))
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert adopted(theirs).get().tolist() == [3] * 4


def test_memory_of_a_pool_is_not_used_again_while_it_is_adopted(device: Any, queue: Any) -> None:
    from pyopencl import array as cl_array
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    pool = MemoryPool(ImmediateAllocator(queue))
    theirs = cl_array.to_device(queue, np.arange(4.0), allocator=pool)
    ours = adopted(theirs)
    handle = ours.handle
    del theirs
    other = cl_array.zeros(queue, 4, np.float64, allocator=pool)
    assert other.base_data.int_ptr != handle
    assert ours.get().tolist() == [0, 1, 2, 3]
    del ours
    assert cl_array.zeros(queue, 4, np.float64, allocator=pool).base_data.int_ptr == handle


def test_a_buffer_is_its_bytes_and_a_part_of_it_a_part(device: Any, queue: Any) -> None:
    buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4 * device.alignment)
    cl.enqueue_fill(queue, buffer, np.uint8(1), buffer.size).wait()
    whole, part = adopted(buffer), adopted(buffer[device.alignment : 2 * device.alignment])
    assert (whole.dtype, whole.shape) == (np.uint8, (buffer.size,))
    assert part.allocation is whole.allocation
    assert (part.offset, part.shape) == (device.alignment, (device.alignment,))
    part.set(2)
    assert np.bincount(whole.get()).tolist() == [0, 3 * device.alignment, device.alignment]


def test_shared_virtual_memory_is_its_bytes(device: Any, queue: Any) -> None:
    from pyopencl import array as cl_array
    from pyopencl.tools import SVMAllocator

    if not device.device.svm_capabilities:
        pytest.skip("this device has no shared virtual memory")
    allocator = SVMAllocator(device.context, queue=queue)
    theirs = cl_array.to_device(queue, np.arange(4.0), allocator=allocator)
    ours = adopted(theirs)
    assert ours.get().tolist() == [0, 1, 2, 3]
    ours[1:3].set(7)
    assert theirs.get().tolist() == [0, 7, 7, 3]
    raw = allocator(64)
    array = adopted(raw)
    assert (array.dtype, array.shape) == (np.uint8, (64,))
    assert adopted(raw).allocation is array.allocation


def test_arrays_without_elements(device: Any, queue: Any) -> None:
    from pyopencl import array as cl_array

    assert adopted(cl_array.zeros(queue, (0, 3), np.float32)).shape == (0, 3)
    assert empty(device, (3, 0)).get().shape == (3, 0)


def test_an_array_of_another_context_is_refused(device: Any) -> None:
    from pyopencl import array as cl_array

    context = cl.Context([device.device])
    queue = cl.CommandQueue(context)
    for theirs in (cl_array.zeros(queue, 4, np.float32), cl.Buffer(context, cl.mem_flags.READ_WRITE, 16)):
        with pytest.raises(ValueError, match=r'make it in machine.processor\("opencl:0"\).device.context'):
            adopt(theirs)


@pytest.mark.parametrize("what", ["context", "device", "core"])
def test_what_is_no_array_is_not_adopted(device: Any, what: str) -> None:
    assert adopt(getattr(device, what)) is None


def test_too_much_memory_is_an_error_that_says_how_much(device: Any) -> None:
    nbytes = 1 << 50
    with pytest.raises(DeviceError, match=f"opencl:0: {nbytes} bytes cannot be allocated") as raised:
        device.allocate(nbytes)
    assert (raised.value.device, raised.value.usable) == ("opencl:0", True)


def test_finish_waits_for_streams_that_were_closed(device: Any) -> None:
    kind = opencl()
    stream = kind.core.open()
    kind.work(stream, 0.05)
    ended = kind.ended(stream)
    kind.core.close(stream)
    device.finish()
    assert ended.wait() == 0


def test_threads_of_the_driver_are_not_bound_to_the_core_of_who_asks_first(device: Any) -> None:
    program = """if True:
        import contextlib, os, threading
        from pathlib import Path
        allowed = os.sched_getaffinity(0)
        def ask():
            before = set(Path("/proc/self/task").iterdir())
            os.sched_setaffinity(0, {min(allowed)})
            from ostinato.devices.opencl import devices
            devices()
            assert os.sched_getaffinity(0) == {min(allowed)}
            for thread in set(Path("/proc/self/task").iterdir()) - before:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    assert os.sched_getaffinity(int(thread.name)) == allowed, thread
        failed = []
        threading.excepthook = failed.append
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join()
        raise SystemExit(bool(failed) and repr(failed[0]))
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_device_says_what_it_is(device: Any) -> None:
    assert device.device.driver_version in device.description
    assert device.identity.startswith(f"opencl:{device.device.platform.name}/")
    assert device.description in repr(device)
