"""The passes in turn: from a graph to an executable."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato import _core
from ostinato._core import Kind
from ostinato.compiler.costs import Costing, Costs, cost_by_estimate
from ostinato.compiler.dependences import infer_dependences
from ostinato.compiler.dump import Stages
from ostinato.compiler.flatten import flatten
from ostinato.compiler.ir import Edges, Executable, Placement, Step, Target, edges_of
from ostinato.compiler.lower.tables import periods_of
from ostinato.compiler.schedule.lanes import move_next_to_purpose, split
from ostinato.compiler.schedule.operations import list_operations
from ostinato.compiler.schedule.place import check, find_order, find_placement, find_waits
from ostinato.compiler.summary import uses_devices
from ostinato.graph.body import Acquire, Postcondition, Precondition, Release, Until
from ostinato.graph.messages import Message

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph


def compile(graph: Graph, target: Target, costing: Costing = cost_by_estimate) -> Executable:
    """Return the executable of a graph for a machine.

    Ops that are bound to a processor run there, even if that takes more threads than `target` has. `costing` says what
    ops take, and which variants of their tasks they run.

    Raises GraphError if the graph has a cycle, or an op is bound to a processor that there is not.
    """
    stages = Stages()
    flat = stages.run(flatten, graph)
    if graph.group is not None:
        from ostinato.compiler.ranks.distribute import distribute  # here: most graphs have no ranks, and no devices

        flat = stages.run(distribute, flat, graph.group)
    step = stages.run(infer_dependences, flat)
    step = stages.run(choose_variants, step, target, costing)
    if uses_devices(step.summary):
        from ostinato.compiler.assign_devices import assign_devices
        from ostinato.compiler.coherence.insert_copies import insert_copies
        from ostinato.compiler.streams.assign_streams import assign_streams, chain_steps
        from ostinato.compiler.streams.insert_fences import hold_device_work, insert_fences

        before = step
        for use_device in (assign_devices, insert_copies, chain_steps, hold_device_work, assign_streams, insert_fences):
            step = stages.run(use_device, step, target)
        step = replace(step, before_devices=before)
    return _schedule(step, target, stages)


def schedule_again(executable: Executable, costs: Costs, target: Target) -> Executable:
    """Return the executable of the same nodes for other costs, or another machine."""
    return _schedule(replace(executable.step, costs=costs), target, Stages())


def schedule_unrolled(executable: Executable, times: int, cache_bytes: int) -> tuple[Executable, float]:
    """Return `times` steps of an executable as one, in an order for caches; and what share of bytes that still fetches.

    Ops stay on their threads, each of which has one lane.
    """
    from ostinato.compiler.schedule.caches import count_fetched_bytes, find_footprints, find_order_for_caches
    from ostinato.compiler.unroll import find_ring_period, unroll

    step, target = executable.step, executable.target
    whole = list_operations(unroll(step, times), target)
    threads, lane = np.unique(step.placement.affinity[step.placement.lane], return_inverse=True)
    placement = Placement(
        np.tile(lane.reshape(-1), times).astype(np.int32), threads.astype(np.int32), np.zeros(len(threads), np.bool_)
    )
    footprints = find_footprints(whole.nodes)
    found = whole.operations
    in_order = find_order_for_caches(
        found.ordering, found.seconds, placement, footprints, cache_bytes, model=target.model
    )
    n = len(step.nodes)
    plain = (step.order + n * np.arange(times)[:, None]).reshape(-1).astype(np.int32)
    fetched, before = (count_fetched_bytes(placement, each, footprints, cache_bytes) for each in (in_order, plain))
    whole = prune_waits(replace(whole, placement=placement, order=in_order))
    check(found.ordering, placement.lane, in_order)
    made = replace(build(whole, target, times), ring_period=find_ring_period(step))
    return made, fetched / before if before else 1.0


def _schedule(step: Step, target: Target, stages: Stages) -> Executable:
    begin = time.perf_counter()
    step = stages.run(list_operations, step, target)
    step = stages.run(place, step, target)
    step = stages.run(order, step, target)
    step = stages.run(split_lanes, step)
    step = stages.run(prune_waits, step)
    executable = stages.run(build, step, target)
    return replace(executable, schedule_seconds=time.perf_counter() - begin)


def choose_variants(step: Step, target: Target, costing: Costing) -> Step:
    """Return the step with what its nodes cost, and with the variants that are fastest by that."""
    costed = costing(step.summary)
    step = replace(step, nodes=costed.ops, costs=costed.costs)
    if costed.device_costs is not None or uses_devices(step.summary):
        from ostinato.compiler.variants import choose_device_variants

        costed = choose_device_variants(costed, step.edges, target.devices, target.processors)
        step = replace(step, nodes=costed.ops, costs=costed.costs)
    return step


def place(step: Step, target: Target) -> Step:
    """Return the step with lanes for its operations, and threads for its lanes."""
    found, costs = step.operations, step.costs
    placement = find_placement(
        found.ordering,
        found.seconds,
        threads=_threads(step, target),
        thread_of=found.thread_of,
        gil_bound=found.gil_bound,
        takes_gil=found.takes_gil,
        varied=costs.varied,
        known=costs.known,
        steady=costs.steady,
        model=target.model,
    )
    if step.uses_devices:
        from ostinato.compiler.streams.assign_streams import add_stream_lanes

        placement = add_stream_lanes(placement, step.streams.over(len(found.kinds)))
    return replace(step, placement=placement)


def order(step: Step, target: Target) -> Step:
    """Return the step with one order for all operations; what only waits or tells is next to what that is for."""
    found = step.operations
    in_order = find_order(
        _keeping_messages_in_order(step), found.seconds, step.placement, found.priority, found.gil_bound, target.model
    )
    if step.uses_devices:
        from ostinato.compiler.streams.assign_streams import order_fences

        in_order = order_fences(in_order, step.streams)
    placement, in_order = move_next_to_purpose(found.ordering, step.placement, in_order, found.idle, found.tells)
    return replace(step, placement=placement, order=in_order)


def _keeping_messages_in_order(step: Step) -> Edges:
    """Return what orders operations, and edges from each message to the next in program order.

    Messages are in one order on all ranks, so a lane that waits for one has begun all that other ranks need before they
    can send it. The edges only choose the order of lanes: no message waits for the one before it.
    """
    ordering, nodes = step.operations.ordering, step.nodes
    messages = [index for index in step.summary.others.tolist() if isinstance(nodes[index].body, Message)]
    if len(messages) < 2:
        return ordering
    pairs = np.array(list(itertools.pairwise(messages)), np.int32).T
    columns = zip(ordering, (*pairs, np.zeros(pairs.shape[1], np.int32)), strict=True)
    return edges_of(len(step.operations.kinds), *map(np.concatenate, columns))


def split_lanes(step: Step) -> Step:
    """Return the step with lanes split where their order would have operations wait for what they do not need."""
    found, placement, in_order = step.operations, step.placement, step.order
    streams = step.streams.over(len(found.kinds))
    if step.uses_devices:
        from ostinato.compiler.streams.assign_streams import isolate_streams, split_host_lanes

        placement = isolate_streams(placement, streams)
    placement = split(found.ordering, placement, in_order, found.outside, found.idle, found.serial)
    if step.uses_devices:
        placement = split_host_lanes(found.ordering, placement, in_order, streams)
    check(found.ordering, placement.lane, in_order)
    return replace(step, placement=placement)


def prune_waits(step: Step) -> Step:
    """Return the step with what its operations must still wait for, lanes being in order."""
    return replace(step, waits=find_waits(step.operations.ordering, step.placement.lane, step.order))


def build(step: Step, target: Target, unrolled: int = 1) -> Executable:
    """Return the executable of a step, or of so many as one, that has been placed and ordered."""
    nodes, edges, found = step.nodes, step.edges, step.operations
    placement, in_order, waits, kinds = step.placement, step.order, step.waits, step.operations.kinds
    lane_ops = in_order[np.argsort(placement.lane[in_order], kind="stable")]
    lane_begin = np.searchsorted(placement.lane[lane_ops], np.arange(len(placement.affinity) + 1)).astype(np.int64)
    bodies = ((index, nodes[index].body) for index in np.flatnonzero(kinds == Kind.UNTIL).tolist())
    until, every = next(((index, body.every) for index, body in bodies if isinstance(body, Until)), (-1, 1))
    published = waits.published.astype(np.uint8)
    if until >= 0:
        published[until] = 1
    external = [nodes[index].body for index in np.flatnonzero((kinds >= Kind.EXTERNAL) & (kinds != Kind.DEVICE))]
    preconditions, postconditions = (
        tuple(body.name for body in external if isinstance(body, kind)) for kind in (Precondition, Postcondition)
    )
    periods, _ = periods_of(step.summary)
    core = _core.Schedule.build(
        lane_begin=lane_begin,
        lane_ops=lane_ops,
        affinity=placement.affinity,
        pinned=placement.pinned.view(np.uint8),
        kind=kinds,
        wait_begin=waits.start,
        wait_op=waits.op,
        wait_distance=waits.distance,
        published=published,
        pred_begin=np.searchsorted(edges.dst, np.arange(len(kinds) + 1)).astype(np.int64),
        pred_op=edges.src,
        pred_distance=edges.distance,
        periods=periods,
        until_op=until,
        until_every=every,
        largest_distance=max(found.ordering.longest, int(periods.max())),
        n_posts=len(postconditions),
        n_holdings=len({id(body.reservation) for body in external if isinstance(body, Acquire | Release)}),
        unrolled=unrolled,
    )
    lanes = tuple(lane_ops[begin:end] for begin, end in itertools.pairwise(lane_begin))
    target = replace(target, threads=_threads(step, target))
    return Executable(step, target, core, lanes, preconditions, postconditions, unrolled=unrolled)


def _threads(step: Step, target: Target) -> int:
    """How many threads there may be: ops that are bound to a processor may take more than were asked for."""
    return max(target.threads, int(step.operations.thread_of.max(initial=-1)) + 1)
