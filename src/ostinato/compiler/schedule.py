"""Schedule: the passes in turn, from a graph to lanes with their order and waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compiler.check import check
from ostinato.compiler.costs import Costing, Costs, estimated
from ostinato.compiler.dependences import dependences, serial_steps
from ostinato.compiler.device_ops import uses_devices
from ostinato.compiler.edges import Edges, IntArray
from ostinato.compiler.flatten import flatten
from ostinato.compiler.lanes import settle, split
from ostinato.compiler.lower import DEVICE, EXTERNAL, periods_of
from ostinato.compiler.machine_model import MachineModel
from ostinato.compiler.operations import Operations, operations
from ostinato.compiler.order import order
from ostinato.compiler.ordering import ordered
from ostinato.compiler.placement import COMMON, Placement, place
from ostinato.compiler.streams.assign_streams import alone, host_lanes, laned, told_at_once
from ostinato.compiler.waits import Waits, waits
from ostinato.graph.body import Acquire, Postcondition, Precondition, Release, Until

if TYPE_CHECKING:
    from ostinato.compiler.streams.staging import Staged
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
    waits_outside: bool  # whether any op does
    staged: Staged | None = None  # where devices are used

    @property
    def slots(self) -> int:
        """How many operations the core has."""
        return len(self.kinds)

    @property
    def recorded(self) -> tuple[Op, ...]:
        """The ops of the flat graph, on the arrays that they were recorded with."""
        return self.ops if self.staged is None else self.staged.recorded

    @property
    def recorded_edges(self) -> Edges:
        """Their dependences."""
        return self.edges if self.staged is None else self.staged.recorded_edges

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
        from ostinato.compiler.choice import chosen

        costed = chosen(costed, edges, devices(), processors)
        on_devices = uses_devices(costed.ops)
    ops, costs = costed.ops, costed.costs
    serial = serial_steps(flat, edges) and len(ops) > 0
    ordering = ordered(flat, edges)
    threads = processors if threads is None else threads
    params, found = dict(flat.params), None
    if on_devices:
        from ostinato.compiler.streams.staging import staged

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
    step = operations(ops, ordering, serial, costs.seconds, staged, processors)
    threads = max(threads, int(step.thread_of.max(initial=-1)) + 1)
    placement, in_order = _on_lanes(step, costs, threads, model)
    kept = waits(step.ordering, placement.lane, in_order)
    by_lane = np.argsort(placement.lane[in_order], kind="stable")
    lane_ops = in_order[by_lane]
    lane_begin = np.searchsorted(placement.lane[lane_ops], np.arange(len(placement.home) + 1)).astype(np.int64)
    until, every = next(((op.index, op.body.every) for op in ops if isinstance(op.body, Until)), (-1, 1))
    published = kept.published.astype(np.uint8)
    if until >= 0:
        published[until] = 1
    external = [ops[index].body for index in np.flatnonzero((step.kinds >= EXTERNAL) & (step.kinds != DEVICE))]
    preconditions, postconditions = (
        tuple(body.name for body in external if isinstance(body, kind)) for kind in (Precondition, Postcondition)
    )
    periods, _ = periods_of(ops)
    core = _core.Schedule.build(
        lane_begin=lane_begin,
        lane_ops=lane_ops,
        home=placement.home,
        pinned=placement.pinned.view(np.uint8),
        kind=step.kinds,
        wait_begin=kept.start,
        wait_op=kept.op,
        wait_distance=kept.distance,
        published=published,
        pred_begin=np.searchsorted(edges.dst, np.arange(len(step.kinds) + 1)).astype(np.int64),
        pred_op=edges.src,
        pred_distance=edges.distance,
        periods=np.array(periods, np.int32),
        until_op=until,
        until_every=every,
        largest_distance=max(step.ordering.longest, max(periods)),
        n_posts=len(postconditions),
        n_holdings=len({id(body.reservation) for body in external if isinstance(body, Acquire | Release)}),
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
        step.kinds,
        step.gil_bound,
        serial,
        threads,
        params,
        preconditions,
        postconditions,
        bool(step.outside.any()),
        staged,
    )


def _on_lanes(step: Operations, costs: Costs, threads: int, model: MachineModel) -> tuple[Placement, IntArray]:
    """Return lanes for the operations of a step, and one order for all of them."""
    placement = place(
        step.ordering,
        step.seconds,
        threads=threads,
        thread_of=step.thread_of,
        gil_bound=step.gil_bound,
        varied=costs.varied,
        known=costs.known,
        steady=costs.steady,
        model=model,
    )
    placement = laned(step.completions, placement, step.streams)
    in_order = order(step.ordering, step.seconds, placement, step.priority, step.gil_bound, model=model)
    in_order = told_at_once(step.completions, in_order)
    placement, in_order = settle(step.ordering, placement, in_order, step.idle, step.tells)
    placement = alone(step.streams, placement)
    placement = split(step.ordering, placement, in_order, step.outside, step.idle, step.serial)
    placement = host_lanes(step.completions, step.ordering, placement, in_order, step.streams)
    check(step.ordering, placement.lane, in_order)
    return placement, in_order
