"""Schedule: the passes in turn, from a graph to lanes with their order and waits."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compile.check import check
from ostinato.compile.costs import Costs, estimate
from ostinato.compile.dependences import dependences, serial_steps, step_barrier
from ostinato.compile.edges import Edges, IntArray
from ostinato.compile.lower import NOTHING, PYTHON, kinds_of, periods_of
from ostinato.compile.order import order
from ostinato.compile.placement import Placement, place
from ostinato.compile.waits import Waits, waits
from ostinato.errors import GraphError
from ostinato.graph.body import PythonCall, Until

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

__all__ = ["Scheduled", "schedule"]


@dataclass(frozen=True)
class Scheduled:
    """A schedule for the core, and what led to it."""

    core: _core.Schedule
    ops: tuple[Op, ...]
    edges: Edges
    costs: Costs
    placement: Placement
    lane_ops: tuple[IntArray, ...]  # by lane, in order; an op of index len(ops) is the barrier between steps
    waits: Waits
    kinds: np.ndarray[Any, np.dtype[np.uint8]]
    gil_bound: np.ndarray[Any, np.dtype[np.bool_]]
    serial: bool  # each step begins when the one before has ended
    threads: int  # at most so many

    @property
    def slots(self) -> int:
        """How many operations the core has."""
        return len(self.kinds)


def schedule(
    graph: Graph, processors: int, threads: int | None = None, costs: Mapping[object, float] | None = None
) -> Scheduled:
    """Return the schedule of a graph for a machine of so many processors, on up to `threads` threads.

    Ops that are bound to a processor run there, even if that takes more threads.

    Raises
    ------
    GraphError
        The graph has a cycle, or an op is bound to a processor that there is not.
    """
    ops = graph.ops
    edges = dependences(graph)
    found = estimate(graph, costs)
    kinds = kinds_of(ops)
    periods, _ = periods_of(ops)
    serial = serial_steps(graph, edges) and len(ops) > 0
    ordering, seconds, bound = edges, found.seconds, _gil_bound(ops, kinds)
    thread_of = np.array([_thread_of(op, processors) for op in ops], np.int32)
    threads = max(processors if threads is None else threads, int(thread_of.max(initial=-1)) + 1)
    priority = np.array([op.priority for op in ops], np.int32)
    if serial:
        ordering = step_barrier(edges, len(ops))
        kinds = np.append(kinds, np.uint8(NOTHING))
        seconds = np.append(seconds, 0.0)
        bound = np.append(bound, np.False_)
        thread_of = np.append(thread_of, np.int32(-1))
        priority = np.append(priority, np.int32(0))
    placement = place(ordering, seconds, threads=threads, thread_of=thread_of, gil_bound=bound, varied=found.varied)
    in_order = order(ordering, seconds, placement, priority, bound)
    check(ordering, placement.lane, in_order)
    kept = waits(ordering, placement.lane, in_order)
    by_lane = np.argsort(placement.lane[in_order], kind="stable")
    lane_ops = in_order[by_lane]
    lane_begin = np.searchsorted(placement.lane[lane_ops], np.arange(len(placement.home) + 1)).astype(np.int64)
    until, every = next(((op.index, op.body.every) for op in ops if isinstance(op.body, Until)), (-1, 1))
    published = kept.published.astype(np.uint8)
    if until >= 0:
        published[until] = 1
    core = _core.Schedule.build(
        lane_begin=lane_begin,
        lane_ops=lane_ops,
        home=placement.home,
        pinned=placement.pinned.view(np.uint8),
        kind=kinds,
        wait_begin=kept.start,
        wait_op=kept.op,
        wait_distance=kept.distance,
        published=published,
        pred_begin=np.searchsorted(edges.dst, np.arange(len(kinds) + 1)).astype(np.int64),
        pred_op=edges.src,
        pred_distance=edges.distance,
        periods=np.array(periods, np.int32),
        until_op=until,
        until_every=every,
        largest_distance=max(ordering.longest, max(periods)),
    )
    lanes = tuple(lane_ops[begin:end] for begin, end in itertools.pairwise(lane_begin))
    return Scheduled(core, ops, edges, found, placement, lanes, kept, kinds, bound, serial, threads)


def _gil_bound(ops: tuple[Op, ...], kinds: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    bound = np.asarray(kinds == PYTHON, np.bool_)
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return np.zeros(len(ops), np.bool_)
    for index in np.flatnonzero(bound):
        body = ops[index].body
        bound[index] = not (isinstance(body, PythonCall) and body.releases_gil)
    return bound


def _thread_of(op: Op, processors: int) -> int:
    on = getattr(op.on, "name", op.on)
    if on is None or on == "cpu":
        return -1
    match = re.fullmatch(r"cpu:(\d+)", on) if isinstance(on, str) else None
    if match is None or int(match[1]) >= processors:
        raise GraphError(
            f"{op.name!r} at {op.call_site} is bound to {on!r}, but this machine has only "
            f"{', '.join(f'cpu:{i}' for i in range(processors))}"
        )
    return int(match[1])
