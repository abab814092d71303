"""Lanes that take their orders from one for all never wait for each other forever."""

from itertools import combinations, product

import pytest

from protocols.explorer import ProtocolError
from protocols.orders import check, from_one_order, lane_by_lane

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
