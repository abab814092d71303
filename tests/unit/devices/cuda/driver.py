"""The driver of CUDA for tests and for the benchmark, by ctypes: kernels, and the fake driver's controls."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.devices.cuda import DRIVER, CudaArray, CudaDevice

PTX = Path(__file__).with_name("kernels.ptx")
BLOCK = 256


class Driver:
    """CUDA's own functions, by their names: ``driver.cuStreamSynchronize(handle)``. They raise what they return.

    Parameters
    ----------
    library
        What to load.
    """

    def __init__(self, library: str = DRIVER) -> None:
        self.library = ctypes.CDLL(library)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code != 0:
                raise RuntimeError(f"{name}: {code}")

        setattr(self, name, call)
        return call


class Kernels:
    """The kernels of kernels.cu, loaded on one device.

    Parameters
    ----------
    driver
        CUDA.
    device
        Where.
    """

    def __init__(self, driver: Driver, device: CudaDevice) -> None:
        self.driver = driver
        device.core.memory()  # makes the primary context
        self.context = ctypes.c_void_p()
        number = ctypes.c_int()
        driver.cuDeviceGet(ctypes.byref(number), device.core.ordinal)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), number)
        self.module = ctypes.c_void_p()
        self.enter()
        driver.cuModuleLoadData(ctypes.byref(self.module), PTX.read_bytes())
        self.functions: dict[str, ctypes.c_void_p] = {}
        # Loaded now: what is loaded when it is first launched could not be captured.
        for name in ("nothing", "axpb", "add", "smooth", "stall", "hold", "fault"):
            function = self.functions[name] = ctypes.c_void_p()
            driver.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode())

    def enter(self) -> None:
        """Make the device's context the calling thread's, as libraries over CUDA do."""
        self.driver.cuCtxSetCurrent(self.context)

    def launch(self, name: str, stream: int, *arguments: object, count: int = 1) -> None:
        """Launch a kernel for `count` elements."""
        self.enter()
        values = [_parameter(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
        blocks = max((count + BLOCK - 1) // BLOCK, 1)
        threads = BLOCK if count > 1 else 1
        stream_handle = ctypes.c_void_p(stream)
        self.driver.cuLaunchKernel(self.functions[name], blocks, 1, 1, threads, 1, 1, 0, stream_handle, pointers, None)

    def axpb(self, stream: int, x: CudaArray, a: float, b: float) -> None:
        self.launch("axpb", stream, x, float(a), float(b), x.size, count=x.size)

    def add(self, stream: int, total: CudaArray, a: CudaArray, b: CudaArray) -> None:
        self.launch("add", stream, total, a, b, total.size, count=total.size)

    def hold(self, stream: int, flag: np.ndarray) -> None:
        """Enqueue what ends when an int32 of page-locked memory is not 0 any more."""
        self.launch("hold", stream, flag.__array_interface__["data"][0])

    def stall(self, stream: int, seconds: float) -> None:
        self.launch("stall", stream, round(seconds * 1e9))


def _parameter(argument: object) -> Any:
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    interface = argument.__cuda_array_interface__  # type: ignore[attr-defined]
    assert interface["strides"] is None
    return ctypes.c_uint64(interface["data"][0])


@cache
def kernels(library: str, device: CudaDevice) -> Kernels:
    """The kernels on a device, loaded once."""
    return Kernels(Driver(library), device)
