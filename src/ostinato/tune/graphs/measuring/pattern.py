"""What memory holds that must be overwritten, so that whoever does not, or reads it, gives himself away."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.graph.arrays import Array
from ostinato.runtime.memory import raw_bytes

__all__ = ["filled", "pattern_of"]

_BYTE = 0xA5
_NAN = {2: 0x7EA5, 4: 0x7FE5A5A5, 8: 0x7FF8A5A5A5A5A5A5}
"""NaNs by their size, which no arithmetic comes to by itself."""
_LOW = 6
"""Bytes of a larger number that are not of its exponent, wherever that is kept last."""


def pattern_of(dtype: np.dtype[Any]) -> Array:
    """Return an element that is hardly a result: NaN in floating-point numbers, since whatever reads one is one.

    Examples
    --------
    >>> import numpy as np
    >>> pattern_of(np.dtype(float)), hex(int(pattern_of(np.dtype(np.uint32))))
    (array(nan), '0xa5a5a5a5')
    """
    memory = np.full(dtype.itemsize, _BYTE, np.uint8)
    _fill(memory, 0, dtype)
    return np.ndarray((), dtype, memory)


def filled(array: Array) -> None:
    """Fill an array with the pattern, padding and all."""
    raw_bytes(array)[...] = raw_bytes(pattern_of(array.dtype))


def _fill(memory: Array, begin: int, dtype: np.dtype[Any]) -> None:
    if dtype.fields is not None:
        for field, place, *_ in dtype.fields.values():
            _fill(memory, begin + place, field)
    elif dtype.subdtype is not None:
        inner = dtype.subdtype[0]
        for place in range(0, dtype.itemsize, inner.itemsize or 1):
            _fill(memory, begin + place, inner)
    elif dtype.kind == "U":
        text = np.array("\ufffd" * (dtype.itemsize // 4), dtype)  # bits that are no text raise where they are looked at
        memory[begin : begin + dtype.itemsize] = raw_bytes(text)
    elif dtype.kind in "fc":
        size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        for place in range(begin, begin + dtype.itemsize, size):
            if size in _NAN:
                number = np.array(_NAN[size], np.dtype(f"u{size}").newbyteorder(dtype.byteorder))
            else:
                number = np.array(np.nan, np.longdouble)
                raw_bytes(number)[:_LOW] = _BYTE
            memory[place : place + size] = raw_bytes(number)
