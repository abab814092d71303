"""Several steps as one: loop unrolling, over the steps of a program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import lcm

import numpy as np

from ostinato._core import Kind
from ostinato.compiler.costs import Costs
from ostinato.compiler.ir import Edges, Node, Step, edges_of
from ostinato.graph.arrays import Operand
from ostinato.graph.param import STEP

_KINDS = (Kind.NOTHING, Kind.NATIVE, Kind.PYTHON)


def why_not_unrolled(step: Step) -> str:
    """Return why several steps cannot run as one; empty if they can."""
    found = step.operations
    if step.uses_devices:
        return "it uses devices"
    if step.params:
        return "it has parameters"
    if found.serial:
        return "each step begins when the one before has ended"
    if found.outside.any() or not np.isin(found.kinds, _KINDS).all():
        return "a step waits for what is outside, or may be the last"
    if (found.thread_of >= 0).any() or found.priority.any():
        return "ops are bound to processors, or have priorities"
    if any(arg is STEP for index in step.summary.varied.tolist() for arg in step.nodes[index].body.args):
        return "tasks get the number of the step"
    return ""


def find_ring_period(step: Step) -> int:
    """Return after how many steps the same arrays take their turn again."""
    return lcm(*np.unique(step.summary.period).tolist())


def unroll(step: Step, times: int) -> Step:
    """Return `times` steps as one: the nodes of the first, then those of the second, and so on.

    `times` is a multiple of the ring period. The first of the steps has a number that is a multiple of the period, too:
    then each node always uses the same arrays.
    """
    arrays: dict[tuple[int, int], Operand] = {}

    def at(turn: int, operand: Operand) -> Operand:
        if operand.ring is None:
            return operand
        views = operand.ring.views
        turn = (operand.ring.offset + turn) % len(views)
        key = id(operand), turn
        if key not in arrays:
            arrays[key] = Operand(views[turn], views[turn], None, operand.mode)
        return arrays[key]

    n = len(step.nodes)
    nodes = []
    for turn in range(times):
        for op in step.nodes:
            if all(operand.ring is None for operand in op.operands):
                nodes.append(Node(op, turn * n + op.index))
                continue
            new = partial(at, turn)
            body, operands = op.body.map_operands(new), tuple(map(new, op.operands))
            nodes.append(Node(op, turn * n + op.index, body, operands))
    return replace(
        step,
        nodes=tuple(nodes),
        edges=_unroll_edges(step.edges, n, times),
        ordering=_unroll_edges(step.ordering, n, times),
        costs=unroll_costs(step.costs, times),
    )


def unroll_costs(costs: Costs, times: int) -> Costs:
    """Return what the nodes of so many steps take."""
    return costs._replace(
        seconds=np.tile(costs.seconds, times),
        spread=np.tile(costs.spread, times),
        source=np.tile(costs.source, times),
    )


def _unroll_edges(edges: Edges, n: int, times: int) -> Edges:
    """Return the edges between the nodes of so many steps, of `n` nodes each."""
    turn = np.repeat(np.arange(times), len(edges.src))
    src, dst, distance = (np.tile(column, times) for column in edges)
    before, at = np.divmod(turn - distance, times)
    return edges_of(n * times, src + at * n, dst + turn * n, -before)
