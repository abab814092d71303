"""The C function that Numba makes of a kernel for one combination of argument types.

It is the only file that knows Numba's insides: arrays of any strides are made from the descriptions in ``ost_call``,
without a copy, by code that is generated for each argument.
"""

from __future__ import annotations

import linecache
import logging
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ostinato.graph.arrays import Array

__all__ = ["ArrayType", "CompileError", "compile_entry"]

# Offsets and sizes, in bytes, of what ostinato.h declares.
_CALL_ARRAYS, _CALL_SCALARS = 0, 8
_ARRAY_DATA, _ARRAY_SHAPE, _ARRAY_STRIDES, _ARRAY_SIZE = 0, 16, 24, 32
_SCALAR_SIZE = 8

_log = logging.getLogger("ostinato")

_PLACE = re.compile(r'File "(.+)", line (\d+)')
_FRAMES = ("During: ", "File ", "  raised from ", "Failed in nopython mode", "<source missing", "def ", "    ", "@")
_MOST_LINES = 4


class CompileError(TypeError):
    """Numba cannot compile a kernel."""


class ArrayType(NamedTuple):
    """What code is compiled for: an array's dtype, dimensions and layout (``"C"``, ``"F"``, or ``"A"`` for any)."""

    dtype: np.dtype[Any]
    ndim: int
    layout: str
    aligned: bool

    @classmethod
    def of(cls, array: Array) -> ArrayType:
        """Return the type of an array."""
        flags = array.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return cls(array.dtype, array.ndim, layout, flags.aligned)


def compile_entry(
    function: Callable[..., Any], types: tuple[ArrayType | type, ...], readonly: tuple[bool, ...]
) -> tuple[int, object]:
    """Compile a function for argument types; return the address of the C function, and what keeps it alive.

    Raises
    ------
    TypeError
        If Numba cannot compile it.
    """
    numba = _numba()
    names: dict[str, Any] = {"kernel": numba.njit(function)}
    arguments = []
    arrays = scalars = 0
    for place, (kind, fixed) in enumerate(zip(types, readonly, strict=True)):
        if isinstance(kind, ArrayType):
            load = _array_loader(arrays, _numba_array(kind, fixed), kind.dtype.itemsize)
            arrays += 1
        else:
            load = _scalar_loader(scalars, numba.float64 if kind is float else numba.int64)
            scalars += 1
        names[f"load_{place}"] = load
        arguments.append(f"load_{place}(call)")
    source = (
        "def entry(call):\n"
        "    try:\n"
        f"        kernel({', '.join(arguments)})\n"
        "    except Exception:\n"
        "        return 1\n"
        "    return 0\n"
    )
    exec(source, names)
    try:
        compiled = numba.cfunc(numba.int32(numba.types.voidptr), nopython=True)(names["entry"])
    except numba.core.errors.NumbaError as error:
        _log.debug("Numba cannot compile kernel %r", function.__name__, exc_info=error)
        raise CompileError(_reason(function, str(error))) from None  # what Numba says takes pages
    return compiled.address, compiled


def _reason(function: Callable[..., Any], said: str) -> str:
    """Return in a few lines why Numba cannot compile a kernel."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in said.splitlines()]
    place = next((match for match in map(_PLACE.match, lines) if match and match[1] != "<string>"), None)
    source = linecache.getline(function.__code__.co_filename, int(place[2])).strip() if place else ""
    where = f" in line {place[2]} of {os.path.basename(place[1])}: {source}" if place else ""
    if "Cannot modify readonly array" in said:
        written = next(
            (name for name in re.findall(r"\w+", source) if name in function.__code__.co_varnames), "an array"
        )
        return (
            f"kernel {function.__name__!r} writes to {written!r}, which is declared ost.Read,{where}\n"
            "Declare the parameter ost.Write or ost.ReadWrite"
        )
    told = [line for line in lines if line.strip(" ^") and not line.startswith(_FRAMES)]
    return f"Numba cannot compile kernel {function.__name__!r}{where}\n" + "\n".join(told[:_MOST_LINES])


def _numba() -> Any:
    try:
        import numba
        import numba.core.errors
    except ImportError as error:
        raise ImportError("kernels are compiled by Numba, which is missing: pip install ostinato[numba]") from error
    return numba


def _numba_array(kind: ArrayType, readonly: bool) -> Any:
    from numba import types
    from numba.core.errors import NumbaError
    from numba.np.numpy_support import from_dtype

    try:
        element = from_dtype(kind.dtype)
    except (NotImplementedError, NumbaError) as error:
        raise TypeError(f"Numba has no arrays of {kind.dtype}") from error
    return types.Array(element, kind.ndim, kind.layout, readonly=readonly, aligned=kind.aligned)


def _scalar_loader(index: int, numba_type: Any) -> Any:
    """Return a function for compiled code that reads scalar `index` of an ``ost_call``."""
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, call: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            scalars = _load(builder, args[0], _CALL_SCALARS, args[0].type)
            return _load(builder, scalars, index * _SCALAR_SIZE, context.get_value_type(numba_type))

        return numba_type(call), generate

    return load


def _array_loader(index: int, numba_type: Any, itemsize: int) -> Any:
    """Return a function for compiled code that makes an array of array `index` of an ``ost_call``."""
    from numba.core import cgutils
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array, populate_array

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, call: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer, word = args[0].type, cgutils.intp_t
            element_pointer = context.get_data_type(numba_type.dtype).as_pointer()
            description = index * _ARRAY_SIZE
            arrays = _load(builder, args[0], _CALL_ARRAYS, pointer)
            shape = _load(builder, arrays, description + _ARRAY_SHAPE, pointer)
            strides = _load(builder, arrays, description + _ARRAY_STRIDES, pointer)
            array = make_array(numba_type)(context, builder)
            populate_array(
                array,
                data=_load(builder, arrays, description + _ARRAY_DATA, element_pointer),
                shape=[_load(builder, shape, 8 * axis, word) for axis in range(numba_type.ndim)],
                strides=[_load(builder, strides, 8 * axis, word) for axis in range(numba_type.ndim)],
                itemsize=itemsize,
                meminfo=None,
            )
            return array._getvalue()

        return numba_type(call), generate

    return load


def _load(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    """Read a value of an LLVM type, `offset` bytes behind a pointer."""
    from numba.core import cgutils

    place = builder.gep(builder.bitcast(base, cgutils.voidptr_t), [cgutils.intp_t(offset)])
    return builder.load(builder.bitcast(place, kind.as_pointer()))
