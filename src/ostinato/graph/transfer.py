"""Copies and fills: what they may be given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.errors import GraphError
from ostinato.graph.arrays import Array, is_array
from ostinato.graph.body import Copy, Fill
from ostinato.graph.operand import READ, READ_WRITE, WRITE, Operand
from ostinato.graph.param import Param
from ostinato.graph.recorder import Recorder
from ostinato.graph.reduction import reduction_of
from ostinato.graph.ring import RingElement

__all__ = ["copy_body", "fill_body", "fill_value"]


def copy_body(
    recorder: Recorder, source: object, target: object, reduce: object, indices: object, scatter: object
) -> tuple[Copy, tuple[Operand, ...]]:
    """Return the body and the operands of a copy, having checked that it can be done."""
    names = ["src", "dst"]
    names += ["indices"] * (indices is not None) + ["scatter"] * (scatter is not None)

    def label(place: int) -> str:
        return f"{names[place]} of copy()"

    partial = reduce is not None or scatter is not None
    src = recorder.array_operand(source, READ, label, 0)
    dst = recorder.array_operand(target, READ_WRITE if partial else WRITE, label, 1)
    index = [
        recorder.array_operand(value, READ, label, names.index(name))
        for name, value in (("indices", indices), ("scatter", scatter))
        if value is not None
    ]
    _check_shapes(src, dst, *(index if indices is not None else [None, *index]))
    dtypes = src.arrays[0].dtype, dst.arrays[0].dtype
    if reduce is None:
        _check_dtypes(*dtypes)
    reduction = None if reduce is None else reduction_of(reduce, *dtypes)
    gather, spread = (index[0] if indices is not None else None), (index[-1] if scatter is not None else None)
    return Copy(src, dst, reduction, gather, spread), (src, dst, *index)


def fill_body(recorder: Recorder, target: object, value: Any) -> tuple[Fill | Copy, tuple[Operand, ...]]:
    """Return the body and the operands of a fill; from an array it is a copy, so that every step reads the array."""
    dst = recorder.array_operand(target, WRITE, _fill_label, 0)
    array = dst.arrays[0]
    if isinstance(value, Param):
        return Fill(dst, recorder.own_param(value, _fill_label, 1)), (dst,)
    if isinstance(value, RingElement) or is_array(value):
        src = recorder.array_operand(value, READ, _fill_label, 1)
        spread = _broadcast(src, array.shape)
        _check_dtypes(src.arrays[0].dtype, array.dtype)
        return Copy(spread, dst), (spread, dst)
    return Fill(dst, fill_value(value, array)), (dst,)


def fill_value(value: Any, array: Array) -> Array:
    """Return a value as an array that can be spread over `array`, having checked that it can."""
    if array.dtype.hasobject:  # what of a nested list is an element follows from the shape of the array
        whole = np.empty(array.shape, array.dtype)
        whole[...] = value
        return whole
    return _drop_leading(np.array(value, array.dtype), array.shape)


def _fill_label(place: int) -> str:
    return f"{('dst', 'value')[place]} of fill()"


def _check_shapes(src: Operand, dst: Operand, indices: Operand | None = None, scatter: Operand | None = None) -> None:
    from_shape, to_shape = src.arrays[0].shape, dst.arrays[0].shape
    if indices is None and scatter is None:
        if from_shape != to_shape:
            raise GraphError(f"copy() needs arrays of one shape, but src is {from_shape} and dst {to_shape}")
        return
    if not from_shape or not to_shape or from_shape[1:] != to_shape[1:]:
        raise GraphError(
            f"copy() with indices= or scatter= needs arrays that differ only in their first axis, "
            f"but src is {from_shape} and dst {to_shape}"
        )
    for name, operand in (("indices", indices), ("scatter", scatter)):
        given = None if operand is None else operand.arrays[0]
        if given is not None and (given.ndim != 1 or given.dtype.kind not in "iu"):
            raise GraphError(
                f"{name} of copy() must be an array of integers in one dimension, got {given.shape}, {given.dtype}"
            )
    moved = from_shape[0] if indices is None else indices.arrays[0].shape[0]
    places = to_shape[0] if scatter is None else scatter.arrays[0].shape[0]
    if moved != places:
        raise GraphError(
            f"copy() moves {moved} entries along the first axis to {places} places: the length of indices= is that of "
            "dst, the length of scatter= that of src, and given both they are equal"
        )


def _check_dtypes(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    if not np.can_cast(source, target, "same_kind"):
        raise TypeError(f"an array of {source} cannot be copied to one of {target}: numpy.copyto would refuse, too")


def _broadcast(operand: Operand, shape: tuple[int, ...]) -> Operand:
    views = tuple(np.broadcast_to(_drop_leading(view, shape), shape) for view in operand.arrays)
    if operand.ring is None:
        return Operand(operand.value, views[0], None, READ)
    return Operand(operand.value, None, RingElement(operand.ring.ring, operand.ring.offset, views), READ)


def _drop_leading(value: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Drop leading axes of length 1 beyond those of `shape`, as assignment does, and check that the rest broadcasts."""
    extra = max(value.ndim - len(shape), 0)
    fits = value.shape[:extra] == (1,) * extra and all(
        length in (1, wanted) for length, wanted in zip(reversed(value.shape[extra:]), reversed(shape), strict=False)
    )
    if not fits:
        raise GraphError(f"fill() cannot spread a value of shape {value.shape} over an array of shape {shape}")
    return value.reshape(value.shape[extra:])
