"""How the host does a copy or a fill: by a native task of the core where memory only moves, else by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ostinato.graph.arrays import READ, Operand
from ostinato.graph.body import Copy, Fill
from ostinato.graph.operations import Reduction


class HostTransfer(NamedTuple):
    """A call of the core's task `native` with `operands` and `scalars`, or of `function` with `args`."""

    native: str | None = None
    operands: tuple[Operand, ...] = ()
    scalars: tuple[int, ...] = ()
    function: Callable[..., None] | None = None
    args: tuple[object, ...] = ()


def host_transfer(body: Copy | Fill) -> HostTransfer:
    """Return how the host carries out a copy or a fill."""
    return _fill(body) if isinstance(body, Fill) else _copy(body)


def words(data: bytes) -> list[int]:
    """Return bytes as scalars of a native task."""
    found: list[int] = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), np.int64).tolist()
    return found


def _fill(body: Fill) -> HostTransfer:
    target = body.target
    value = body.value
    if not isinstance(value, np.ndarray):  # a parameter: whatever the assignment takes
        return HostTransfer(function=_assign, args=(target, value))
    if value.dtype.hasobject:  # the core moves bytes, and counts no references
        return HostTransfer(function=_assign, args=(target, value))
    if value.size == 1:
        return HostTransfer("fill", (target,), (value.itemsize, *words(value.tobytes())))
    spread = np.broadcast_to(value, target.arrays[0].shape)
    return HostTransfer("copy", (Operand(value, spread, None, READ), target), (value.itemsize,))


def _copy(body: Copy) -> HostTransfer:
    source, target = body.source, body.target
    if body.indices is not None or body.scatter is not None:
        indexed = [operand for operand in (body.indices, body.scatter) if operand is not None]
        move = partial(_move_indexed, body.indices is not None, body.scatter is not None, body.reduce)
        return HostTransfer(function=move, args=(source, target, *indexed))
    if body.reduce is not None:
        return HostTransfer(function=partial(_combine, body.reduce), args=(source, target))
    dtype = target.arrays[0].dtype
    moves = source.arrays[0].dtype == dtype and not dtype.hasobject
    moves = moves and not any(np.may_share_memory(a, b) for a in source.arrays for b in target.arrays)
    if moves:
        return HostTransfer("copy", (source, target), (source.arrays[0].itemsize,))
    return HostTransfer(function=_assign_array, args=(source, target))


def _assign(target: np.ndarray[Any, Any], value: object) -> None:
    target[...] = value


def _assign_array(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    # NumPy's own care for overlaps errs in one dimension, where strides differ: a[::2] = a[1:7].
    np.copyto(target, _apart(source, target))


def _combine(reduction: Reduction, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    reduction.combine(target, _apart(source, target))


def _apart(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what is moved as it is before anything is written."""
    return source.copy() if np.may_share_memory(source, target) else source


def _move_indexed(
    gathers: bool,
    scatters: bool,
    reduce: Reduction | None,
    source: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    *indices: np.ndarray[Any, Any],
) -> None:
    moved = source[indices[0]] if gathers else source
    if not scatters:
        if reduce is None:
            np.copyto(target, moved)
        else:
            reduce.combine(target, _apart(moved, target))
        return
    scattered = indices[-1]
    if reduce is None:
        target[scattered] = _apart(moved, target)
    else:
        reduce.scatter(target, scattered, _apart(moved, target))
