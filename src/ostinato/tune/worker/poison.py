"""Overwriting what a callable returned, so that it cannot pass by returning it again."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["poisoned"]

_DEEPEST = 4
_LONGEST = 1000  # a longer list holds numbers, not arrays


def poisoned(outputs: object, inputs: object) -> None:
    """Fill the NumPy arrays in `outputs` with NaN, or bytes 0xA5, except those that share memory with `inputs`."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:  # then there is no array either
        return
    kept = list(_arrays(numpy, inputs, _DEEPEST))
    for array in _arrays(numpy, outputs, _DEEPEST):
        if not array.flags.writeable or any(numpy.may_share_memory(array, other) for other in kept):
            continue
        memory = array.view(numpy.ndarray)  # units and masks have opinions on what is assigned to them
        if array.dtype.kind in "fc":
            memory[...] = numpy.nan
        elif array.dtype.kind == "U":
            memory[...] = "\ufffd" * (array.itemsize // 4)  # text that is none raises where it is looked at
        elif not array.dtype.hasobject:
            memory[...] = numpy.frombuffer(b"\xa5" * array.itemsize, array.dtype)[0]


def _arrays(numpy: Any, value: object, depth: int) -> Iterator[Any]:
    if isinstance(value, numpy.ndarray):
        yield value
    elif depth:
        inner: Any = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            inner = value
        elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
            inner = vars(value).values()
        for item in inner if len(inner) <= _LONGEST else ():
            yield from _arrays(numpy, item, depth - 1)
