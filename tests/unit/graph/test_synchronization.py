"""Barriers and reservations as ops: what is recorded and what is refused."""

import operator

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.events import Barrier, Reservation
from ostinato.graph.body import Acquire, Arrive, Await, Release


@ost.task
def work(a: ost.ReadWrite): ...


@pytest.fixture
def graph():
    return ost.Graph()


@pytest.fixture
def barrier():
    return Barrier(4, reduce="+", initial=0)


def test_arrive(graph, barrier):
    first = graph.task(work, np.zeros(1))
    op = graph.arrive(barrier, after=[first, ost.previous(first)])
    more = graph.arrive(barrier, 3, 1.5, op)
    assert isinstance(op.body, Arrive)
    assert (op.name, op.operands, op.body.barrier, op.body.count) == ("arrive", (), barrier, 1)
    assert op.body.value is Arrive.NO_VALUE
    assert (more.body.count, more.body.value) == (3, 1.5)
    assert graph.explicit_edges == [(0, 1, 0), (0, 1, 1), (1, 2, 0)]


def test_wait(graph, barrier):
    first = graph.arrive(barrier)
    op = graph.wait(barrier, after=first)
    assert isinstance(op.body, Await)
    assert (op.name, op.operands, op.body.barrier) == ("wait", (), barrier)
    assert graph.given_edges == [(first, op, 0)]


def test_acquire_and_release(graph):
    reservation = Reservation()
    first = graph.acquire(reservation)
    second = graph.acquire(reservation, exclusive=False, after=first)
    last = graph.release(reservation, after=[first, second])
    assert isinstance(first.body, Acquire)
    assert isinstance(last.body, Release)
    assert (first.body.exclusive, second.body.exclusive) == (True, False)
    assert {op.body.reservation for op in graph.ops} == {reservation}
    assert [op.name for op in graph.ops] == ["acquire", "acquire", "release"]
    assert graph.explicit_edges == [(0, 1, 0), (0, 2, 0), (1, 2, 0)]


def test_params_stand_for_barriers_counts_and_values(graph):
    barrier, count, value = (graph.param(name) for name in ("barrier", "count", "value"))
    arrive, wait = graph.arrive(barrier, count, value), graph.wait(barrier)
    assert (arrive.body.barrier, arrive.body.count, arrive.body.value) == (barrier, count, value)
    assert wait.body.barrier is barrier
    known = Barrier(1)
    assert graph.arrive(known, value=value).body.value is value


def test_defaults_of_params_are_checked(graph):
    with pytest.raises(TypeError, match="'b', the barrier of wait"):
        graph.wait(graph.param("b", 3))
    with pytest.raises(TypeError, match="'b', the barrier of arrive"):
        graph.arrive(graph.param("b"))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        graph.arrive(Barrier(1), graph.param("none", 0))
    with pytest.raises(TypeError):
        graph.arrive(Barrier(1), graph.param("half", 0.5))
    assert len(graph) == 0
    graph.arrive(graph.param("barrier", Barrier(1)), graph.param("two", 2))
    graph.arrive(graph.param("either", [], combine=operator.or_), graph.param("sum", -1, combine=operator.add))


def test_params_of_other_graphs_are_refused(graph, barrier):
    other = ost.Graph().param("p")
    for call in (
        lambda: graph.arrive(other),
        lambda: graph.arrive(barrier, other),
        lambda: graph.arrive(barrier, value=other),
        lambda: graph.wait(other),
    ):
        with pytest.raises(GraphError, match="'p' belongs to another graph"):
            call()
    assert len(graph) == 0


@pytest.mark.parametrize("method", ["arrive", "wait", "acquire", "release"])
def test_wrong_types(graph, barrier, method):
    wrong = Reservation() if method in ("arrive", "wait") else barrier
    for value in (wrong, None, "barrier", 3, ost.step, np.zeros(1)):
        with pytest.raises(TypeError, match=rf"of {method}\(\) must be an ostinato"):
            getattr(graph, method)(value)
    assert len(graph) == 0


def test_a_reservation_is_no_param(graph):
    with pytest.raises(TypeError, match=r"must be an ostinato\.Reservation"):
        graph.acquire(graph.param("p"))


@pytest.mark.parametrize(("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_wrong_counts(graph, barrier, count, error):
    with pytest.raises(error):
        graph.arrive(barrier, count)
    assert len(graph) == 0


def test_a_value_is_for_a_barrier_that_reduces(graph):
    for value in (1, 0, "text"):
        with pytest.raises(ValueError, match="barrier that reduces"):
            graph.arrive(Barrier(1), value=value)
    graph.arrive(graph.param("barrier"), value=1)
    assert len(graph) == 1


def test_values(graph, barrier):
    op, ring = graph.task(work, np.zeros(1)), ost.ring(np.zeros(1))
    for value in (1, 2.5, np.float32(1), (1, 2), object()):
        assert graph.arrive(barrier, value=value).body.value is value
    for wrong in (op, ost.step):
        with pytest.raises(TypeError):
            graph.arrive(barrier, value=wrong)
    for wrong in (ring, ring[0]):
        with pytest.raises(TypeError, match="value of arrive"):
            graph.arrive(barrier, value=wrong)


def test_of_an_array_a_copy_arrives(graph, barrier):
    array = np.arange(3)
    value = graph.arrive(barrier, value=array).body.value
    array[:] = 7
    assert value.tolist() == [0, 1, 2]


def test_wrong_sources_record_nothing(graph, barrier):
    other = ost.Graph().arrive(barrier)
    for call in (graph.arrive, graph.wait):
        with pytest.raises(GraphError, match="another graph"):
            call(barrier, after=other)
    for call in (graph.acquire, graph.release):
        with pytest.raises(GraphError, match="another graph"):
            call(Reservation(), after=other)
    assert len(graph) == 0


def test_in_a_capture_they_mix_with_calls(barrier):
    reservation, a = Reservation(), np.zeros(2)
    with ost.capture() as graph:
        ops = (
            graph.acquire(reservation),
            work(a),
            graph.arrive(ost.param("barrier", barrier), after=graph.ops[-1]),
            graph.wait(barrier),
            graph.release(reservation),
        )
    assert graph.ops == ops
    assert [op.call_site.filename for op in ops] == [__file__] * 5
    lines = [op.call_site.line for op in ops]
    assert lines == list(range(lines[0], lines[0] + 5))
