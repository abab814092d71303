"""Plans of copies and fills: arrays with strides become as few blocks as can be."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ostinato import _core
from ostinato.devices.device import check_here, failure, translate_failures
from ostinato.devices.registry import address_of, allocation_under
from ostinato.errors import DeviceError

if TYPE_CHECKING:
    from ostinato.devices.array import DeviceArray
    from ostinato.devices.device import Device

AnyArray: TypeAlias = "np.ndarray[Any, Any] | DeviceArray"

_LARGEST_PATTERN = 16
_MOST_WORK = 1000  # in looking for an element that two arrays share


class _Axis(NamedTuple):
    """A loop of a copy: how often, and how far each turn goes, in bytes."""

    size: int
    source: int
    target: int


def plan(source: AnyArray, target: AnyArray) -> _core.devices.Transfer:
    """Plan a copy between arrays of one shape and dtype, of which at least one lies on a device.

    Parameters
    ----------
    source, target
        Arrays of the host, of a device, or proxies of such. Any strides, but no element of `target` twice.

    Raises
    ------
    ValueError
        The arrays differ in shape or dtype, or overlap.
    """
    source, target = _memory(source), _memory(target)
    _check(source, target)
    rows, from_first, to_first = _blocks(source, target)
    return _core.devices.Transfer(_locate(source, from_first), _locate(target, to_first), rows)


def plan_together(pairs: Sequence[tuple[AnyArray, AnyArray]]) -> _core.devices.Transfer:
    """Plan several copies, of pairs of source and target, as one: all sources in one memory, and all targets.

    Arrays of the host count as one memory; those of devices are to be of one allocation.
    """
    sources = [_memory(source) for source, _ in pairs]
    targets = [_memory(target) for _, target in pairs]
    rows: list[list[int]] = []
    from_base, from_start, source_at = _base(sources)
    to_base, to_start, target_at = _base(targets)
    apart = from_base[2] != to_base[2]
    for source, target, from_at, to_at in zip(sources, targets, source_at, target_at, strict=True):
        _check(source, target, apart)
        blocks, from_first, to_first = _blocks(source, target)
        for block in blocks:
            block[3] += from_at + from_first - from_start
            block[6] += to_at + to_first - to_start
        rows += blocks
    return _core.devices.Transfer(from_base, to_base, rows)


def overlap(source: AnyArray, target: AnyArray) -> bool:
    """Whether some byte of one array is one of the other's; where that is hard to tell, whether it may be."""
    source, target = _memory(source), _memory(target)
    try:
        return np.shares_memory(source, target, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def plan_fill(target: AnyArray, value: Any) -> _core.devices.Pattern | None:
    """Plan a fill of an array with what ``target[...] = value`` would assign; None where no device can fill so.

    The pattern is the shortest one whose repetition makes an element: one byte for zeros of any dtype.
    """
    target = _memory(target)
    if target.dtype.hasobject or np.ndim(value) != 0:
        return None
    element = np.empty((), target.dtype)
    element[...] = value
    bytes_of = _shortest(element.tobytes())
    if len(bytes_of) > _LARGEST_PATTERN or len(bytes_of) & (len(bytes_of) - 1) or not bytes_of:
        return None
    rows, _, first = _blocks(np.broadcast_to(element, target.shape), target, fill=True)
    return _core.devices.Pattern(_locate(target, first), rows, bytes_of)


def move(device: Device, transfer: _core.devices.Transfer, *kept: object) -> None:
    """Carry a transfer out, and wait for it, on a stream of its own; `kept` lives until the device is done.

    Raises
    ------
    DeviceError
        It failed.
    """
    check_here(device)
    core = device.core
    with translate_failures(device):
        stream = core.open()
    try:
        try:
            with translate_failures(device):
                core.copy(stream, transfer)
        except DeviceError:
            finish(device, stream, transfer, *kept)  # a part of it may be under way
            raise
        wait_for(device, stream, transfer, *kept)
    finally:
        core.close(stream)


def wait_for(device: Device, stream: int, *kept: object) -> None:
    """Wait for all that is enqueued on a stream, without the GIL; `kept` lives until the device is done.

    Raises
    ------
    DeviceError
        Some of it failed.
    """
    core = device.core
    event = _core.devices.DeviceEvent()
    try:
        with translate_failures(device):
            core.record(stream, event)
    except DeviceError:
        finish(device, stream, *kept)
        raise
    ended = threading.Event()
    codes: list[int] = []

    def done(code: int, kept: object = (event, kept)) -> None:
        codes.append(code)
        ended.set()

    core.notify(event, done)
    ended.wait()
    if codes[0] != 0:
        raise failure(device, *core.diagnose(codes[0]))


def finish(device: Device, stream: int, *kept: object) -> None:
    """Wait until nothing is under way on a stream of which a call has failed; `kept` lives until then.

    Raises
    ------
    DeviceError
        The driver cannot tell. The device is lost, and `kept` lives as long as the process.
    """
    try:
        device.core.finish_stream(stream)
    except _core.devices.Failure as told:
        if told.usable:  # a device that does no more work writes nothing
            _under_way.append(kept)
            why = f"{told}; it may still be writing to arrays, and cannot be used any more by this process"
            raise failure(device, why, usable=False) from told


_under_way: list[object] = []


def _memory(array: AnyArray) -> np.ndarray[Any, Any]:
    return array if isinstance(array, np.ndarray) else array.proxy


def _shortest(element: bytes) -> bytes:
    size = len(element)
    while size and size % 2 == 0 and element[: size // 2] == element[size // 2 : size]:
        size //= 2
    if size > 1 and element[:size].count(element[0]) == size:
        size = 1
    return element[:size]


def _blocks(
    source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], fill: bool = False
) -> tuple[list[list[int]], int, int]:
    """Return the blocks, and how far from each array's first element they are counted."""
    if target.nbytes and target.flags.c_contiguous and (fill or source.flags.c_contiguous):
        return [[target.nbytes, 1, 1, 0, 0, 0, 0, 0, 0]], 0, 0
    axes, from_first, to_first = _axes(source, target)
    rows: list[list[int]] = []
    if target.nbytes:
        width = target.itemsize
        while axes and axes[-1].target == width and (fill or axes[-1].source == width):
            width *= axes.pop().size
        # The two longest loops are the device's; each turn of the others is a block.
        axes.sort(key=lambda axis: axis.size, reverse=True)
        row, plane = ([*axes[:2], _Axis(1, 0, 0), _Axis(1, 0, 0)])[:2]
        for turns in product(*(range(axis.size) for axis in axes[2:])):
            source_offset = sum(turn * axis.source for turn, axis in zip(turns, axes[2:], strict=True))
            target_offset = sum(turn * axis.target for turn, axis in zip(turns, axes[2:], strict=True))
            loops = (source_offset, row.source, plane.source, target_offset, row.target, plane.target)
            rows.append([width, row.size, plane.size, *loops])
    return rows, from_first, to_first


def _axes(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> tuple[list[_Axis], int, int]:
    """Return the loops that are left, outermost first, and how far from each array's first element they begin."""
    axes: list[_Axis] = []
    from_first = to_first = 0
    if target.nbytes == 0:
        return axes, 0, 0
    for axis in map(_Axis, target.shape, source.strides, target.strides):
        if axis.size <= 1:
            continue
        if axis.target == 0:
            raise ValueError("an array that is copied to has each of its elements once")
        if axis.target < 0:  # from its other end
            from_first += (axis.size - 1) * axis.source
            to_first += (axis.size - 1) * axis.target
            axis = _Axis(axis.size, -axis.source, -axis.target)
        axes.append(axis)
    axes.sort(key=lambda axis: axis.target, reverse=True)
    merged: list[_Axis] = []
    for axis in axes:
        if merged and merged[-1].source == axis.size * axis.source and merged[-1].target == axis.size * axis.target:
            merged[-1] = _Axis(merged[-1].size * axis.size, axis.source, axis.target)
        else:
            merged.append(axis)
    return merged, from_first, to_first


def _check(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], apart: bool = False) -> None:
    if source.shape != target.shape or source.dtype != target.dtype:
        raise ValueError(
            f"source and target must have one shape and dtype, "
            f"got {source.shape} {source.dtype} and {target.shape} {target.dtype}"
        )
    if not apart and overlap(source, target):
        raise ValueError("the source and the target of this copy overlap")


def _base(arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[tuple[int, int, bool], int, list[int]]:
    """Return what blocks of several arrays are counted from, the address that stands for it, and theirs."""
    addresses = [address_of(array) for array in arrays]
    first = addresses[0]
    allocation = allocation_under(arrays[0])
    if any(allocation_under(array) is not allocation for array in arrays[1:]):
        raise ValueError("the sources, and the targets, of copies that are joined are of one allocation each")
    if allocation is None:
        return (first, 0, False), first, addresses
    return (allocation.base, 0, True), allocation.address, addresses


def _locate(array: np.ndarray[Any, Any], first: int) -> tuple[int, int, bool]:
    allocation = allocation_under(array)
    if allocation is None:
        return (address_of(array), first, False)
    return (allocation.base, address_of(array) - allocation.address + first if array.size else 0, True)
