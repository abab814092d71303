"""Fake devices, for tests: their work takes as long as it was declared to, or is done step by step, and fails at the
test's word."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ostinato_fake_device

from ostinato.devices import device as discovery
from ostinato.devices import registry
from ostinato.devices.array import Allocation, DeviceArray
from ostinato.devices.device import Stream, failure, translate_failures
from ostinato.devices.registry import bytes_at, view_of

__all__ = ["FakeDevice", "FakeStream", "ForeignArray", "install", "launch"]


class FakeStream(Stream):
    """A stream of a fake device."""

    __slots__ = ("device",)

    def __init__(self, handle: int, device: FakeDevice) -> None:
        super().__init__(handle)
        self.device = device


class ForeignArray:
    """An array of a fake device as another library would hold it: `FakeDevice.adopt` knows it."""

    __slots__ = ("array",)
    ostinato_device_kind = "fake"

    def __init__(self, array: DeviceArray) -> None:
        self.array = array


class FakeDevice:
    """A device that is none.

    Parameters
    ----------
    number
        It is called ``fake:<number>``.
    manual
        Whether its work is done by ``core.step()``, ``core.run()`` and `finish` alone.
    capacity
        How many bytes of memory it has.

    Attributes
    ----------
    core
        With the controls: see ``ostinato_fake_device.FakeDevice``.
    """

    kind = "fake"
    model = "fake"
    driver = "1"
    arrays = DeviceArray

    def __init__(self, number: int = 0, manual: bool = False, capacity: int | None = None) -> None:
        self.name = self.identity = f"fake:{number}"
        self.core = ostinato_fake_device.FakeDevice(manual)
        if capacity is not None:
            self.core.set_capacity(capacity)
        self._pinned: dict[int, tuple[int, int]] = {}  # by request
        self._requests = itertools.count()

    @property
    def pinned(self) -> list[tuple[int, int]]:
        """The ranges of host memory that are page-locked, each once per request."""
        return [*self._pinned.values()]

    def allocate(self, nbytes: int) -> Allocation:
        """Return new memory. `DeviceError`: there is not so much."""
        try:
            with translate_failures(self, f"{nbytes} bytes cannot be allocated: "):
                base = self.core.allocate(nbytes)
        except MemoryError as error:
            raise failure(self, f"{nbytes} bytes cannot be allocated: {error}", usable=True) from error
        return Allocation(self, base, nbytes, _Memory(self.core, base))

    def adopt(self, obj: object) -> DeviceArray | None:
        """Return the array of a `ForeignArray` of this device."""
        return obj.array if isinstance(obj, ForeignArray) and obj.array.device is self else None

    def stream(self, handle: int) -> FakeStream:
        """Return what a task's `Stream` parameter receives."""
        return FakeStream(handle, self)

    def in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function: calls may overlap."""
        return function

    def pin(self, low: int, high: int) -> object | None:
        """Note the range in `pinned` for as long as what is returned lives."""
        return _Pinned(self._pinned, next(self._requests), (low, high))

    def finish(self) -> None:
        """Wait for all work of the device; where that is done step by step, do it."""
        self.core.finish()

    def contents(self, array: DeviceArray) -> np.ndarray[Any, Any]:
        """Return the device's own memory that an array stands for, as work on the device sees it."""
        allocation = array.allocation
        raw = bytes_at(self.core.address(allocation.base), allocation.nbytes, allocation)
        return view_of(raw, array.offset, array.shape, array.dtype, array.strides)

    def __repr__(self) -> str:
        return f"<FakeDevice {self.name}>"


class _Memory:
    """Memory of a device, given back when nobody holds it."""

    __slots__ = ("_base", "_core")

    def __init__(self, core: ostinato_fake_device.FakeDevice, base: int) -> None:
        self._core = core
        self._base = base

    def __del__(self) -> None:
        self._core.release(self._base)


class _Pinned:
    __slots__ = ("_all", "_mine")

    def __init__(self, ranges: dict[int, tuple[int, int]], mine: int, bounds: tuple[int, int]) -> None:
        ranges[mine] = bounds
        self._all = ranges
        self._mine = mine

    def __del__(self) -> None:
        del self._all[self._mine]


def launch(stream: Stream, function: Callable[..., object], *arguments: object, delay: float = 0.0) -> None:
    """Enqueue a function on a stream of a fake device: a kernel in Python.

        Parameters
        ----------
        stream
            What a task's `Stream` parameter received.
        function
            Called by the device. What it raises is a failure of the device.
        *arguments
            What it is called with. Arrays of the device, and their proxies, reach it as ndarrays of its memory.
        delay
            How many seconds of the device it takes.

        Raises
        ------
        DeviceError
            It cannot be enqueued.

        Examples
        --------
        >>> import numpy as np
    import ostinato_fake_device
        >>> from support import fake_device as fake
        >>> from ostinato.devices.array import empty
        >>> with fake.install() as (device,):
        ...     array = empty(device, 3)
        ...     stream = device.stream(device.core.open())
        ...     fake.launch(stream, np.copyto, array, 7.0, delay=0.001)
        ...     device.finish()
        ...     print(array.get())
        [7. 7. 7.]
    """
    if not isinstance(stream, FakeStream):
        raise TypeError(f"stream must be a stream of a fake device, got {stream!r}")
    device = stream.device
    on_device = [_on_device(device, argument) for argument in arguments]
    name = getattr(function, "__name__", "function")
    with translate_failures(device):
        device.core.call(stream.handle, lambda: function(*on_device), delay, name)


@contextmanager
def install(
    count: int = 1, *, manual: bool = False, capacity: int | None = None, captures: bool = True
) -> Iterator[tuple[FakeDevice, ...]]:
    """Within this, machines have `count` fake devices, ``fake:0`` and so on, and no others.

    Parameters
    ----------
    count
        How many.
    manual, capacity
        As of `FakeDevice`.
    captures
        Whether they can capture work, and launch it as one.

    Examples
    --------
    >>> from ostinato.devices import device as discovery
    >>> from support import fake_device
    >>> with fake_device.install(count=2):
    ...     [device.name for device in discovery.usable()]
    ['fake:0', 'fake:1']
    """
    devices = tuple(FakeDevice(number, manual, capacity) for number in range(count))
    for device in devices:
        device.core.set_captures(captures)
    with discovery.using(devices):
        yield devices


def _on_device(device: FakeDevice, argument: object) -> object:
    if isinstance(argument, np.ndarray) and registry.allocation_under(argument) is not None:
        argument = registry.device_array(argument)
    if not isinstance(argument, DeviceArray):
        return argument
    if argument.device is not device:
        raise ValueError(f"{argument!r} lies in other memory than that of {device.name}")
    contents = device.contents(argument)
    contents.flags.writeable = argument.proxy.flags.writeable
    return contents
