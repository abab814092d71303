"""The passes in turn: from a graph to an executable."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato import _core
from ostinato.compiler.costs import Costing, Costs, estimated
from ostinato.compiler.dependences import infer_dependences
from ostinato.compiler.device_ops import uses_devices
from ostinato.compiler.flatten import flatten
from ostinato.compiler.ir import Executable, Kind, Step, Target
from ostinato.compiler.lower.tables import periods_of
from ostinato.compiler.schedule.lanes import settle, split
from ostinato.compiler.schedule.operations import operations
from ostinato.compiler.schedule.place import check, order, place, waits
from ostinato.compiler.streams.assign_streams import alone, host_lanes, laned, told_at_once
from ostinato.graph.body import Acquire, Postcondition, Precondition, Release, Until

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph

__all__ = ["compile", "schedule_again"]


def compile(graph: Graph, target: Target, costing: Costing = estimated) -> Executable:
    """Return the executable of a graph for a machine.

    Ops that are bound to a processor run there, even if that takes more threads than `target` has. `costing` says what
    ops take, and which variants of their tasks they run.

    Raises
    ------
    GraphError
        The graph has a cycle, or an op is bound to a processor that there is not.
    """
    step = infer_dependences(flatten(graph))
    step = choose_variants(step, target, costing)
    if uses_devices(step.nodes):
        step = _use_devices(step, target)
    return _schedule(step, target)


def schedule_again(executable: Executable, costs: Costs, target: Target) -> Executable:
    """Return the executable of the same nodes for other costs, or another machine."""
    return _schedule(replace(executable.step, costs=costs), target)


def choose_variants(step: Step, target: Target, costing: Costing) -> Step:
    """Return the step with what its nodes cost, and with the variants that are fastest by that."""
    costed = costing(step.nodes)
    if costed.elsewhere is not None or uses_devices(costed.ops):
        from ostinato.compiler.variants import chosen

        costed = chosen(costed, step.edges, target.devices, target.processors)
    return replace(step, nodes=costed.ops, costs=costed.costs)


def _use_devices(step: Step, target: Target) -> Step:
    from ostinato.compiler.streams.staging import staged

    graph = step.nodes, step.edges, step.ordering, step.serial, step.costs
    found = staged(*graph, target.devices, target.processors)
    return replace(
        step,
        nodes=found.ops,
        edges=found.edges,
        ordering=found.ordering,
        costs=found.costs,
        serial=found.serial,
        before_devices=step,
        staged=found,
    )


def _schedule(step: Step, target: Target) -> Executable:
    step = replace(step, operations=operations(step, target.processors))
    assert step.operations is not None
    target = replace(target, threads=max(target.threads, int(step.operations.thread_of.max(initial=-1)) + 1))
    return _executable(_prune_waits(_place_and_order(step, target)), target)


def _place_and_order(step: Step, target: Target) -> Step:
    """Return the step with lanes for its operations, and one order for all of them."""
    found, costs, model = step.operations, step.costs, target.model
    assert found is not None
    placement = place(
        found.ordering,
        found.seconds,
        threads=target.threads,
        thread_of=found.thread_of,
        gil_bound=found.gil_bound,
        varied=costs.varied,
        known=costs.known,
        steady=costs.steady,
        model=model,
    )
    placement = laned(found.completions, placement, found.streams)
    in_order = order(found.ordering, found.seconds, placement, found.priority, found.gil_bound, model=model)
    in_order = told_at_once(found.completions, in_order)
    placement, in_order = settle(found.ordering, placement, in_order, found.idle, found.tells)
    placement = alone(found.streams, placement)
    placement = split(found.ordering, placement, in_order, found.outside, found.idle, found.serial)
    placement = host_lanes(found.completions, found.ordering, placement, in_order, found.streams)
    check(found.ordering, placement.lane, in_order)
    return replace(step, placement=placement, order=in_order)


def _prune_waits(step: Step) -> Step:
    """Return the step with what its operations must still wait for, lanes being in order."""
    assert step.operations is not None
    assert step.placement is not None
    assert step.order is not None
    return replace(step, waits=waits(step.operations.ordering, step.placement.lane, step.order))


def _executable(step: Step, target: Target) -> Executable:
    found, placement, in_order, kept = step.operations, step.placement, step.order, step.waits
    assert found is not None
    assert placement is not None
    assert in_order is not None
    assert kept is not None
    nodes, edges, kinds = step.nodes, step.edges, found.kinds
    lane_ops = in_order[np.argsort(placement.lane[in_order], kind="stable")]
    lane_begin = np.searchsorted(placement.lane[lane_ops], np.arange(len(placement.home) + 1)).astype(np.int64)
    until, every = next(((op.index, op.body.every) for op in nodes if isinstance(op.body, Until)), (-1, 1))
    published = kept.published.astype(np.uint8)
    if until >= 0:
        published[until] = 1
    external = [nodes[index].body for index in np.flatnonzero((kinds >= Kind.EXTERNAL) & (kinds != Kind.DEVICE))]
    preconditions, postconditions = (
        tuple(body.name for body in external if isinstance(body, kind)) for kind in (Precondition, Postcondition)
    )
    periods, _ = periods_of(nodes)
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
        largest_distance=max(found.ordering.longest, max(periods)),
        n_posts=len(postconditions),
        n_holdings=len({id(body.reservation) for body in external if isinstance(body, Acquire | Release)}),
    )
    lanes = tuple(lane_ops[begin:end] for begin, end in itertools.pairwise(lane_begin))
    outside = bool(found.outside.any())
    return Executable(
        step, target, core, placement, lanes, kept, kinds, found.gil_bound, preconditions, postconditions, outside
    )
