"""What arrays held when a recording began, to find statements that wrote to them before they were recorded.

From its first recorded call on, a `Guard` makes an array read-only. A statement before that would run once and be lost.
It is found by comparing, for arrays of some megabytes that are known when the recording begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np

from ostinato.graph.arrays import Array
from ostinato.graph.guard import Guard
from ostinato.graph.ring import Ring

__all__ = ["Earlier", "named_arrays"]

_BYTES = 4 << 20  # of all arrays together: a copy of them takes about a millisecond
_NAMES = 10_000  # looked at, among the locals and among the globals of the frame
_HAS_LOCALS = 1  # CO_OPTIMIZED: the code is that of a function
_UNSHARED = 3  # references to the dict of a frame's locals: the frame's, a variable's, an argument's


class Earlier:
    """The bytes of arrays as they were.

    Parameters
    ----------
    arrays
        Arrays, each after the name that messages call it by, if it has one.
    """

    __slots__ = ("_activity", "_held")

    def __init__(self, arrays: Iterable[tuple[str, Array]]) -> None:
        self._held: dict[int, tuple[str, Array, bytes]] = {}
        self._activity = _activity()
        if self._activity is None:  # runs write to arrays, as they may
            return
        left = _BYTES
        for name, array in arrays:
            if array.nbytes <= left and not array.dtype.hasobject and id(array) not in self._held:
                self._held[id(array)] = name, array, array.tobytes()
                left -= array.nbytes

    def changed(self, guard: Guard) -> str | None:
        """Return the name of a recorded array that holds something else now; None if none does, or a run may have."""
        for name, array, held in self._held.values():
            if guard.holds(array) and array.tobytes() != held:
                return (
                    (repr(name) if name else f"an array of shape {array.shape}")
                    if self._activity == _activity()
                    else None
                )
        return None


def named_arrays(frame: FrameType) -> Iterator[tuple[str, Array]]:
    """Yield the arrays, and those of rings, that variables of a frame name."""
    variables = _locals(frame)
    if frame.f_code.co_flags & _HAS_LOCALS:
        variables += islice(frame.f_globals.items(), _NAMES)
    for name, value in variables:
        if type(value) is np.ndarray:
            yield name, value
        elif type(value) is Ring:
            yield from ((name, each) for each in value.values if type(each) is np.ndarray)


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the local variables of a frame; of a module or a class body, those that it defines.

    Before Python 3.13 the frame of a function keeps the dict that it makes of them, and so keeps alive what is
    deleted later. So the dict is emptied, unless the function has got hold of it by `locals`.
    """
    variables = frame.f_locals
    found = list(islice(variables.items(), _NAMES))
    if frame.f_code.co_flags & _HAS_LOCALS and type(variables) is dict and sys.getrefcount(variables) == _UNSHARED:
        variables.clear()
    return found


def _activity() -> Any:
    """Return what differs if a program has run in between; None while one runs."""
    machines = sys.modules.get("ostinato.runtime.workers")
    return 0 if machines is None else machines.steps_run()
