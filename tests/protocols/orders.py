"""Lanes run their ops in their order, step after step, and wait for those of others. Mirrors the ordering pass
(`compiler/order.py`): one order for the whole step, of which each lane's is a part.
"""

from __future__ import annotations

from itertools import permutations, product

from protocols.explorer import Thread, explore, load, store

Edges = frozenset[tuple[str, str, int]]  # before, after, and how many steps lie between
Lanes = tuple[tuple[str, ...], ...]


def keeps(order: tuple[str, ...], edges: Edges) -> bool:
    """Whether no op of the order stands before one that it depends on in the same step, directly or not."""
    after = {op: {op} for edge in edges for op in edge[:2]}
    for _ in after:
        for first, second, distance in edges:
            if distance == 0:
                after[second] |= after[first]
    return not any(later in after.get(op, ()) for i, op in enumerate(order) for later in order[i + 1 :])


def from_one_order(lanes: Lanes, edges: Edges) -> set[Lanes]:
    """Return the parts for the lanes of every order of all ops that keeps the edges."""
    orders = (order for order in permutations(op for lane in lanes for op in lane) if keeps(order, edges))
    return {tuple(tuple(op for op in order if op in lane) for lane in lanes) for order in orders}


def lane_by_lane(lanes: Lanes, edges: Edges) -> set[Lanes]:
    """Return all combinations of orders of each lane that keep the edges among its own ops."""
    return set(product(*([order for order in permutations(lane) if keeps(order, edges)] for lane in lanes)))


def server(order: tuple[str, ...], edges: Edges, steps: int) -> Thread:
    for step in range(steps):
        for op in order:
            for before, after, distance in sorted(edges):
                if after == op and before not in order:
                    done = yield load(before)
                    while done < step + 1 - distance:
                        done = yield load(before)
            yield store(op, step + 1)


def check(lanes: Lanes, edges: Edges, steps: int = 2) -> int:
    """All lanes get through all steps."""
    words = {op: 0 for lane in lanes for op in lane}
    threads = {f"lane of {order[0]}": lambda order=order: server(order, edges, steps) for order in lanes}
    return explore(words, threads, lambda memory: set(memory.values()) == {steps})
