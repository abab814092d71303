"""Every kind of device that there is here, with what the tests of the protocol need to know of it."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ostinato import _core
from ostinato.devices import device as discovery
from ostinato.devices.array import DeviceArray, empty
from ostinato.devices.device import Device
from support.fake_device import FakeDevice

DeviceEvent = _core.devices.DeviceEvent
WAIT = 60.0  # seconds, in which everything happens


class Kind:
    """A device under test.

    Attributes
    ----------
    work
        ``work(stream, seconds)`` enqueues something that takes about so long.
    """

    def __init__(self, device: Device, work: Callable[[int, float], None]) -> None:
        self.device = device
        self.core = device.core
        self.work = work
        self._pinned: list[object] = []

    def host(self, size: int) -> np.ndarray[Any, Any]:
        """Zeros in memory of the host that is page-locked: with other memory, a device may wait for a copy."""
        array = np.zeros(size)
        self._pinned.append((array, self.device.pin(array.ctypes.data, array.ctypes.data + array.nbytes)))
        return array

    def array(self, values: Any, dtype: Any = None) -> DeviceArray:
        """A new array of the device with these values."""
        values = np.asarray(values, dtype)
        array = empty(self.device, values.shape, values.dtype)
        array.set(values)
        return array

    def recorded(self, stream: int) -> _core.devices.DeviceEvent:
        """An event for all that is enqueued on a stream."""
        event = DeviceEvent()
        self.core.record(stream, event)
        return event

    def notice(self, event: _core.devices.DeviceEvent) -> Notice:
        """Word of when an event's work is done."""
        notice = Notice(event)
        self.core.notify(event, notice.tell)
        return notice

    def ended(self, stream: int) -> Notice:
        """Word of when all that is enqueued on a stream is done."""
        return self.notice(self.recorded(stream))


class Notice:
    """Is told when the device is done."""

    def __init__(self, event: object) -> None:
        self._event = event
        self._told = threading.Event()
        self.code = -1
        self.thread = 0

    def tell(self, code: int) -> None:
        self.code = code
        self.thread = threading.get_ident()
        self._told.set()

    @property
    def told(self) -> bool:
        return self._told.is_set()

    def wait(self) -> int:
        """Wait for it; the code."""
        assert self._told.wait(WAIT), "the device has not told that it is done"
        return self.code


def fake() -> Kind:
    device = FakeDevice()
    return Kind(device, lambda stream, seconds: device.core.call_native(stream, 0, delay=seconds))


@functools.cache
def opencl() -> Kind:
    devices = discovery.usable("opencl")
    if not devices:
        pytest.skip(
            f"no device of OpenCL: {discovery.reasons().get('opencl', 'pyopencl, or a driver, is not installed')}"
        )
    device: Any = devices[0]
    return Kind(device, _OpenCLWork(device))


class _OpenCLWork:
    """A kernel of one work item that counts for a given time."""

    SOURCE = """
    __kernel void count(__global ulong *out, ulong turns) {
        ulong x = turns;
        for (ulong i = 0; i < turns; ++i)
            x = x * 6364136223846793005UL + 1442695040888963407UL;
        out[0] = x;
    }
    """

    def __init__(self, device: Any) -> None:
        import time

        import pyopencl as cl

        self._device = device
        context = device.context
        self._kernel = cl.Program(context, self.SOURCE).build().count
        self._out = cl.Buffer(context, cl.mem_flags.READ_WRITE, 8)
        queue = cl.CommandQueue(context)
        self._enqueue(queue, 1000).wait()
        turns = 1 << 20
        took = 0.0
        while took < 0.01:
            turns *= 2
            start = time.perf_counter()
            self._enqueue(queue, turns).wait()
            took = time.perf_counter() - start
        self._turns_a_second = turns / took

    def _enqueue(self, queue: Any, turns: int) -> Any:
        self._kernel.set_args(self._out, np.uint64(turns))
        import pyopencl as cl

        return cl.enqueue_nd_range_kernel(queue, self._kernel, (1,), (1,))

    def __call__(self, stream: int, seconds: float) -> None:
        self._enqueue(self._device.stream(stream).queue, int(seconds * self._turns_a_second))


def cuda() -> Kind:
    devices = discovery.usable("cuda")
    assert "cuda" not in discovery.reasons()
    if not devices:
        pytest.skip("the driver of CUDA finds no device")
    from devices.cuda.work import work_on

    return Kind(devices[0], work_on(devices[0]))


@functools.cache
def cuda_fake() -> Kind:
    """What we make of CUDA, on a driver that is none."""
    from devices.cuda.faked import fake_devices, library
    from devices.cuda.work import work_on

    device = fake_devices()[0]
    return Kind(device, work_on(device, library()))


def has_driver_of_cuda() -> bool:
    """Whether it is installed, working or not."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


KINDS = {"fake": fake, "opencl": opencl, "cuda": cuda, "cuda-fake": cuda_fake}
