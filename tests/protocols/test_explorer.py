"""The explorer knows the memory of an x86 processor, and finds what it is asked to find."""

import pytest

from explorer import ProtocolError, add, commit_wait, explore, fence, load, lock, membarrier, store, unlock


def announce(mine, other, barrier=None):
    """Write one word and read the other's."""
    yield store(mine, 1)
    if barrier is not None:
        yield from barrier()
    value = yield load(other)
    yield store(f"{mine} saw", value)


def full_fence():
    yield fence()


def somebody_sees(first, second):
    words = {"a": 0, "b": 0, "a saw": 0, "b saw": 0}
    threads = {"first": lambda: announce("a", "b", first), "second": lambda: announce("b", "a", second)}
    return explore(words, threads, lambda memory: memory["a saw"] or memory["b saw"])


@pytest.mark.parametrize("barriers", [(full_fence, full_fence), (None, membarrier), (membarrier, None)])
def test_fences_on_both_sides_or_a_heavy_one_on_either(barriers):
    assert somebody_sees(*barriers) > 10


@pytest.mark.parametrize("barriers", [(None, None), (None, full_fence), (full_fence, None)])
def test_a_load_overtakes_a_store(barriers):
    with pytest.raises(ProtocolError, match="a bad end"):
        somebody_sees(*barriers)


def test_stores_are_seen_in_their_order():
    def writer():
        yield store("data", 1)
        yield store("flag", 1)

    def reader():
        flag = yield load("flag")
        data = yield load("data")
        assert data or not flag

    assert explore({"data": 0, "flag": 0}, {"writer": writer, "reader": reader}, lambda memory: True) > 10


@pytest.mark.parametrize("locked", [False, True])
def test_an_addition_in_two_parts_needs_a_lock(locked):
    def body():
        if locked:
            yield lock("mutex")
        value = yield load("sum")
        yield store("sum", value + 1)
        if locked:
            yield unlock("mutex")

    def run():
        return explore({"sum": 0, "mutex": 0}, {"a": body, "b": body}, lambda memory: memory["sum"] == 2)

    if locked:
        assert run() > 10
    else:
        with pytest.raises(ProtocolError, match="a bad end"):
            run()


def test_an_addition_in_one_is_one():
    def body():
        yield add("sum", 1)

    assert explore({"sum": 0}, {"a": body, "b": body}, lambda memory: memory["sum"] == 2) == 4


def test_a_deadlock_is_an_end_and_a_bad_one():
    def body(first, second):
        yield lock(first)
        yield lock(second)
        yield unlock(second)
        yield unlock(first)
        yield add("through", 1)

    threads = {"a": lambda: body("x", "y"), "b": lambda: body("y", "x")}
    with pytest.raises(ProtocolError, match="a bad end"):
        explore({"x": 0, "y": 0, "through": 0}, threads, lambda memory: memory["through"] == 2)


def test_polling_for_what_never_comes_is_found():
    def body():
        flag = 0
        while not flag:
            flag = yield load("flag")

    with pytest.raises(ProtocolError, match="no end can be reached"):
        explore({"flag": 0}, {"a": body}, lambda memory: True)


def test_who_sleeps_with_nothing_left_to_do_is_no_fault():
    def body():
        yield commit_wait("event_count", 0)

    assert explore({"event_count": 0}, {"a": body}, lambda memory: True) == 1
