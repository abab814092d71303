"""Barriers: phases, excess, promises, reductions."""

import gc
import logging
import operator
import threading
import weakref

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ostinato as ost


def test_phases():
    barrier = ost.Barrier(3)
    events = [barrier.event(phase) for phase in range(3)]
    for phase in range(3):
        barrier.arrive()
        assert barrier.phase == phase
        assert not events[phase].done
        barrier.arrive(2)
        assert barrier.phase == phase + 1
        assert [event.done for event in events] == [k <= phase for k in range(3)]
    assert barrier.event(0).done


def test_excess_arrivals_are_refused_and_none_is_made():
    barrier = ost.Barrier(3)
    barrier.arrive(2)
    with pytest.raises(RuntimeError, match=r"at most 1, the arrivals of phase 0 .*of 3.*, got 2"):
        barrier.arrive(2)
    with pytest.raises(RuntimeError):
        barrier.arrive(4, after=ost.merge())
    barrier.arrive()
    assert barrier.phase == 1


def test_promised_arrivals():
    barrier, start = ost.Barrier(2), ost.UserEvent()
    barrier.arrive(after=start)
    barrier.arrive()
    assert barrier.phase == 0
    with pytest.raises(RuntimeError):
        barrier.arrive()
    start.trigger()
    assert barrier.phase == 1


def test_poisoned_arrivals_do_not_arrive():
    barrier, start = ost.Barrier(2, reduce="+", initial=0), ost.UserEvent()
    told = threading.Event()
    barrier.arrive(after=start)
    barrier.arrive(value=5, after=start)
    start.add_done_callback(lambda _: told.set())
    start.poison()
    assert told.wait(60)  # those with a value are given back where callbacks run
    barrier.arrive(2, after=start)
    barrier.arrive(2, value=7, after=start)
    assert barrier.phase == 0
    barrier.arrive(2, value=1)
    assert barrier.result(0) == 1


def test_a_value_may_come_later():
    barrier, start = ost.Barrier(2, reduce="+", initial=0), ost.UserEvent()
    barrier.arrive(value=1, after=start)
    barrier.arrive(value=2)
    start.trigger()
    barrier.event(0).wait(60)
    assert barrier.result(0) == 3


@pytest.mark.parametrize(
    ("reduce", "initial", "expected"),
    [
        ("+", 10, 16),
        ("+", None, 6),
        ("*", 2, 12),
        ("*", None, 6),
        ("min", 5, 1),
        ("min", None, 1),
        ("max", 2, 3),
        ("max", None, 3),
        (operator.sub, 10, 4),
        (lambda so_far, value: [*(so_far or []), value], None, [3, 1, 2]),
    ],
)
def test_reductions(reduce, initial, expected):
    barrier = ost.Barrier(3, reduce, initial)
    for phase in range(2):
        for value in (3, 1, 2):
            barrier.arrive(value=value)
        assert barrier.result(phase) == expected
    assert (barrier.arrivals, barrier.reduce, barrier.initial) == (3, reduce, initial)


@pytest.mark.parametrize(("reduce", "expected"), [("+", [4, 6]), ("*", [3, 8]), ("min", [1, 2]), ("max", [3, 4])])
def test_reductions_of_arrays(reduce, expected):
    barrier = ost.Barrier(2, reduce)
    values = np.array([[1, 4], [3, 2]])
    barrier.arrive(value=values[0])
    barrier.arrive(value=values[1])
    assert sorted(barrier.result(0)) == expected
    assert (values == [[1, 4], [3, 2]]).all()


def test_a_value_counts_once_and_need_not_be_given():
    barrier = ost.Barrier(5, "+", 100)
    barrier.arrive(3, value=1)
    barrier.arrive(2)
    assert barrier.result(0) == 101
    barrier.arrive(5)
    assert barrier.result(1) == 100


def test_results():
    barrier = ost.Barrier(1)
    with pytest.raises(RuntimeError, match="phase 0 is not complete"):
        barrier.result(0)
    barrier.arrive()
    assert barrier.result(0) is None
    with pytest.raises(RuntimeError, match="phase 1 is not complete"):
        barrier.result(1)


def test_results_are_kept_for_a_while():
    barrier = ost.Barrier(1, "+")
    for value in range(3000):
        barrier.arrive(value=value)
    assert barrier.result(3000 - 1024) == 3000 - 1024
    with pytest.raises(LookupError, match="no longer kept"):
        barrier.result(3000 - 1025)
    assert len(barrier._reduction._so_far) <= 1026


def test_where_reduce_raises_nothing_has_arrived():
    barrier = ost.Barrier(1, "+", 0)
    with pytest.raises(TypeError, match="unsupported operand"):
        barrier.arrive(value="one")
    assert barrier.phase == 0
    barrier.arrive(value=1)
    assert barrier.result(0) == 1


def test_where_reduce_raises_later_it_is_logged(caplog):
    barrier, start = ost.Barrier(1, "+", 0), ost.UserEvent()
    barrier.arrive(value="one", after=start)
    told = threading.Event()
    start.add_done_callback(lambda _: told.set())
    with caplog.at_level(logging.ERROR, logger="ostinato"):
        start.trigger()
        assert told.wait(60)
    assert "unsupported operand" in caplog.text
    barrier.arrive(value=1)
    assert barrier.result(0) == 1


def test_reduce_cannot_arrive_itself():
    barrier = ost.Barrier(2, lambda so_far, value: barrier.arrive(value=value), 0)
    with pytest.raises(RuntimeError, match="cannot itself arrive"):
        barrier.arrive(value=1)


def test_a_barrier_is_garbage_with_its_reduction():
    class Reduce:
        def __call__(self, so_far, value):
            return value

    reduce = Reduce()
    reduce.barrier = ost.Barrier(1, reduce)
    reduce.barrier.arrive(value=reduce)
    alive = weakref.ref(reduce)
    del reduce
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ost.Barrier(0), ValueError),
        (lambda: ost.Barrier(-1), ValueError),
        (lambda: ost.Barrier(2**64), ValueError),
        (lambda: ost.Barrier(1.5), TypeError),
        (lambda: ost.Barrier("2"), TypeError),
        (lambda: ost.Barrier(1, reduce="-"), ValueError),
        (lambda: ost.Barrier(1, reduce=3), TypeError),
        (lambda: ost.Barrier(1, initial=3), ValueError),
        (lambda: ost.Barrier(1).arrive(0), ValueError),
        (lambda: ost.Barrier(1).arrive(-1), ValueError),
        (lambda: ost.Barrier(1).arrive(1.0), TypeError),
        (lambda: ost.Barrier(1).arrive(value=3), ValueError),
        (lambda: ost.Barrier(1).arrive(after=3), TypeError),
        (lambda: ost.Barrier(1).event(-1), ValueError),
        (lambda: ost.Barrier(1).event("0"), TypeError),
        (lambda: ost.Barrier(1).result(-1), ValueError),
    ],
)
def test_wrong_arguments(make, error):
    with pytest.raises(error):
        make()


def test_far_phases_cost_nothing():
    barrier = ost.Barrier(1)
    assert not barrier.event(10**15).done


def test_threads_arrive():
    count, phases = 4, 200
    barrier = ost.Barrier(count, "+", 0)

    def work():
        for phase in range(phases):
            barrier.arrive(value=phase)
            barrier.event(phase).wait(60)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert barrier.phase == phases
    assert [barrier.result(phase) for phase in range(phases)] == [count * phase for phase in range(phases)]


def test_how_it_looks():
    barrier = ost.Barrier(2)
    assert repr(barrier) == "<Barrier of 2 arrivals, in phase 0>"


class Arriving(RuleBasedStateMachine):
    """Arrivals at once and promised ones, with and without values, against sums made by hand."""

    def __init__(self):
        super().__init__()
        self.barrier = ost.Barrier(5, "+", 0)
        self.phase = 0
        self.arrived = 0
        self.sums = [0]
        self.promises = []  # (event, count)
        self.events = {}

    def left(self):
        return 5 - self.arrived - sum(count for _, count in self.promises)

    def arrive_in_the_model(self, count, value):
        self.arrived += count
        self.sums[-1] += value or 0
        if self.arrived == 5:
            self.phase, self.arrived = self.phase + 1, 0
            self.sums.append(0)

    @rule(count=st.integers(1, 6), value=st.none() | st.integers(-9, 9))
    def arrive(self, count, value):
        if count > self.left():
            with pytest.raises(RuntimeError):
                self.barrier.arrive(count, value)
        else:
            self.barrier.arrive(count, value)
            self.arrive_in_the_model(count, value)

    @rule(count=st.integers(1, 6))
    def promise(self, count):
        event = ost.UserEvent()
        if count > self.left():
            with pytest.raises(RuntimeError):
                self.barrier.arrive(count, after=event)
        else:
            self.barrier.arrive(count, after=event)
            self.promises.append((event, count))

    @precondition(lambda self: self.promises)
    @rule(data=st.data(), poisoned=st.booleans())
    def end(self, data, poisoned):
        at = data.draw(st.integers(0, len(self.promises) - 1))
        event, count = self.promises.pop(at)
        if poisoned:
            event.poison()
        else:
            event.trigger()
            self.arrive_in_the_model(count, None)

    @rule(ahead=st.integers(0, 3))
    def ask(self, ahead):
        self.events.setdefault(self.phase + ahead, self.barrier.event(self.phase + ahead))

    @invariant()
    def same_as_the_model(self):
        assert self.barrier.phase == self.phase
        assert all(event.done == (phase < self.phase) for phase, event in self.events.items())
        assert [self.barrier.result(phase) for phase in range(self.phase)] == self.sums[:-1]


TestArriving = Arriving.TestCase
TestArriving.settings = settings(settings.default, max_examples=60, stateful_step_count=30)
