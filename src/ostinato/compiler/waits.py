"""What each op must still wait for, lanes being in order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import Edges, IntArray

__all__ = ["Waits", "waits"]


class Waits(NamedTuple):
    """What ops wait for: op i for those from ``start[i]`` to ``start[i + 1]``, each of another lane."""

    start: npt.NDArray[np.int64]
    op: IntArray
    distance: IntArray
    """How many steps before."""
    published: npt.NDArray[np.bool_]
    """Ops that others wait for."""


def waits(edges: Edges, lane: IntArray, order: IntArray) -> Waits:
    """Return the waits that are left of the edges once those that follow from others, and from lane order, are gone.

    An op has at most one wait for each other lane. With these waits, every edge holds however fast the lanes go, in the
    first steps too, provided that ops of steps before the first count as done.
    """
    start, op, distance, published = _core.passes.waits(*edges, lane, order)
    return Waits(start, op, distance, published.view(np.bool_))
