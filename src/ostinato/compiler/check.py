"""A last look at a schedule before it is run."""

from __future__ import annotations

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import Edges, IntArray

__all__ = ["check"]


def check(edges: Edges, lane: IntArray, order: IntArray) -> None:
    """Make sure that a step can run: that no ops wait for each other by edges and lane order.

    Edges to later steps never stand in the way: a step that runs to its end lets the next one begin.
    """
    if not np.array_equal(np.sort(order), np.arange(len(lane))):
        raise AssertionError("the order of a step leaves out ops or has some twice; this is a fault of Ostinato's")
    stuck = _core.passes.stuck(*edges, lane, order)
    if len(stuck):
        raise AssertionError(f"ops {stuck.tolist()} of this schedule would never run; this is a fault of Ostinato's")
