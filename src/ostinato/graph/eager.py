"""Calls outside a capture in which devices have a part: they run at once, and return when the device is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from ostinato import _core
from ostinato.devices.array import DeviceArray
from ostinato.devices.device import check_here, reasons, translate_failures, usable
from ostinato.devices.registry import address_of, allocation_at, bytes_at, device_array, view_of
from ostinato.devices.transfers import wait_for
from ostinato.errors import DeviceError
from ostinato.graph.access import STREAM
from ostinato.graph.arrays import WRITE, Array, used_bytes
from ostinato.graph.containers import PLAIN
from ostinato.graph.context import recording

if TYPE_CHECKING:
    from ostinato.devices.device import Device, Stream

_core.prepare_calls(recording, np.ndarray, tuple(PLAIN))

KernelCalls = _core.KernelCalls
call_kernel = _core.call_kernel
call_native_task = _core.call_native_task
call_task = _core.call_task


_Maker: TypeAlias = Callable[[Array, int], "Array | DeviceArray"]
"""Makes an array like another, at an offset in memory."""

_LINE = 64  # bytes; copies are as well aligned within a cache line as the originals

_bound: ContextVar[Device | None] = ContextVar("the device that calls are bound to", default=None)
_noted: ContextVar[list[Array] | None] = ContextVar("arrays whose copies were written against the word", default=None)
_free: WeakKeyDictionary[Device, list[int]] = WeakKeyDictionary()  # streams that no call is on


class Use(NamedTuple):
    """An array among the arguments of a call."""

    value: object
    """What was passed."""
    array: Array
    """Its memory, that of an array of a device as its proxy."""
    mode: int


def call_python(task: str, function: Callable[..., Any], args: Sequence[object], keywords: tuple[str, ...]) -> Any:
    """Call a Python function, and return what it returns once all that it started is done.

    `args` are the positional, then the keyword values; `keywords` names the latter. A `Use` among them stands for an
    array, and `STREAM` for the stream. With a stream, arrays are passed as its device has them, else as the host has
    them. Raises `DeviceError` if what was started failed, or there is no device.
    """
    passed = list(args)
    uses = [(index, value) for index, value in enumerate(args) if isinstance(value, Use)]
    device = _device_for(task, [use for _, use in uses]) if _takes_stream(args) else None
    there = _Elsewhere(device, [use for _, use in uses])
    for (index, use), copy in zip(uses, there.copies, strict=True):
        if isinstance(copy, np.ndarray):
            copy.flags.writeable = bool(use.mode & WRITE)
        passed[index] = use.value if copy is None else copy

    def call(body: Callable[..., Any], stream: object) -> Any:
        values = [stream if value is STREAM else value for value in passed]
        count = len(values) - len(keywords)
        return body(*values[:count], **dict(zip(keywords, values[count:], strict=True)))

    if device is None:
        result = call(function, None)
    else:
        with _stream_of(device, (args, there)) as stream:
            result = call(device.in_turn(function), stream)
    there.write_back()
    return result


def call_c(task: str, address: int, user: int, args: Sequence[object], step: int = 0) -> int:
    """Call a C function, as `call_python` does, and return its code; what it wrote comes back if that is 0.

    Among `args`, all but arrays and the stream are numbers.
    """
    uses = [value for value in args if isinstance(value, Use)]
    device = _device_for(task, uses) if _takes_stream(args) else None
    there = _Elsewhere(device, uses)
    arrays = [_for_c(use.array if copy is None else copy) for use, copy in zip(uses, there.copies, strict=True)]
    if device is None:
        scalars: list[Any] = [value for value in args if not isinstance(value, Use)]
        code = _core.call_native(address, user, arrays, scalars, step)
    else:
        with _stream_of(device, (args, there)) as stream:
            scalars = [stream.handle if value is STREAM else value for value in args if not isinstance(value, Use)]
            code = _core.call_native(address, user, arrays, scalars, step)
    if code == 0:
        there.write_back()
    return code


@contextmanager
def bind_to(device: Device) -> Iterator[None]:
    """Within this, calls that take a stream run on a device."""
    token = _bound.set(device)
    try:
        yield
    finally:
        _bound.reset(token)


@contextmanager
def note_writes() -> Iterator[list[Array]]:
    """Within this, calls look whether they wrote to copies of arrays that they were only to read; list these."""
    found: list[Array] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def _takes_stream(args: Sequence[object]) -> bool:
    return any(value is STREAM for value in args)  # arrays have an == of their own


def _device_for(task: str, uses: Sequence[Use]) -> Device:
    """Return the device that a task with a stream runs on: that of the first array on one, else the first there is.

    A call that is bound to one runs there.

    What other libraries have begun there with arrays of theirs is done.
    """
    device = _bound.get() or next(filter(None, (_device_of(use.array) for use in uses)), None)
    if device is not None:
        check_here(device)
        if any(not isinstance(use.value, DeviceArray) and _device_of(use.array) is not None for use in uses):
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


class _Elsewhere:
    """Arrays as one memory has them while a call runs there: that of a device, or for None that of the host.

    Those that lie in another memory are copied to this one, also where the call is to overwrite them: what it leaves
    out stays as it was. What it writes comes back with `write_back`. Copies overlap where the arrays do. By array,
    `copies` has the copy, or None for those that lie there.
    """

    def __init__(self, device: Device | None, arrays: Sequence[Use]) -> None:
        self._device = device
        self._arrays = arrays
        rooms: list[tuple[int, int]] = []
        for low, high in sorted(_bounds(use.array) for use in arrays if _device_of(use.array) is not device):
            if rooms and low < rooms[-1][1]:
                rooms[-1] = rooms[-1][0], max(high, rooms[-1][1])
            else:
                rooms.append((low, high))
        makers = [(low, high, self._room(low, high)) for low, high in rooms]
        self.copies: list[Array | DeviceArray | None] = []
        for _, array, _ in arrays:
            copy = None
            if _device_of(array) is not device:
                first, last = _bounds(array)
                low, make = next((low, make) for low, high, make in makers if low <= first <= last <= high)
                copy = make(array, address_of(array) - low)
                _assign(copy, array)
            self.copies.append(copy)

    def write_back(self) -> None:
        """Copy back what the call has written."""
        for (_, array, mode), copy in zip(self._arrays, self.copies, strict=True):
            if copy is not None and mode & WRITE:
                _assign(array, copy)
        noted = _noted.get()
        if noted is None:
            return
        written = [array for _, array, mode in self._arrays if mode & WRITE]
        for (_, array, mode), copy in zip(self._arrays, self.copies, strict=True):
            if copy is None or mode & WRITE or any(np.may_share_memory(array, other) for other in written):
                continue
            if not _same_bytes(_contents(array), _contents(copy)):
                noted.append(array)

    def _room(self, low: int, high: int) -> _Maker:
        """Make memory for the bytes between two addresses."""
        if self._device is not None:
            allocation = self._device.allocate(high - low)
            return lambda like, offset: allocation.array(like.shape, like.dtype, offset, like.strides)
        room = np.empty(high - low + _LINE, np.uint8)
        shift = (low - address_of(room)) % _LINE
        return lambda like, offset: np.ndarray(like.shape, like.dtype, room, shift + offset, like.strides)


@contextmanager
def _stream_of(device: Device, kept: object) -> Iterator[Stream]:
    """Within this, a stream that nobody else uses; at the end, all its work is done, and `kept` lives until then.

    Raises `DeviceError` if the work failed, or could not be started.
    """
    free = _free.setdefault(device, [])
    try:
        handle = free.pop()
    except IndexError:
        with translate_failures(device):
            handle = device.core.open()
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


def _contents(array: Array | DeviceArray) -> Array:
    if isinstance(array, DeviceArray):
        return array.get()
    return array if _device_of(array) is None else device_array(array).get()


def _same_bytes(one: Array, other: Array) -> bool:
    if not one.nbytes:
        return True
    used = used_bytes(one.dtype)
    first, second = (
        np.ascontiguousarray(each).reshape(-1).view(np.uint8).reshape(-1, one.itemsize) for each in (one, other)
    )
    return np.array_equal(first[:, used], second[:, used])


def _device_of(array: Array) -> Device | None:
    allocation = allocation_at(address_of(array))
    return None if allocation is None else allocation.device


def _for_c(array: Array | DeviceArray) -> Array:
    """Return an array as C code is told of it: where, and how large."""
    face = _array_behind(array)
    if not isinstance(face, DeviceArray):
        return face
    if face.pointer == address_of(face.proxy):
        return face.proxy
    raw = bytes_at(face.pointer, face.allocation.nbytes, face.allocation)
    return view_of(raw, 0, face.shape, face.dtype, face.strides)


def _bounds(array: Array) -> tuple[int, int]:
    if not array.size:
        return address_of(array), address_of(array)
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high


def _assign(to: Array | DeviceArray, source: Array | DeviceArray) -> None:
    """Copy all elements, of whichever memory, to an array of the same shape and dtype."""
    to, source = _array_behind(to), _array_behind(source)
    values: Any = source.get() if isinstance(source, DeviceArray) else source
    if isinstance(to, DeviceArray):
        to.set(values)
    else:
        to[...] = values


def _array_behind(array: Array | DeviceArray) -> Array | DeviceArray:
    """Return the array that a proxy stands for; any other as it is."""
    return array if isinstance(array, DeviceArray) or _device_of(array) is None else device_array(array)
