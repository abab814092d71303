"""Timing calls on a CUDA device by events, through the driver's library."""

from __future__ import annotations

import ctypes
import time

from ostinato.tune.worker.timers import empty, middle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_now = time.perf_counter_ns
_LIBRARY = "libcuda.so.1"
_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_LEGACY_STREAM = None  # waits for all streams that do not say otherwise, and they for it
_TICK = 500.0  # ns: the resolution of events, as CUDA's manual has it
_TIMES_OVERHEAD = 20
_LOOKS = 3


class CudaError(RuntimeError):
    """A call of the driver failed: of those made here, only because something before them did."""


class CudaTimer:
    """Times one callable after the other; its attributes are those of `ostinato.tune.worker.timers.CpuTimer`.

    The device is the first that the process sees, its context the primary one, as CUDA's runtime and everything built
    upon it have it. Two events enclose a call on the default stream. Work on streams that do not wait for that one
    escapes them; then the time until the device is idle is taken instead.
    """

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL(_LIBRARY)
        self._buffer = ctypes.c_uint64()
        self._bytes = 0
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._do("cuCtxSetCurrent", self._context)
        cache = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(cache), _L2_CACHE_SIZE, device)
        self._bytes = 2 * max(cache.value, 1 << 20)
        self._begin, self._end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._begin, self._end):
            self._do("cuEventCreate", ctypes.byref(event), 0)
        self._escapes = False
        self._call, self._count = empty, 1
        self._single = middle([self._timed(1)[0] for _ in range(51)])
        self.resolution = max(self._single / 4, _TICK)
        self.overhead = self._single

    def begin(self, call: Callable[[], Any], single: bool) -> None:
        """Set what is timed from here on: singly, or else in batches if one call is too short for that."""
        self._call, self._count = call, 1
        self.overhead = self._single
        self._escapes = False
        looks = [self._timed(1) for _ in range(_LOOKS)]
        events, whole = (middle(list(times)) for times in zip(*looks, strict=True))
        # An empty call takes the host some microseconds more than the device; a call that it has not seen, far more.
        self._escapes = events < (whole - 10 * self._single) / 2
        if not single and not self._escapes and events < _TIMES_OVERHEAD * self._single:
            self._count = 1 + int(_TIMES_OVERHEAD * self._single / max(events, 1.0))
            self.overhead = self._single / self._count

    def take(self) -> tuple[float, int]:
        """Return the ns of one call, and those that the sample took."""
        events, whole = self._timed(self._count)
        ns = (whole if self._escapes else events) / self._count - self.overhead
        return max(ns, self.resolution), int(whole)

    def end(self) -> None:
        """Forget the callable: what it holds would be in memory beside the next one's."""
        self._call = empty

    def flush(self) -> None:
        """Write a buffer of twice the size of the L2 cache; the next call waits for that on the device."""
        if not self._buffer.value:
            self._do("cuMemAlloc_v2", ctypes.byref(self._buffer), ctypes.c_size_t(self._bytes))
        self._do("cuMemsetD8Async", self._buffer, ctypes.c_ubyte(0), ctypes.c_size_t(self._bytes), _LEGACY_STREAM)

    def damage(self) -> str:
        """Wait for the device; return what is wrong with its context, for which only a new process helps."""
        try:
            self._do("cuCtxSetCurrent", self._context)
            self._do("cuCtxSynchronize")
        except CudaError as error:
            return str(error)
        return ""

    def _timed(self, count: int) -> tuple[float, float]:
        do, call = self._do, self._call
        milliseconds = ctypes.c_float()
        do("cuCtxSetCurrent", self._context)  # a candidate may have made another one current
        begin = _now()
        do("cuEventRecord", self._begin, _LEGACY_STREAM)
        for _ in range(count):
            call()
        do("cuEventRecord", self._end, _LEGACY_STREAM)
        do("cuEventSynchronize", self._end)
        do("cuCtxSynchronize")
        whole = _now() - begin
        do("cuEventElapsedTime", ctypes.byref(milliseconds), self._begin, self._end)
        return milliseconds.value * 1e6, float(whole)

    def _do(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"{name}: {text.value.decode() if text.value else f'error {code}'}")
