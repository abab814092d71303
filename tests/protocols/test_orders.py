"""Lanes that take their orders from one for all never wait for each other forever.

Lanes run their ops in their order, step after step, and wait for those of others. Mirrors the ordering pass
(`compiler/order.py`): one order for the whole step, of which each lane's is a part.
"""

from __future__ import annotations

from itertools import combinations, permutations, product

import pytest

from explorer import ProtocolError, Thread, explore, load, store

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


LANES = (("a", "b"), ("c", "d"))
PAIRS = tuple(combinations("acbd", 2))  # the program's order: neither lane's ops are next to each other


def graphs():
    """Yield all graphs of four ops, each with and without everything that follows from overlapping whole steps."""
    across = frozenset((first, second, 1) for first, second in product("abcd", repeat=2) if first != second)
    for chosen in product((False, True), repeat=len(PAIRS)):
        edges = frozenset((*pair, 0) for pair, is_in in zip(PAIRS, chosen, strict=True) if is_in)
        yield edges
        yield edges | across


def deadlocks(lanes, edges):
    try:
        check(lanes, edges)
    except ProtocolError:
        return True
    return False


def test_one_order_for_all_lanes_never_deadlocks():
    assert all(check(lanes, edges) > 4 for edges in graphs() for lanes in from_one_order(LANES, edges))


def test_orders_chosen_lane_by_lane_deadlock():
    stuck = [lanes for edges in graphs() for lanes in lane_by_lane(LANES, edges) if deadlocks(lanes, edges)]
    assert stuck


def test_two_lanes_that_respect_their_dependences_wait_for_each_other():
    edges = frozenset({("a", "c", 0), ("d", "b", 0)})
    orders = (("b", "a"), ("c", "d"))
    assert orders in lane_by_lane(LANES, edges)
    assert orders not in from_one_order(LANES, edges)
    with pytest.raises(ProtocolError, match="no end"):
        check(orders, edges)


def test_what_is_triggered_by_a_later_op_of_the_lane_needs_a_lane_of_its_own():
    triggered = frozenset({("post", "event", 0), ("event", "wait", 0)})  # outside the program, which does not know
    assert check((("wait",), ("post",), ("event",)), triggered) > 4
    with pytest.raises(ProtocolError, match="no end"):
        check((("wait", "post"), ("event",)), triggered)
