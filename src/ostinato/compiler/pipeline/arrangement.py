"""A schedule as the model of the replay core is given it: on one machine, on several, or several times over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato._core import Kind
from ostinato.compiler.dependences import add_step_barrier, find_accesses
from ostinato.compiler.ir import Edges, Executable, FloatArray, IntArray, Placement, edges_of
from ostinato.compiler.pipeline.compile import schedule_again
from ostinato.compiler.schedule.place import find_order, find_placement, list_costs
from ostinato.compiler.target import MachineModel
from ostinato.graph.arrays import READ, WRITE
from ostinato.graph.body import Until

if TYPE_CHECKING:
    from ostinato.graph.op import Op

THREAD, GIL, AWAY = range(3)  # How ops are run, as in src/ostinato/compiler/native/replay/replay_model.h.
MOST_LANES = 512
"""Of more lanes, each runs its ops in program order: to compare orders takes as many looks at as many lanes."""

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrangement:
    """Lanes with their ops, and what these wait for; the lanes of a thread follow each other."""

    lane_begin: Int64Array
    lane_ops: IntArray
    affinity: IntArray
    pinned: npt.NDArray[np.uint8]
    seconds: FloatArray
    spread: FloatArray
    manner: npt.NDArray[np.uint8]
    wait_begin: Int64Array
    wait_op: IntArray
    wait_distance: IntArray
    wait_delay: FloatArray  # From the end of what is waited for until it is seen elsewhere: a transfer, or a message.
    until_op: int
    until_every: int
    window_period: int
    threads: int
    threads_a_node: int
    number: IntArray  # By lane, its number in the schedule that this came from, or in its order here.

    @property
    def ops(self) -> int:
        """How many operations there are."""
        return len(self.seconds)

    @property
    def work(self) -> float:
        """What its operations take of threads, in seconds: nothing, where these go on meanwhile."""
        return float(self.seconds[self.manner != AWAY].sum())

    @property
    def lane_of(self) -> IntArray:
        """The lane of each op."""
        lane = np.empty(self.ops, np.int32)
        lane[self.lane_ops] = np.repeat(np.arange(len(self.affinity), dtype=np.int32), np.diff(self.lane_begin))
        return lane

    @property
    def positions(self) -> Int64Array:
        """The position of each op in its lane."""
        position = np.empty(self.ops, np.int64)
        position[self.lane_ops] = np.arange(self.ops) - np.repeat(self.lane_begin[:-1], np.diff(self.lane_begin))
        return position

    def replayed(self, model: MachineModel, steps: int, shown: int, seed: int) -> dict[str, Any]:
        """Return what the model of the core says: see src/ostinato/compiler/native/replay/replay_model.h."""
        schedule = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "number"}
        return _core.passes.replay(
            **schedule, model=list_costs(model), link_latency=model.link_latency, steps=steps, shown=shown, seed=seed
        )


def arrange_as_compiled(executable: Executable, model: MachineModel) -> Arrangement:
    """Return a schedule as it is."""
    lengths = [len(ops) for ops in executable.lane_ops]
    placement = executable.step.placement
    number = np.argsort(placement.affinity, kind="stable").astype(np.int32)
    waits = executable.step.waits
    threads = max(model.cores, int(placement.affinity.max()) + 1)
    return Arrangement(
        lane_begin=np.concatenate([[0], np.cumsum(np.array(lengths)[number])]).astype(np.int64),
        lane_ops=np.concatenate([executable.lane_ops[lane] for lane in number]).astype(np.int32),
        affinity=placement.affinity[number],
        pinned=placement.pinned[number].view(np.uint8),
        **_ops_of(executable),
        wait_begin=waits.start,
        wait_op=waits.op,
        wait_distance=waits.distance,
        wait_delay=np.full(len(waits.op), model.transfer),
        window_period=executable.core.window // 2,
        threads=threads,
        threads_a_node=threads,
        number=number,
    )


def _ops_of(executable: Executable) -> dict[str, Any]:
    """What ops are, whatever lane they are on."""
    slots, ops = executable.slots, executable.step.nodes
    seconds, spread = np.zeros(slots), np.zeros(slots)
    seconds[: len(ops)] = executable.step.costs.seconds
    spread[: len(ops)] = executable.step.costs.spread
    kinds = executable.step.operations.kinds
    seconds[(kinds == Kind.PRECONDITION) | (kinds == Kind.POSTCONDITION)] = 0.0  # but in two steps of a run
    manner = np.where(executable.step.operations.gil_bound, GIL, THREAD).astype(np.uint8)
    for op in np.flatnonzero(kinds == Kind.EXTERNAL).tolist():
        if ops[op].body.works_elsewhere:
            manner[op] = AWAY
    until, every = next(((op.index, op.body.every) for op in ops if isinstance(op.body, Until)), (-1, 1))
    return {"seconds": seconds, "spread": spread, "manner": manner, "until_op": until, "until_every": every}


def arrange(executable: Executable, model: MachineModel) -> Arrangement:
    """Return the ops of a schedule placed again, for a machine with other cores, or for several.

    Ops are dealt to nodes in blocks of equal cost: of those that the same number of ops lead to, what was recorded side
    by side stays together. Then each node's ops are placed on its cores.
    """
    if model.nodes == 1:
        bound = int(executable.step.placement.affinity.max(initial=0)) + 1
        target = replace(executable.target, processors=max(model.cores, bound), threads=model.cores, model=model)
        return arrange_as_compiled(schedule_again(executable, executable.step.costs, target), model)
    ops = _ops_of(executable)
    edges = _add_barrier(executable)
    node = _deal(edges, ops["seconds"], model.nodes)
    placement = _place(executable, edges, ops["seconds"], node, model)
    in_order = _order(executable, edges, ops["seconds"], placement, model)
    lane_ops = in_order[np.argsort(placement.lane[in_order], kind="stable")]
    crossing = placement.lane[edges.src] != placement.lane[edges.dst]
    begin, op, distance, number = _find_latest(edges, placement.lane, np.argsort(in_order), crossing)
    passed = _volumes(executable, edges, node[edges.src] != node[edges.dst])
    message = np.bincount(number[crossing], passed[crossing], len(op)) / model.link_bandwidth
    waiting = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    near = node[op] == node[waiting]
    return Arrangement(
        lane_begin=np.searchsorted(placement.lane[lane_ops], np.arange(len(placement.affinity) + 1)).astype(np.int64),
        lane_ops=lane_ops,
        affinity=placement.affinity,
        pinned=placement.pinned.view(np.uint8),
        **ops,
        wait_begin=begin,
        wait_op=op,
        wait_distance=distance,
        wait_delay=np.where(near, model.transfer, model.link_latency + message),
        window_period=executable.core.window // 2,
        threads=model.cores * model.nodes,
        threads_a_node=model.cores,
        number=np.arange(len(placement.affinity), dtype=np.int32),
    )


def arrange_copies(executable: Executable, model: MachineModel, copies: int) -> Arrangement:
    """Return copies of a schedule side by side, each on its own share of a machine.

    What an op takes from the step before, it takes from the same op of the two copies beside its own, too.
    """
    if model.nodes % copies == 0:
        one = arrange(executable, replace(model, nodes=model.nodes // copies))
        first = np.arange(copies, dtype=np.int32) * np.int32(one.threads)
    elif copies % model.nodes == 0 and copies // model.nodes <= model.cores:
        a_node = copies // model.nodes
        one = arrange(executable, replace(model, nodes=1, cores=model.cores // a_node))
        first = np.arange(copies, dtype=np.int32)
        first = first // a_node * model.cores + first % a_node * (model.cores // a_node)
    else:
        raise ValueError(
            "copies must divide the number of nodes, or be a multiple of it with a core for each copy, got "
            f"{copies} for {model.nodes} nodes of {model.cores} cores"
        )
    edges = _add_barrier(executable)
    edges = Edges(*(column[edges.distance > 0] for column in edges))
    all_edges = np.ones(len(edges.src), np.bool_)
    begin, op, distance, number = _find_latest(edges, one.lane_of, one.positions, all_edges)
    passed = np.bincount(number, _volumes(executable, edges, all_edges), len(op))
    target, node, ops = np.repeat(np.arange(one.ops), np.diff(begin)), first // model.cores, one.ops
    numbers = np.arange(copies)[:, None]
    waits = [
        (
            numbers * ops + np.repeat(np.arange(ops), np.diff(one.wait_begin)),
            numbers * ops + one.wait_op,
            np.broadcast_to(one.wait_distance, (copies, len(one.wait_op))),
            np.broadcast_to(one.wait_delay, (copies, len(one.wait_op))),
        )
    ]
    for here, there in ((numbers[1:], numbers[:-1]), (numbers[:-1], numbers[1:])):
        message = model.link_latency + passed / model.link_bandwidth
        delay = np.where(node[here] == node[there], model.transfer, message)
        waits.append((here * ops + target, there * ops + op, np.broadcast_to(distance, delay.shape), delay))
    waiting, op, distance, delay = (
        np.concatenate([part.ravel() for part in parts]) for parts in zip(*waits, strict=True)
    )
    by_op = np.argsort(waiting, kind="stable")
    return replace(
        one,
        lane_begin=np.append((numbers * ops + one.lane_begin[:-1]).ravel(), copies * ops).astype(np.int64),
        lane_ops=(numbers * ops + one.lane_ops).ravel().astype(np.int32),
        affinity=(first[:, None] + one.affinity).ravel().astype(np.int32),
        pinned=np.tile(one.pinned, copies),
        seconds=np.tile(one.seconds, copies),
        spread=np.tile(one.spread, copies),
        manner=np.tile(one.manner, copies),
        wait_begin=np.searchsorted(waiting[by_op], np.arange(copies * ops + 1)).astype(np.int64),
        wait_op=op[by_op].astype(np.int32),
        wait_distance=distance[by_op].astype(np.int32),
        wait_delay=delay[by_op],
        threads=model.cores * model.nodes,
        threads_a_node=model.cores,
        number=np.arange(copies * len(one.affinity), dtype=np.int32),
    )


def _add_barrier(executable: Executable) -> Edges:
    """What orders the operations that the core has."""
    if executable.slots == len(executable.step.nodes):
        return executable.step.ordering
    return add_step_barrier(executable.step.ordering, len(executable.step.nodes))


def _volumes(executable: Executable, edges: Edges, kept: npt.NDArray[np.bool_]) -> FloatArray:
    """The bytes that pass along each edge that is kept; 0 along others."""
    passed = np.zeros(len(edges.src))
    kept = kept & (edges.src < len(executable.step.nodes)) & (edges.dst < len(executable.step.nodes))
    passed[kept] = find_volumes(executable.step.nodes, Edges(*(column[kept] for column in edges)))
    return passed


def _deal(edges: Edges, seconds: FloatArray, nodes: int) -> IntArray:
    """Return the node of each op."""
    level = _core.passes.levels(len(seconds), edges)
    weight = seconds + max(float(seconds.mean()) * 1e-6, 1e-12)  # ops that take nothing are dealt, too
    in_levels = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[in_levels], np.arange(level.max(initial=0) + 2))
    passed = np.concatenate([[0.0], np.cumsum(weight[in_levels])])
    total = np.diff(passed[starts])[level[in_levels]]
    middle = passed[:-1] - passed[starts[level[in_levels]]] + weight[in_levels] / 2
    node = np.empty(len(seconds), np.int32)
    node[in_levels] = np.minimum(middle / total * nodes, nodes - 1)
    return node


def _place(executable: Executable, edges: Edges, seconds: FloatArray, node: IntArray, model: MachineModel) -> Placement:
    """Place each node's ops on its cores."""
    lane = np.empty(len(seconds), np.int32)
    affinities, pins = [], []
    by_node = np.argsort(node, kind="stable").astype(np.int32)
    begin = np.searchsorted(node[by_node], np.arange(model.nodes + 1))
    local = np.empty(len(seconds), np.int32)
    local[by_node] = np.arange(len(seconds)) - begin[node[by_node]]
    inside = np.flatnonzero(node[edges.src] == node[edges.dst])
    inside = inside[np.argsort(node[edges.dst[inside]], kind="stable")]
    edge_begin = np.searchsorted(node[edges.dst[inside]], np.arange(model.nodes + 1))
    lanes = 0
    for each in range(model.nodes):
        own = by_node[begin[each] : begin[each + 1]]
        if not len(own):
            continue
        kept = inside[edge_begin[each] : edge_begin[each + 1]]
        found = find_placement(
            edges_of(len(own), local[edges.src[kept]], local[edges.dst[kept]], edges.distance[kept]),
            seconds[own],
            threads=model.cores,
            thread_of=np.full(len(own), -1, np.int32),
            gil_bound=executable.step.operations.gil_bound[own],
            takes_gil=executable.step.operations.takes_gil[own],
            varied=executable.step.costs.varied,
            known=executable.step.costs.known,
            steady=executable.step.costs.steady,
            model=model,
        )
        lane[own] = found.lane + lanes
        affinities.append(found.affinity + each * model.cores)
        pins.append(found.pinned)
        lanes += len(found.affinity)
    return Placement(lane, np.concatenate(affinities).astype(np.int32), np.concatenate(pins), 0.0)


def _order(
    executable: Executable, edges: Edges, seconds: FloatArray, placement: Placement, model: MachineModel
) -> IntArray:
    none = np.zeros(len(seconds), np.int32)
    if len(placement.affinity) > MOST_LANES:
        one = Placement(none, np.zeros(1, np.int32), np.zeros(1, np.bool_), 0.0)
        return find_order(edges, seconds, one, none, none.astype(np.bool_), model=model)
    return find_order(edges, seconds, placement, none, executable.step.operations.gil_bound, model=model)


def _find_latest(
    edges: Edges, lane: IntArray, position: Int64Array, kept: npt.NDArray[np.bool_]
) -> tuple[Int64Array, IntArray, IntArray, Int64Array]:
    """Return what each op waits for along the edges that are kept: of each lane, the last op.

    `compiler/waits.py` also leaves out what follows from other waits, which takes as many numbers for each op as there
    are lanes. Besides, the wait that each edge became, or -1.
    """
    number = np.full(len(edges.src), -1, np.int64)
    chosen = np.flatnonzero(kept)
    src, dst, distance = (column[chosen] for column in edges)
    ranked = np.lexsort((position[src], -distance, lane[src], dst))
    src, dst, distance = src[ranked], dst[ranked], distance[ranked]
    ends = np.ones(len(src), np.bool_)
    ends[:-1] = (dst[1:] != dst[:-1]) | (lane[src[1:]] != lane[src[:-1]])
    number[chosen[ranked]] = np.cumsum(ends) - ends
    begin = np.searchsorted(dst[ends], np.arange(len(lane) + 1))
    return begin.astype(np.int64), src[ends], distance[ends], number


def find_volumes(ops: Sequence[Op], edges: Edges) -> npt.NDArray[np.float64]:
    """Return for each edge the bytes that its first op writes and its second one reads.

    Edges that only order, such as those from a reader to the next writer, pass nothing; tokens count as a byte.
    """
    found = find_accesses(ops)
    writes, write_begin = _by_op(found.op, found.mode & WRITE, len(ops))
    reads, read_begin = _by_op(found.op, found.mode & READ, len(ops))
    passed = np.zeros(len(edges.src))
    n_writes = np.diff(write_begin)[edges.src]
    n_reads = np.diff(read_begin)[edges.dst]
    pairs = n_writes * n_reads
    edge = np.repeat(np.arange(len(passed)), pairs)
    number = np.arange(len(edge)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    first = writes[write_begin[edges.src[edge]] + number // n_reads[edge]]
    second = reads[read_begin[edges.dst[edge]] + number % n_reads[edge]]
    meets = found.group[first] == found.group[second]
    # In a ring they are the same array in some steps only; its stand-in elsewhere is for other arrays.
    turn = found.phase[second] - found.phase[first] + edges.distance[edge]
    meets &= turn % found.period[first] == 0
    meets &= (found.alias[first] < 0) | (found.alias[first] != found.alias[second])
    edge, first, second = edge[meets], found.box[first[meets]], found.box[second[meets]]
    extent = np.minimum(found.hi[first], found.hi[second]) - np.maximum(found.lo[first], found.lo[second])
    np.add.at(passed, edge, np.maximum(extent, 0).prod(axis=1))
    return passed


def _by_op(op: IntArray, kept: npt.NDArray[Any], ops: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Accesses that are kept, in the order of their ops, and where those of each op begin."""
    chosen = np.flatnonzero(kept)
    return chosen, np.searchsorted(op[chosen], np.arange(ops + 1))
