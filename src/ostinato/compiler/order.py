"""In which order lanes run their ops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import COMMON, Edges, FloatArray, IntArray
from ostinato.compiler.machine_model import MachineModel
from ostinato.compiler.placement import SHORTEST, Placement, paid

__all__ = ["order"]


def order(
    edges: Edges,
    seconds: FloatArray,
    placement: Placement,
    priority: IntArray,
    gil_bound: npt.NDArray[np.bool_],
    model: MachineModel = COMMON,
) -> IntArray:
    """Return the ops in one order for the whole step that keeps all edges; a lane's order is its part of it.

    One order for all, since lanes that each choose their own can wait for each other forever. Among the ops of a lane
    that are ready, the one of the highest priority comes first; then those that keep the GIL where it is; then the one
    with the longest path ahead; then program order, which is also kept as a whole where nothing is gained.
    """
    return _core.passes.order(
        *edges,
        np.maximum(seconds, SHORTEST),
        placement.lane,
        placement.home,
        placement.pinned.view(np.uint8),
        priority,
        gil_bound.view(np.uint8),
        paid(model),
    )
