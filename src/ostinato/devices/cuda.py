"""CUDA devices: their memory, their streams, and arrays that others have there."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from ostinato import _core
from ostinato.devices import registry
from ostinato.devices.array import Allocation, DeviceArray
from ostinato.devices.device import Stream, translate_failures
from ostinato.devices.registry import DLPACK_CUDA, Memory, view_of
from ostinato.errors import DeviceError

DRIVER = "libcuda.so.1"
VERSION = Path("/proc/driver/nvidia/version")

_LEGACY_STREAM = 1  # the stream that work is on which names none
_ANY_STREAM = -1
_TYPE_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of DLPack
_TYPE_LETTERS = {code: letter for letter, code in _TYPE_CODES.items()}


def devices(library: str = DRIVER) -> Sequence[CudaDevice]:
    """Return the devices that ``CUDA_VISIBLE_DEVICES`` leaves to this process, in CUDA's order.

    Without a driver, or a GPU, there are none. No context is made before a device is used.

    Parameters
    ----------
    library
        The driver's.

    Raises
    ------
    DeviceError
        There is a driver that does not work.

    Examples
    --------
    >>> devices("/no/such/driver.so")
    ()
    """
    found, why = _core.devices.cuda_devices(library)
    if why and not found:
        raise DeviceError(why)
    return tuple(CudaDevice(core) for core in found)


class CudaStream(Stream):
    """A stream of a CUDA device, as a task receives it.

    Libraries that know the protocol ``__cuda_stream__`` take it as it is; for others, ``handle`` is the ``CUstream``.

    Attributes
    ----------
    device
        The device that it belongs to.
    """

    __slots__ = ("device",)

    def __init__(self, handle: int, device: CudaDevice) -> None:
        super().__init__(handle)
        self.device = device

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class CudaArray(DeviceArray):
    """An array in the memory of a CUDA device, which CuPy, PyTorch, Numba and others take as it is."""

    __slots__ = ()

    @property
    def handle(self) -> int:
        """The address of the first element: a ``CUdeviceptr``."""
        return self.allocation.base + self.offset

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        contiguous = self.proxy.flags.c_contiguous
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.handle if self.size else 0, False),  # PyTorch refuses arrays that say they are read-only
            "strides": None if contiguous else self.strides,
            "version": 3,
            "stream": None,  # in a task it is used on the task's stream; outside, its work is done
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._cuda().ordinal)

    def __dlpack__(self, **options: Any) -> object:
        if self.dtype.kind not in _TYPE_CODES or self.dtype.byteorder == ">":
            raise BufferError(f"DLPack has no type for {self.dtype}")
        if any(stride % self.itemsize for stride in self.strides):
            raise BufferError("the strides of this array are not multiples of its elements, as DLPack needs them")
        exported: Any = _core.devices.dlpack(
            address=self.handle,
            shape=self.shape,
            strides=[stride // self.itemsize for stride in self.strides],
            code=_TYPE_CODES[self.dtype.kind],
            bits=8 * self.itemsize,
            ordinal=self._cuda().ordinal,
            owner=self,
        )
        return exported.__dlpack__(**options)

    def _cuda(self) -> _core.devices.CudaDevice:
        device = self.device
        assert isinstance(device, CudaDevice)
        return device.core


class CudaDevice:
    """A CUDA device, by its primary context, which the process's other libraries use, too.

    Parameters
    ----------
    core
        What the core asks of it.

    Attributes
    ----------
    name
        ``"cuda:0"``: its number among the devices of this process.
    identity
        Its UUID, as ``nvidia-smi -L`` lists it.
    model
        ``"NVIDIA H100 80GB HBM3"``.
    driver
        The version of its driver.
    """

    kind = "cuda"
    arrays = CudaArray

    def __init__(self, core: _core.devices.CudaDevice) -> None:
        self.core = core
        self.name = f"cuda:{core.ordinal}"
        self.identity = core.identity or self.name
        self.model = core.model
        self.driver = _driver_version(core)

    def allocate(self, nbytes: int) -> Allocation:
        """Return new memory. `DeviceError`: there is not so much."""
        with translate_failures(self, f"{nbytes} bytes cannot be allocated: "):
            memory = self.core.allocate(max(nbytes, 1))
        return Allocation(self, memory.address, nbytes, memory, address=memory.address)

    def adopt(self, obj: object) -> DeviceArray | None:
        """Return the array in its memory that an object of another library is, without a copy; None where it is none.

        Waits for the work that the other library has under way on it: on the stream that it names, else on all.
        """
        foreign = _by_interface(obj) if hasattr(type(obj), "__cuda_array_interface__") else _by_dlpack(obj)
        if foreign is None:
            return None
        extent = _extent(foreign)
        with translate_failures(self):
            if foreign.ordinal not in (None, self.core.ordinal):
                return None
            low, nbytes = foreign.address, 0
            if foreign.address:
                ordinal, low, nbytes = self.core.locate(foreign.address)
                if ordinal != self.core.ordinal:
                    return None
            self._wait_for(foreign.stream)
        first, last = foreign.address + extent[0], foreign.address + extent[1]
        if not low <= first <= last <= low + nbytes:
            low, nbytes = first, last - first
        if nbytes == 0:  # an empty array has no address
            return Allocation(self, 0, 0, obj).array(foreign.shape, foreign.dtype)
        allocation = registry.allocation_of(self.name, low)
        if allocation is None or last > low + allocation.nbytes:
            allocation = Allocation(self, low, nbytes, obj, address=low)
        raw = np.asarray(_Adopted(low, allocation, foreign.readonly, obj))
        proxy = view_of(raw, foreign.address - low, foreign.shape, foreign.dtype, foreign.strides)
        return allocation.view(proxy)

    def stream(self, handle: int) -> CudaStream:
        """Return what a task's `Stream` parameter receives."""
        return CudaStream(handle, self)

    def in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function: calls may overlap."""
        return function

    def pin(self, low: int, high: int) -> object | None:
        """Page-lock the host memory between two addresses for as long as what is returned lives; None: cannot."""
        if low >= high:
            return None
        with _pinning:
            for pinned in _pinned:
                if pinned.low <= low and high <= pinned.high:
                    return pinned
            held = self.core.pin(low, high)
            if held is None:
                return None
            pinned = _Pinned(low, high, held)
            _pinned.add(pinned)
            return pinned

    def finish(self) -> None:
        """Wait for all work of the device, without the GIL."""
        with translate_failures(self):
            self.core.finish()

    def _wait_for(self, stream: int | None) -> None:
        if stream == _ANY_STREAM:
            self.core.finish()
        elif stream is not None:
            self.core.finish_stream(stream)

    def __repr__(self) -> str:
        return f"<CudaDevice {self.name}: {self.model}>"


def _driver_version(core: _core.devices.CudaDevice) -> str:
    try:
        found = re.search(r"\s(\d+(\.\d+)+)\s", VERSION.read_text())
    except OSError:  # not where containers and others show it
        found = None
    return found[1] if found else f"CUDA {core.driver // 1000}.{core.driver % 1000 // 10}"


class _Foreign(NamedTuple):
    """An array of another library."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    readonly: bool
    stream: int | None  # that its work is on; None: there is none under way
    ordinal: int | None = None  # of its device, where it says so


class _Adopted(Memory):
    """Memory that lives as long as an object of another library, of which several may share it."""

    __slots__ = ("obj",)

    def __init__(self, address: int, owner: Allocation, readonly: bool, obj: object) -> None:
        super().__init__(address, owner.nbytes, owner, readonly)
        self.obj = obj


class _Pinned:
    """Host memory that is page-locked, for all devices and for whoever asked for a part of it, too."""

    __slots__ = ("__weakref__", "_held", "high", "low")

    def __init__(self, low: int, high: int, held: object) -> None:
        self.low = low
        self.high = high
        self._held = held


_pinning = threading.Lock()
_pinned: WeakSet[_Pinned] = WeakSet()


def _by_interface(obj: Any) -> _Foreign:
    interface = obj.__cuda_array_interface__
    missing = {"shape", "typestr", "data"} - set(interface)
    if missing:
        raise TypeError(f"__cuda_array_interface__ of {type(obj).__name__} must have {', '.join(sorted(missing))}")
    if interface.get("mask") is not None:
        raise TypeError(f"{type(obj).__name__} with a mask: tasks take arrays without")
    address, readonly = interface["data"]
    typestr = interface["typestr"]
    dtype = np.dtype(typestr)
    if dtype.kind == "V" and interface.get("descr") is not None:
        dtype = np.dtype([tuple(field) for field in interface["descr"]])
    strides = interface.get("strides")
    stream = interface.get("stream", _ANY_STREAM)
    if stream == 0:
        raise ValueError("__cuda_array_interface__ names stream 0, which may be one of two: 1 or 2 is meant")
    return _Foreign(
        address=int(address or 0),
        shape=tuple(interface["shape"]),
        dtype=dtype,
        strides=None if strides is None else tuple(strides),
        readonly=bool(readonly),
        stream=stream if stream is None else int(stream),
    )


def _by_dlpack(obj: Any) -> _Foreign | None:
    if not hasattr(type(obj), "__dlpack_device__"):
        return None
    kind, ordinal = obj.__dlpack_device__()
    if int(kind) not in DLPACK_CUDA:
        return None
    try:
        capsule = obj.__dlpack__(stream=_LEGACY_STREAM, max_version=(1, 0))
    except TypeError:  # from before versions
        capsule = obj.__dlpack__(stream=_LEGACY_STREAM)
    address, shape, strides, code, bits, lanes, _, readonly = _core.devices.described(capsule)
    if code not in _TYPE_LETTERS or bits % 8 or lanes != 1:
        raise TypeError(f"{type(obj).__name__} has elements that NumPy has no dtype for")
    dtype = np.dtype(f"{_TYPE_LETTERS[code]}{bits // 8}")
    in_bytes = tuple(stride * dtype.itemsize for stride in strides)
    return _Foreign(address, tuple(shape), dtype, in_bytes, readonly, _LEGACY_STREAM, int(ordinal))


def _extent(foreign: _Foreign) -> tuple[int, int]:
    """Return where an array's bytes begin and end, from its first element."""
    if 0 in foreign.shape:
        return (0, 0)
    if foreign.strides is None:
        return (0, prod(foreign.shape) * foreign.dtype.itemsize)
    ways = [(size - 1) * stride for size, stride in zip(foreign.shape, foreign.strides, strict=True)]
    return (sum(way for way in ways if way < 0), sum(way for way in ways if way > 0) + foreign.dtype.itemsize)
