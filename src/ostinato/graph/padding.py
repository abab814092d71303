"""Which bytes of an array's elements count."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["used_bytes"]

_LONG = np.dtype(np.longdouble).itemsize
_EXTENDED = 10  # bytes of a number of 80 bits; the others are padding


def used_bytes(dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Return which bytes of an element hold its value, and are not padding.

    Examples
    --------
    >>> import numpy as np
    >>> used_bytes(np.dtype([("flag", "?"), ("count", "u2")], align=True)).tolist()
    [True, False, True, True]
    """
    used = np.zeros(dtype.itemsize, np.bool_)
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return np.tile(used_bytes(item), int(np.prod(shape)))
    if dtype.fields is not None:
        for item, offset, *_ in dtype.fields.values():
            used[offset : offset + item.itemsize] |= used_bytes(item)
        return used
    used[:] = True
    if dtype.char in "gG" and np.finfo(dtype).nmant == 63:
        used.reshape(-1, _LONG)[:, _EXTENDED:] = False
    return used
