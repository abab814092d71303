"""Calls outside a capture in which devices have a part: they run at once, and return when the device is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from ostinato.devices.array import DeviceArray
from ostinato.devices.discovery import reasons, usable
from ostinato.devices.registry import address_of, allocation_at, device_array
from ostinato.devices.transfers import wait_for
from ostinato.errors import DeviceError
from ostinato.graph.arrays import Array
from ostinato.graph.operand import READ, WRITE

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.devices.stream import Stream

__all__ = ["Elsewhere", "device_for", "stream_of"]

_Maker: TypeAlias = Callable[[Array, int], "Array | DeviceArray"]
"""Makes an array like another, at an offset in memory."""

_LINE = 64  # bytes; copies are as well aligned within a cache line as the originals

_free: WeakKeyDictionary[Device, list[int]] = WeakKeyDictionary()  # streams that no call is on


class Elsewhere:
    """Arrays as one memory has them while a call runs there.

    Those that lie in another memory are copied to this one, as far as the call reads them, and what it writes comes
    back with `write_back`. Copies overlap where the arrays do.

    Parameters
    ----------
    device
        Whose memory it is; None for the host's.
    arrays
        The arrays, those of devices by their shadows, and the modes in which the call uses them.

    Attributes
    ----------
    copies
        By array, the copy; None for those that lie there.
    """

    def __init__(self, device: Device | None, arrays: Sequence[tuple[Array, int]]) -> None:
        self._device = device
        self._arrays = arrays
        moved = [(array, _bounds(array)) for array, _ in arrays if _device_of(array) is not device]
        rooms: list[tuple[int, int]] = []
        for low, high in sorted(bounds for _, bounds in moved):
            if rooms and low < rooms[-1][1]:
                rooms[-1] = rooms[-1][0], max(high, rooms[-1][1])
            else:
                rooms.append((low, high))
        makers = [(low, high, self._room(low, high)) for low, high in rooms]
        self.copies: list[Array | DeviceArray | None] = []
        for array, mode in arrays:
            copy = None
            if _device_of(array) is not device:
                first, last = _bounds(array)
                low, make = next((low, make) for low, high, make in makers if low <= first <= last <= high)
                copy = make(array, address_of(array) - low)
                if mode & READ:
                    _assign(copy, array)
            self.copies.append(copy)

    def write_back(self) -> None:
        """Copy back what the call has written."""
        for (array, mode), copy in zip(self._arrays, self.copies, strict=True):
            if copy is not None and mode & WRITE:
                _assign(array, copy)

    def _room(self, low: int, high: int) -> _Maker:
        """Make memory for the bytes between two addresses."""
        if self._device is not None:
            allocation = self._device.allocate(high - low)
            return lambda like, offset: allocation.array(like.shape, like.dtype, offset, like.strides)
        room = np.empty(high - low + _LINE, np.uint8)
        shift = (low - address_of(room)) % _LINE
        return lambda like, offset: np.ndarray(like.shape, like.dtype, room, shift + offset, like.strides)


def device_for(task: str, values: Sequence[object], arrays: Sequence[tuple[Array, int]]) -> Device:
    """Return the device that a task with a stream runs on: that of the first array on one, else the first there is.

    What other libraries have begun there with arrays of theirs is done.
    """
    device = next(filter(None, (_device_of(array) for array, _ in arrays)), None)
    if device is not None:
        if any(_is_foreign(value, array) for value, (array, _) in zip(values, arrays, strict=True)):
            device.finish()
        return device
    found = usable()
    if not found:
        why = "; ".join(f"{kind}: {reason}" for kind, reason in reasons().items())
        raise DeviceError(
            f"{task}() works on the stream of a device, but there is no device that this process can use"
            + (f" ({why})" if why else "")
        )
    return found[0]


@contextmanager
def stream_of(device: Device, kept: object) -> Iterator[Stream]:
    """Within this, a stream that nobody else uses; at the end, all its work is done, and `kept` lives until then.

    Raises
    ------
    DeviceError
        The work failed, or could not be started.
    """
    free = _free.setdefault(device, [])
    try:
        handle = free.pop()
    except IndexError:
        try:
            handle = device.core.open()
        except RuntimeError as error:
            raise DeviceError(f"{device.name}: {error}") from error
    try:
        yield device.stream(handle)
    except BaseException:
        with suppress(DeviceError):  # what was started still uses the arrays
            wait_for(device, handle, kept)
        device.core.close(handle)
        raise
    try:
        wait_for(device, handle, kept)
    except DeviceError:
        device.core.close(handle)
        raise
    free.append(handle)


def _device_of(array: Array) -> Device | None:
    allocation = allocation_at(address_of(array))
    return None if allocation is None else allocation.device


def _is_foreign(value: object, array: Array) -> bool:
    """Whether a value, whose memory an array is, is an array of a device that another library made."""
    return not isinstance(value, DeviceArray) and _device_of(array) is not None


def _bounds(array: Array) -> tuple[int, int]:
    if not array.size:
        return address_of(array), address_of(array)
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high


def _assign(to: Array | DeviceArray, source: Array | DeviceArray) -> None:
    """Copy all elements, of whichever memory, to an array of the same shape and dtype."""
    to, source = _face(to), _face(source)
    values: Any = source.get() if isinstance(source, DeviceArray) else source
    if isinstance(to, DeviceArray):
        to.set(values)
    else:
        to[...] = values


def _face(array: Array | DeviceArray) -> Array | DeviceArray:
    """Return the array that a shadow stands for; any other as it is."""
    return array if isinstance(array, DeviceArray) or _device_of(array) is None else device_array(array)
