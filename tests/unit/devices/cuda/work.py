"""Work that takes a device of CUDA a given time."""

from __future__ import annotations

from collections.abc import Callable

from devices.cuda.driver import kernels
from ostinato.devices.cuda import DRIVER, CudaDevice


def work_on(device: CudaDevice, library: str = DRIVER) -> Callable[[int, float], None]:
    """Return what enqueues it: ``work(stream, seconds)``."""
    return kernels(library, device).stall
