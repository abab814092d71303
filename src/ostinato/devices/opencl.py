"""OpenCL's devices, through pyopencl."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pyopencl as cl

from ostinato import _core
from ostinato.devices import registry
from ostinato.devices.array import Allocation, DeviceArray
from ostinato.devices.device import Stream, failure, translate_failures
from ostinato.devices.registry import bytes_at
from ostinato.errors import DeviceError


class OpenCLStream(Stream):
    """A stream of an OpenCL device: an in-order command queue."""

    __slots__ = ("_queue",)

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self._queue: Any = None

    @property
    def queue(self) -> cl.CommandQueue:
        """The stream as a `pyopencl.CommandQueue`."""
        if self._queue is None:
            self._queue = cl.CommandQueue.from_int_ptr(self.handle)
        return self._queue


class OpenCLArray(DeviceArray):
    """An array in the memory of an OpenCL device, with the attributes of a `pyopencl.array.Array`.

    Examples
    --------
    >>> import numpy as np
    >>> from ostinato.devices.array import empty
    >>> from ostinato.devices.opencl import devices
    >>> device = devices()[0]
    >>> array = empty(device, 100, np.float32)
    >>> array.offset, array[64:].offset
    (0, 256)
    >>> type(array[64:].data).__name__, array[64:].data.size
    ('Buffer', 144)
    """

    __slots__ = ()

    @property
    def base_data(self) -> cl.Buffer:
        """The memory that the array lies in, `offset` bytes before its first element."""
        return self.allocation.owner

    @property
    def data(self) -> cl.Buffer:
        """Memory that begins with the array's first element, for kernels: where `offset` is not 0, a sub-buffer.

        Raises
        ------
        ValueError
            There can be no such buffer: the array does not begin where the device lets buffers begin, or it goes
            backwards. Then pass `base_data` and `offset`.
        """
        if self.offset == 0 and min(self.strides, default=0) >= 0:
            return self.base_data
        return _region(self)

    @property
    def int_ptr(self) -> int:
        """The ``cl_mem`` of `data`."""
        return int(self.data.int_ptr)

    @property
    def pointer(self) -> int:
        """What C code gets for it: `int_ptr`."""
        return self.int_ptr

    def with_queue(self, queue: cl.CommandQueue) -> Any:
        """Return a `pyopencl.array.Array` of the same memory that works on `queue`."""
        from pyopencl.array import Array

        place = {"data": self.base_data, "offset": self.offset, "strides": self.strides}
        return Array(queue, self.shape, self.dtype, **place)


class OpenCLDevice:
    """A device of OpenCL.

    Parameters
    ----------
    number
        It is called ``opencl:<number>``.
    device
        As pyopencl knows it.
    identity
        What names it for all processes of this host.

    Attributes
    ----------
    model
        What it is, as far as its speed depends on it.
    driver
        The version of its driver.
    context
        The context of all its streams and arrays: programs and arrays for its tasks are made in this one.
    device
        As pyopencl knows it.

    Examples
    --------
    >>> from ostinato.devices.opencl import devices
    >>> device = devices()[0]
    >>> device.name
    'opencl:0'
    >>> program = cl.Program(device.context, "__kernel void nothing() {}").build()
    """

    kind = "opencl"
    arrays = OpenCLArray

    def __init__(self, number: int, device: cl.Device, identity: str) -> None:
        self.name = f"opencl:{number}"
        self.identity = identity
        units = device.max_compute_units
        compute_units = f"{units} compute unit{'s' * (units != 1)}"
        self.model = f"{device.name.strip()}, {compute_units}, {device.platform.name.strip()}"
        self.driver = str(device.driver_version)
        self.device = device
        self.context = cl.Context([device])
        self.core = _core.devices.OpenCLDevice(cl._cl.__file__, self.context.int_ptr, device.int_ptr)
        self._queue = cl.CommandQueue(self.context)  # for what is done at once

    @property
    def description(self) -> str:
        """The device in words."""
        return f"{self.model}, driver {self.driver}"

    @property
    def alignment(self) -> int:
        """Where buffers may begin in others: at multiples of so many bytes."""
        return max(1, int(self.device.mem_base_addr_align) // 8)

    def allocate(self, nbytes: int) -> Allocation:
        """Return new memory. `DeviceError`: there is not so much."""
        try:
            try:
                buffer = self._new(nbytes)
            except cl.MemoryError:
                gc.collect()  # arrays in cycles hold memory of the device
                buffer = self._new(nbytes)
        except cl.Error as error:
            raise self._failure(f"{nbytes} bytes cannot be allocated: ", error) from error
        return Allocation(self, buffer.int_ptr, nbytes, buffer)

    def _new(self, nbytes: int) -> cl.Buffer:
        buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(1, nbytes))
        # Drivers allocate when memory is first used; that it is not there is to be said now.
        cl.enqueue_migrate_mem_objects(self._queue, [buffer], cl.mem_migration_flags.CONTENT_UNDEFINED)
        return buffer

    def adopt(self, obj: object) -> DeviceArray | None:
        """Return the array that a `pyopencl.array.Array` is, when it is there; of a buffer or shared memory, its bytes.

        Raises
        ------
        ValueError
            It is this device's, but of another context.
        """
        of = type(obj)
        if of.__module__ == "pyopencl.array" and hasattr(obj, "base_data"):
            return self._adopt_array(obj)
        if isinstance(obj, cl.SVMPointer):
            return self._adopt_shared(obj)
        if not isinstance(obj, cl.MemoryObjectHolder) or obj.type != cl.mem_object_type.BUFFER:
            return None
        if not self._is_here(obj.context, of):
            return None
        allocation, offset = self._allocation_of(obj)
        return allocation.array(obj.size, np.uint8, offset)

    def _adopt_array(self, array: Any) -> DeviceArray | None:
        if not self._is_here(array.context, type(array)):
            return None
        try:
            array.finish()  # what was enqueued for it on queues of its owner's
        except cl.Error as error:
            raise self._failure("", error) from error
        if array.base_data is None:  # it has no elements
            return self.allocate(0).array(array.shape, array.dtype)
        allocation, offset = self._allocation_of(array.base_data)
        return allocation.array(array.shape, array.dtype, offset + array.offset, array.strides)

    def _adopt_shared(self, memory: Any) -> DeviceArray | None:
        # It does not say of which context it is.
        able = [device for device in devices() if device.device.svm_capabilities]
        if self not in able:
            return None
        if len(able) > 1:
            raise ValueError(
                "shared virtual memory does not say which device it belongs to, and there are several that have such: "
                "pass a pyopencl.array.Array in it"
            )
        allocation, offset = self._allocation_of(memory)
        return allocation.array(memory.size, np.uint8, offset)

    def _is_here(self, context: cl.Context, of: type) -> bool:
        if context == self.context:
            return True
        if self.device in context.devices:
            raise ValueError(
                f"this {of.__name__} belongs to another OpenCL context than the streams of {self.name}, which cannot "
                f'use it: make it in machine.processor("{self.name}").device.context'
            )
        return False

    def _allocation_of(self, memory: Any) -> tuple[Allocation, int]:
        """Return the allocation that memory of pyopencl's lies in, and how many bytes before it."""
        if isinstance(memory, cl.SVMPointer):
            return self._shared(memory), 0
        whole = memory.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
        offset = 0 if whole is None else int(memory.get_info(cl.mem_info.OFFSET))
        whole = memory if whole is None else whole
        found = registry.allocation_of(self.name, whole.int_ptr)
        return found or Allocation(self, whole.int_ptr, whole.size, whole), offset

    def _shared(self, memory: Any) -> Allocation:
        address = int(memory.svm_ptr)
        found = registry.allocation_at(address)
        if found is not None and found.device is self and found.address == address and found.nbytes == memory.size:
            return found
        # For copies and fills: a buffer that is this very memory.
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        buffer = cl.Buffer(self.context, flags, hostbuf=bytes_at(address, memory.size, memory))
        return Allocation(self, buffer.int_ptr, memory.size, buffer, address=address)

    def stream(self, handle: int) -> OpenCLStream:
        """Return what a task's `Stream` parameter receives."""
        return OpenCLStream(handle)

    def in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls a function, one call at a time: kernel objects hold their arguments until enqueued."""

        def call(*args: Any, **keywords: Any) -> Any:
            with _turn:
                return function(*args, **keywords)

        return call

    def pin(self, low: int, high: int) -> object | None:
        """Return None: OpenCL page-locks no memory that others allocated."""
        return None

    def finish(self) -> None:
        """Wait for all work of its streams, without the GIL."""
        with translate_failures(self):
            self.core.finish()

    def _failure(self, doing: str, error: cl.Error) -> DeviceError:
        """Return what tells of a failure that pyopencl has raised."""
        _, usable = self.core.diagnose(error.code)
        return failure(self, f"{doing}{error}", usable)

    def __repr__(self) -> str:
        return f"<OpenCLDevice {self.name}: {self.description}>"


def devices() -> Sequence[OpenCLDevice]:
    """Return all devices of all platforms, in the order in which OpenCL lists them."""
    if not _devices:
        _devices.extend(_found())
    return tuple(_devices)


_devices: list[OpenCLDevice] = []
# Of all devices: with one for each, calls within calls could wait for each other. Forked children call none of them.
_turn = threading.RLock()
_regions: weakref.WeakKeyDictionary[Allocation, dict[tuple[int, int], Any]] = weakref.WeakKeyDictionary()


def _found() -> list[OpenCLDevice]:
    # Drivers start threads, which may run where the thread that starts them may: a worker's is one core.
    with ThreadPoolExecutor(1, initializer=_go_anywhere) as elsewhere:
        return elsewhere.submit(_looked_for).result()


def _go_anywhere() -> None:
    os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))


def _looked_for() -> list[OpenCLDevice]:
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:
        if error.code == cl.status_code.PLATFORM_NOT_FOUND_KHR:
            return []
        raise
    found: list[OpenCLDevice] = []
    names: dict[str, int] = {}
    for platform in platforms:
        for device in platform.get_devices():
            if not device.available:
                continue
            name = f"opencl:{platform.name.strip()}/{device.name.strip()}"
            # Which of several of one name it is.
            names[name] = names.get(name, -1) + 1
            identity = name if names[name] == 0 else f"{name}/{names[name]}"
            found.append(OpenCLDevice(len(found), device, identity))
    return found


def _region(array: OpenCLArray) -> Any:
    """Return the sub-buffer that an array is, the same each time: captured work refers to it without owning it."""
    device = cast(OpenCLDevice, array.device)
    if any(stride < 0 for stride in array.strides) or array.offset % device.alignment != 0:
        raise ValueError(
            f"on {device.name}, no buffer begins at byte {array.offset} of another, only at multiples of "
            f"{device.alignment}, and none goes backwards: pass base_data, and offset and strides as numbers"
        )
    last = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True))
    nbytes = last + array.itemsize if array.size else 1
    regions = _regions.setdefault(array.allocation, {})
    key = (array.offset, nbytes)
    if key not in regions:
        regions[key] = cl.Buffer.from_int_ptr(array.allocation.base).get_sub_region(*key)
    return regions[key]
