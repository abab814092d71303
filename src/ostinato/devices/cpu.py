"""The CPU behind the protocol of devices: everything happens at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ostinato import _core
from ostinato.devices.array import Allocation, DeviceArray
from ostinato.devices.device import Stream

__all__ = ["CpuDevice"]


class CpuDevice:
    """The CPU as a device, whose memory is the host's. Machines have their CPUs without it.

    Examples
    --------
    >>> import numpy as np
    >>> device = CpuDevice()
    >>> array = device.allocate(80).array(10)
    >>> array.set(np.arange(10))
    >>> array[::-3].get()
    array([9., 6., 3., 0.])
    """

    name = "cpu:0"
    kind = "cpu"
    identity = "cpu:0"
    model = "cpu"
    driver = "1"
    arrays = DeviceArray

    def __init__(self) -> None:
        self.core = _core.devices.CpuDevice()

    def allocate(self, nbytes: int) -> Allocation:
        """Return new memory."""
        memory = np.empty(nbytes, np.uint8)
        address = int(memory.__array_interface__["data"][0])
        return Allocation(self, address, nbytes, memory, address=address)

    def adopt(self, obj: object) -> DeviceArray | None:
        """Return None: arrays of the host need no adoption."""
        return None

    def stream(self, handle: int) -> Stream:
        """Return the stream."""
        return Stream(handle)

    def in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function: calls may overlap."""
        return function

    def pin(self, low: int, high: int) -> object | None:
        """Return None: there is nothing to gain."""
        return None

    def finish(self) -> None:
        """Do nothing: everything is done."""
