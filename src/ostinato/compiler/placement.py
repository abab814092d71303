"""Which lane runs which op, and which thread serves which lane."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import COMMON, Edges, FloatArray, IntArray
from ostinato.compiler.machine_model import MachineModel

__all__ = ["Placement", "place"]

LONG = 1e-6
"""Seconds; where ops take longer on average, threads get several lanes each."""

SHORTEST = 1e-9
"""Seconds; nothing takes less."""


class Placement(NamedTuple):
    """Lanes of ops, and threads of lanes."""

    lane: IntArray
    """Of every op."""
    home: IntArray
    """The thread that serves each lane first."""
    pinned: npt.NDArray[np.bool_]
    """Lanes that no other thread may serve."""
    step_seconds: float
    """What a step takes, by the model that the placements were compared with."""


def place(
    edges: Edges,
    seconds: FloatArray,
    *,
    threads: int,
    thread_of: IntArray,
    gil_bound: npt.NDArray[np.bool_],
    varied: bool = False,
    known: bool = False,
    steady: bool = False,
    model: MachineModel = COMMON,
) -> Placement:
    """Return the best of some placements, by a model of a machine's threads and of the transfers between them.

    Parameters
    ----------
    edges
        The dependences.
    seconds
        The cost of every op.
    threads
        How many threads may be used; more are used only where it pays.
    thread_of
        The thread that an op is pinned to, or -1.
    gil_bound
        Ops that hold the GIL; they go on one lane. All false where there is no GIL.
    varied
        Whether costs differ so much that threads should get several lanes each, for idle threads to take up. They get
        them too where ops are long.
    known
        Whether costs are more than estimates; then less must be gained for another thread to be used.
    steady
        Whether ops take the same in every step; then several lanes a thread must gain something.
    model
        What threads pay for working together.
    """
    spread = varied or (len(seconds) > 0 and float(seconds.mean()) > LONG)
    lane, home, pinned, step_seconds = _core.passes.place(
        *edges,
        np.maximum(seconds, SHORTEST),
        threads,
        thread_of,
        gil_bound.view(np.uint8),
        spread,
        known,
        steady,
        paid(model),
    )
    return Placement(lane, home, pinned.view(np.bool_), step_seconds)


def paid(model: MachineModel) -> tuple[float, float, float, float, float]:
    """Return of a model what the passes' loops take."""
    return model.transfer, model.poll, model.switch, model.wake, model.notify
