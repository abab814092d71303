"""Lanes, the order of their operations, and what these must still wait for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import COMMON, Edges, FloatArray, IntArray, Placement, Waits
from ostinato.compiler.target import MachineModel

LONG = 1e-6  # Seconds; where ops take longer on average, threads get several lanes each.
SHORTEST = 1e-9  # Seconds; nothing takes less.


def find_placement(
    edges: Edges,
    seconds: FloatArray,
    *,
    threads: int,
    thread_of: IntArray,
    gil_bound: npt.NDArray[np.bool_],
    takes_gil: npt.NDArray[np.bool_],
    varied: bool = False,
    known: bool = False,
    steady: bool = False,
    model: MachineModel = COMMON,
) -> Placement:
    """Return the best of some placements, by a model of a machine's threads and of the transfers between them.

    Candidates are that of HEFT (Topcuoglu, Hariri, Wu 2002: the op with the longest path ahead goes where it ends
    first), the longest op where there is least to do, cuts of each level, and fewer threads; a local search follows.

    `threads`: how many may be used; more are used only where it pays.
    `thread_of`: the thread that an op is pinned to, or -1.
    `gil_bound`: ops that hold the GIL; they go on one lane. All false where there is no GIL.
    `takes_gil`: these, and those that take it for a while.
    `varied`: whether costs differ so much that threads should get several lanes each, for idle threads to take up. They
        get them too where ops are long.
    `known`: whether costs are more than estimates; then less must be gained for another thread to be used.
    `steady`: whether ops take the same in every step; then several lanes a thread must gain something.
    """
    spread = varied or (len(seconds) > 0 and float(seconds.mean()) > LONG)
    lane, affinity, pinned, step_seconds = _core.passes.place(
        edges,
        np.maximum(seconds, SHORTEST),
        np.maximum(seconds, SHORTEST) + model.hand_over * takes_gil,
        threads,
        thread_of,
        gil_bound.view(np.uint8),
        spread,
        known,
        steady,
        list_costs(model),
    )
    return Placement(lane, affinity, pinned.view(np.bool_), step_seconds)


def list_costs(model: MachineModel) -> tuple[float, float, float, float, float]:
    """Return of a model what the passes' loops take."""
    return model.transfer, model.poll, model.switch, model.wake, model.notify


def find_order(
    edges: Edges,
    seconds: FloatArray,
    placement: Placement,
    priority: IntArray,
    gil_bound: npt.NDArray[np.bool_],
    model: MachineModel = COMMON,
) -> IntArray:
    """Return the ops in one order for the whole step that keeps all edges; a lane's order is its part of it.

    There is one order for all: lanes that each chose their own could wait for each other forever. It is found by list
    scheduling by critical path. Among the ops of a lane that are ready, the one of the highest priority comes first;
    then those that keep the GIL where it is; then the one with the longest path ahead; then program order, which is
    also kept as a whole where nothing is gained.
    """
    return _core.passes.order(
        edges,
        np.maximum(seconds, SHORTEST),
        placement.lane,
        placement.affinity,
        placement.pinned.view(np.uint8),
        priority,
        gil_bound.view(np.uint8),
        list_costs(model),
    )


def find_waits(edges: Edges, lane: IntArray, order: IntArray) -> Waits:
    """Return the waits that are left of the edges once those that follow from others, and from lane order, are gone.

    This is a transitive reduction with vector clocks (Fidge 1988, Mattern 1989), which have an entry for each lane. An
    op has at most one wait for each other lane. With these waits, every edge holds however fast the lanes go, in the
    first steps too, provided that ops of steps before the first count as done.
    """
    start, op, distance, published = _core.passes.waits(edges, lane, order)
    return Waits(start, op, distance, published.view(np.bool_))


def check(edges: Edges, lane: IntArray, order: IntArray) -> None:
    """Make sure that a step can run: that no ops wait for each other by edges and lane order.

    Edges to later steps never stand in the way: a step that runs to its end lets the next one begin.
    """
    if not np.array_equal(np.sort(order), np.arange(len(lane))):
        raise AssertionError("the order of a step leaves out ops or has some twice; this is a fault of Ostinato's")
    stuck = _core.passes.stuck(edges, lane, order)
    if len(stuck):
        raise AssertionError(f"ops {stuck.tolist()} of this schedule would never run; this is a fault of Ostinato's")
