"""Processors of a machine, and their memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.devices.discovery import is_usable

if TYPE_CHECKING:
    from ostinato.devices.array import DeviceArray
    from ostinato.devices.device import Device

__all__ = ["HOST", "DeviceMemory", "Memory", "Processor", "processor_of"]


class Memory(NamedTuple):
    """A memory that processors share."""

    name: str

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> Any:
        """Return a new array in this memory, its contents undefined.

        In the memory of the CPUs, that is a NumPy array. In that of a device, it is an array whose elements are there:
        tasks on that device get it as it is, others get copies; ``get()`` and ``set(array)`` copy it to the host and
        back.

        Parameters
        ----------
        shape
            As for `numpy.empty`.
        dtype
            As for `numpy.empty`.

        Raises
        ------
        DeviceError
            The device has not so much memory left.
        """
        return np.empty(shape, dtype)

    @property
    def device(self) -> Device | None:
        """The device whose memory it is; None for that of the CPUs."""
        return None


class DeviceMemory(Memory):
    """The memory of a device."""

    _device: Device

    def __new__(cls, device: Device) -> DeviceMemory:
        """Return the memory of a device; it has its name."""
        memory = super().__new__(cls, device.name)
        memory._device = device
        return memory

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> DeviceArray:
        """Return a new array in this memory, its contents undefined; see `Memory.empty`."""
        from ostinato.devices.array import empty

        return empty(self._device, shape, dtype)

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return self._device


class Processor(NamedTuple):
    """A processor of a machine."""

    name: str
    kind: str
    memory: Memory

    @property
    def device(self) -> Device | None:
        """What the libraries of its kind know it by, such as ``device.context`` on OpenCL; None for a CPU."""
        return self.memory.device

    @property
    def usable(self) -> bool:
        """Whether it can be used; not a device that is lost to this process, such as by an illegal address with CUDA.

        Devices tell by failing: it is False once a `DeviceError` said so (`DeviceError.usable`).

        Examples
        --------
        >>> import ostinato as ost
        >>> with ost.Machine(cpus=2, gpus=0) as machine:
        ...     [processor.usable for processor in machine.processors]
        [True, True]
        """
        return self.device is None or is_usable(self.device)

    @property
    def _state(self) -> str:
        return "" if self.usable else " (not usable)"

    def __repr__(self) -> str:
        return f"Processor(name={self.name!r}, kind={self.kind!r}, memory={self.memory!r}){self._state}"


HOST = Memory("host")


def processor_of(device: Device) -> Processor:
    """Return the processor that a device is."""
    return Processor(device.name, device.kind, DeviceMemory(device))
