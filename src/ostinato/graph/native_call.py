"""A call of a native task that runs at once: the structures of ``ostinato.h``, for ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ostinato.graph.arrays import Array

__all__ = ["call_native"]


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("ndim", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class _Scalar(ctypes.Union):
    _fields_ = (("f64", ctypes.c_double), ("i64", ctypes.c_int64))


class _Call(ctypes.Structure):
    _fields_ = (
        ("arrays", ctypes.POINTER(_Array)),
        ("scalars", ctypes.POINTER(_Scalar)),
        ("n_arrays", ctypes.c_int32),
        ("n_scalars", ctypes.c_int32),
        ("step", ctypes.c_uint64),
        ("user", ctypes.c_void_p),
    )


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Call))  # such calls release the interpreter lock


def call_native(
    address: int, user: int, arrays: Sequence[Array], scalars: Sequence[float | int], step: int = 0
) -> int:
    """Call a native task and return its code."""
    described = (_Array * len(arrays))(*[_describe(array) for array in arrays])
    numbers = (_Scalar * len(scalars))(*[_Scalar(f64=x) if isinstance(x, float) else _Scalar(i64=x) for x in scalars])
    call = _Call(described, numbers, len(arrays), len(scalars), step, user)
    code: int = _FUNCTION(address)(ctypes.byref(call))
    return code


def _describe(array: Array) -> _Array:
    extents = ctypes.c_int64 * array.ndim
    data = array.__array_interface__["data"][0]
    return _Array(data, array.ndim, extents(*array.shape), extents(*array.strides))
