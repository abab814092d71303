"""Schedule: the passes in turn, from a graph to lanes with their order and waits."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compile.check import check
from ostinato.compile.costs import Costing, Costs, estimated
from ostinato.compile.dependences import dependences, serial_steps, step_barrier
from ostinato.compile.device_ops import uses_devices
from ostinato.compile.edges import Edges, IntArray
from ostinato.compile.flatten import flatten
from ostinato.compile.lanes import settle, split
from ostinato.compile.lower import (
    DEVICE,
    EXTERNAL,
    NOTHING,
    POSTCONDITION,
    PYTHON,
    kinds_of,
    needs_gil,
    periods_of,
)
from ostinato.compile.machine_model import MachineModel
from ostinato.compile.order import order
from ostinato.compile.ordering import ordered
from ostinato.compile.outside import waits_outside
from ostinato.compile.placement import COMMON, Placement, place
from ostinato.compile.streams import alone, host_lanes, laned, told_at_once
from ostinato.compile.waits import Waits, waits
from ostinato.errors import GraphError
from ostinato.graph.body import Acquire, Await, Postcondition, Precondition, Release, Until

if TYPE_CHECKING:
    from ostinato.compile.staging import Staged
    from ostinato.devices.device import Device
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op
    from ostinato.graph.param import Param

__all__ = ["Scheduled", "schedule"]


@dataclass(frozen=True)
class Scheduled:
    """A schedule for the core, and what led to it."""

    core: _core.Schedule
    ops: tuple[Op, ...]
    edges: Edges
    ordering: Edges  # with what else orders ops; without the barrier between steps
    costs: Costs
    model: MachineModel
    placement: Placement
    lane_ops: tuple[IntArray, ...]  # by lane, in order; an op of index len(ops) is the barrier between steps
    waits: Waits
    kinds: np.ndarray[Any, np.dtype[np.uint8]]
    gil_bound: np.ndarray[Any, np.dtype[np.bool_]]
    serial: bool  # each step begins when the one before has ended
    threads: int  # at most so many
    params: Mapping[str, Param]
    preconditions: tuple[str, ...]
    postconditions: tuple[str, ...]
    waits_outside: bool  # for more than its preconditions
    staged: Staged | None = None  # where devices are used

    @property
    def slots(self) -> int:
        """How many operations the core has."""
        return len(self.kinds)

    @property
    def recorded(self) -> tuple[Op, ...]:
        """The ops of the flat graph, on the arrays that they were recorded with."""
        return self.ops if self.staged is None else self.staged.recorded

    def anew(self, costs: Costs, processors: int, threads: int, model: MachineModel) -> Scheduled:
        """Return the schedule of the same ops for other costs, or another machine."""
        graph = self.ops, self.edges, self.ordering, self.serial, self.params, self.staged
        return _scheduled(*graph, costs, processors, threads, model)


def _no_devices() -> tuple[Device, ...]:
    return ()


def schedule(
    graph: Graph,
    processors: int,
    threads: int | None = None,
    costing: Costing = estimated,
    model: MachineModel = COMMON,
    devices: Callable[[], tuple[Device, ...]] = _no_devices,
) -> Scheduled:
    """Return the schedule of a graph for a machine of so many processors, on up to `threads` threads.

    Ops that are bound to a processor run there, even if that takes more threads. What ops take, and which variants of
    their tasks they run, is what `costing` says; what threads pay for working together, `model`. Which devices there
    are is asked of `devices` if the graph may use any.

    Raises
    ------
    GraphError
        The graph has a cycle, or an op is bound to a processor that there is not.
    """
    flat = flatten(graph)
    edges = dependences(flat)
    costed = costing(flat.ops)
    on_devices = False
    if costed.elsewhere is not None or uses_devices(costed.ops):
        from ostinato.compile.choice import chosen

        costed = chosen(costed, edges, devices(), processors)
        on_devices = uses_devices(costed.ops)
    ops, costs = costed.ops, costed.costs
    serial = serial_steps(flat, edges) and len(ops) > 0
    ordering = ordered(flat, edges)
    threads = processors if threads is None else threads
    params, found = dict(flat.params), None
    if on_devices:
        from ostinato.compile.staging import staged

        found = staged(ops, edges, ordering, serial, costs, devices(), processors)
        ops, edges, ordering, costs, serial = found.ops, found.edges, found.ordering, found.costs, found.serial
    return _scheduled(ops, edges, ordering, serial, params, found, costs, processors, threads, model)


def _scheduled(
    ops: tuple[Op, ...],
    edges: Edges,
    ordering: Edges,
    serial: bool,
    params: Mapping[str, Param],
    staged: Staged | None,
    costs: Costs,
    processors: int,
    threads: int,
    model: MachineModel,
) -> Scheduled:
    kinds = kinds_of(ops) if staged is None else staged.kinds
    periods, _ = periods_of(ops)
    barred = ordering
    seconds, bound = costs.seconds, _gil_bound(ops, kinds)
    on_cpu: Sequence[Op] = ops
    if staged is not None:
        on_cpu, seconds = staged.on_cpu, staged.seconds_on_threads(seconds)
    thread_of = np.full(len(ops), -1, np.int32)
    for op in on_cpu:
        thread_of[op.index] = _thread_of(op, processors)
    threads = max(threads, int(thread_of.max(initial=-1)) + 1)
    external = [ops[index] for index in np.flatnonzero((kinds >= EXTERNAL) & (kinds != DEVICE))]
    tells = kinds == POSTCONDITION
    priority = np.array([op.priority for op in ops], np.int32)
    priority[tells] = _MOST_URGENT
    outside, idle = np.zeros(len(ops), np.bool_), np.zeros(len(ops), np.bool_)
    for op in external:
        outside[op.index] = waits_outside(op.body)
        idle[op.index] = isinstance(op.body, Precondition | Await)
    if serial or not ops:  # a run of nothing has an end, too
        barred = step_barrier(ordering, len(ops))
        kinds = np.append(kinds, np.uint8(NOTHING))
        seconds = np.append(seconds, 0.0)
        bound = np.append(bound, np.False_)
        thread_of = np.append(thread_of, np.int32(-1))
        priority = np.append(priority, np.int32(0))
        outside, idle, tells = (np.append(each, np.False_) for each in (outside, idle, tells))
    placement = place(
        barred,
        seconds,
        threads=threads,
        thread_of=thread_of,
        gil_bound=bound,
        varied=costs.varied,
        known=costs.known,
        steady=costs.steady,
        model=model,
    )
    if staged is not None:
        streams = staged.streams.over(len(kinds))  # without the barrier between steps, if there is one
        placement = laned(ops, placement, streams)
    in_order = order(barred, seconds, placement, priority, bound, model=model)
    if staged is not None:
        in_order = told_at_once(ops, in_order)
    placement, in_order = settle(barred, placement, in_order, idle, tells)
    if staged is not None:
        placement = alone(streams, placement)
    placement = split(barred, placement, in_order, outside, idle)
    if staged is not None:
        placement = host_lanes(ops, barred, placement, in_order, streams)
    check(barred, placement.lane, in_order)
    kept = waits(barred, placement.lane, in_order)
    by_lane = np.argsort(placement.lane[in_order], kind="stable")
    lane_ops = in_order[by_lane]
    lane_begin = np.searchsorted(placement.lane[lane_ops], np.arange(len(placement.home) + 1)).astype(np.int64)
    until, every = next(((op.index, op.body.every) for op in ops if isinstance(op.body, Until)), (-1, 1))
    published = kept.published.astype(np.uint8)
    if until >= 0:
        published[until] = 1
    preconditions, postconditions = (
        tuple(op.body.name for op in external if isinstance(op.body, kind)) for kind in (Precondition, Postcondition)
    )
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
        largest_distance=max(barred.longest, max(periods)),
        n_posts=len(postconditions),
        n_holdings=len({id(op.body.reservation) for op in external if isinstance(op.body, Acquire | Release)}),
    )
    lanes = tuple(lane_ops[begin:end] for begin, end in itertools.pairwise(lane_begin))
    return Scheduled(
        core,
        ops,
        edges,
        ordering,
        costs,
        model,
        placement,
        lanes,
        kept,
        kinds,
        bound,
        serial,
        threads,
        params,
        preconditions,
        postconditions,
        bool(outside.any()),
        staged,
    )


_MOST_URGENT = 2**31 - 1  # whoever waits for a postcondition shall hear of it at once


def _gil_bound(ops: tuple[Op, ...], kinds: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    bound = np.zeros(len(ops), np.bool_)
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        for index in np.flatnonzero((kinds == PYTHON) | (kinds == EXTERNAL) | (kinds == DEVICE)):
            bound[index] = needs_gil(ops[index].body, int(kinds[index]))
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
