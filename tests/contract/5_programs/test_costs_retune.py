"""The contract on `program.retune`: it replays, learns, and keeps the better program."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost

pytestmark = pytest.mark.usefixtures("places")


@ost.task
def count(x: ost.ReadWrite):
    x += 1


@ost.task(releases_gil=True)
def apart(x: ost.ReadWrite, factor=1.0):
    x *= 0.5
    x += factor


@ost.task
def meet(dst: ost.ReadWrite, *parts: ost.Read):
    dst += sum(part[0] for part in parts)


def several(width=4):
    """A graph whose ops take turns and meet, and its arrays."""
    arrays = [np.full(3, float(n)) for n in range(width)]
    total = np.zeros(1)
    with ost.capture() as graph:
        for array in arrays:
            apart(array)
        meet(total, *arrays)
    return graph, [*arrays, total]


def after_steps(steps, width=4):
    arrays = [np.full(3, float(n)) for n in range(width)]
    total = np.zeros(1)
    for _ in range(steps):
        for array in arrays:
            apart(array)
        meet(total, *arrays)
    return [array.tolist() for array in [*arrays, total]]


def values(arrays):
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 20, 64, 200])
def test_it_runs_exactly_so_many_steps(machine, steps):
    graph, arrays = several()
    with graph.compile(machine) as program:
        program.retune(steps=steps)
        assert values(arrays) == after_steps(steps)


def test_again_and_again_and_between_replays(machine):
    graph, arrays = several()
    with graph.compile(machine) as program:
        done = 0
        for steps in (5, 30, 1, 12):
            program.retune(steps=steps)
            done += steps
            program.replay(3)
            done += 3
            assert values(arrays) == after_steps(done)
        program.verify(2)
        assert program.submit(2).result(60) == 2
        assert values(arrays) == after_steps(done + 2)


@pytest.mark.parametrize("runs", ["pipelined", "serial"])
@pytest.mark.parametrize("lanes", [None, 1])
def test_programs_whose_runs_follow_each_other(machine, runs, lanes):
    graph, arrays = several()
    with graph.compile(machine, runs=runs, lanes=lanes) as program:
        program.retune(steps=40)
        program.replay(2)
        assert values(arrays) == after_steps(42)


def test_steps_go_on_counting(machine):
    seen = []

    @ost.task
    def note(x: ost.ReadWrite, step):
        seen.append(step)

    with ost.capture() as graph:
        note(np.zeros(1), ost.step)
    with graph.compile(machine) as program:
        program.replay(2)
        program.retune(steps=30)
        program.replay(2)
    assert seen == list(range(34))


def test_rings_stay_in_turn(machine):
    a, b, c = (np.full(2, float(n)) for n in range(3))
    u = ost.ring(a, b, c)
    with ost.capture() as graph:
        apart(u[0])
        graph.copy(u[0], u[1])
    with graph.compile(machine) as program:
        program.replay(1)
        program.retune(steps=31)
        program.replay(1)
    expected = [np.full(2, float(n)) for n in range(3)]
    for step in range(33):
        apart(expected[step % 3])
        expected[(step + 1) % 3][...] = expected[step % 3]
    assert values([a, b, c]) == values(expected)


def test_params(machine):
    x = np.zeros(1)

    @ost.task
    def add(x: ost.ReadWrite, by):
        x += by

    with ost.capture() as graph:
        add(x, ost.param("by"))
    with graph.compile(machine) as program:
        program.retune(steps=20, by=2)
        assert x[0] == 40
        program.retune(steps=10, params={"by": 3})
        assert x[0] == 70
        with pytest.raises((TypeError, ValueError)):
            program.retune(steps=5)
        with pytest.raises((TypeError, ValueError)):
            program.retune(steps=5, of=2)
        program.replay(by=1)
        assert x[0] == 71


def test_until_ends_it(machine):
    x, flag = np.zeros(1), np.zeros(1, np.int64)

    @ost.task
    def advance(x: ost.ReadWrite, flag: ost.Write):
        x += 1
        flag[0] = x[0] % 25 == 0

    with ost.capture() as graph:
        advance(x, flag)
        ost.until(flag)
    with graph.compile(machine) as program:
        program.retune(steps=1000)
        assert x[0] == 25
        assert program.replay(1000) == 25
        assert x[0] == 50


def test_no_steps_do_nothing(machine):
    graph, arrays = several()
    with graph.compile(machine) as program:
        program.retune(steps=0)
        assert values(arrays) == after_steps(0)


@pytest.mark.parametrize("steps", [-1, 1.5, "x", None, [1]], ids=repr)
def test_wrong_steps(machine, steps):
    graph, arrays = several()
    with graph.compile(machine) as program:
        with pytest.raises((TypeError, ValueError)):
            program.retune(steps=steps)
        assert values(arrays) == after_steps(0)


def test_closed(machine):
    graph, _ = several()
    with graph.compile(machine) as program:
        pass
    with pytest.raises(RuntimeError):
        program.retune(steps=5)


def test_in_a_task(machine):
    errors = []
    graph, arrays = several()
    with graph.compile(machine) as program:

        @ost.task
        def inside(x: ost.ReadWrite):
            try:
                program.retune(steps=5)
            except ost.ContractError as error:
                errors.append(error)

        with ost.capture() as outer:
            inside(np.zeros(1))
        with outer.compile(machine) as other:
            other.replay()
    assert len(errors) == 1
    assert values(arrays) == after_steps(0)


@pytest.mark.parametrize("at", [1, 5, 30, 99])
def test_a_failure_in_it_is_that_of_a_replay(machine, at):
    x, y = np.zeros(1), np.zeros(1)

    @ost.task
    def fail(x: ost.ReadWrite):
        x += 1
        if x[0] == at:
            raise ArithmeticError("enough")

    with ost.capture() as graph:
        op = fail(x)
        count(y)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError) as caught:
            program.retune(steps=100)
        assert caught.value.op is op
        assert caught.value.step == at - 1
        assert isinstance(caught.value.__cause__, ArithmeticError)
        assert x[0] == at
        assert program.replay(3) == 3
        assert x[0] == at + 3
        program.retune(steps=20)
        assert x[0] == at + 23


def test_an_interrupt_in_it(machine):
    x = np.zeros(1)

    @ost.task
    def interrupts(x: ost.ReadWrite):
        x += 1
        if x[0] == 40:
            raise KeyboardInterrupt

    with ost.capture() as graph:
        interrupts(x)
    with graph.compile(machine) as program:
        with pytest.raises(KeyboardInterrupt):
            program.retune(steps=200)
        assert program.replay(2) == 2


def test_barriers_arrive_once_a_step(machine):
    barrier = ost.Barrier(1)
    x = np.zeros(1)
    graph = ost.Graph()
    op = graph.task(count, x)
    graph.arrive(barrier, after=op)
    with graph.compile(machine) as program:
        program.retune(steps=25)
        assert x[0] == 25
        assert barrier.phase == 25
        program.replay(2)
        assert barrier.phase == 27


def test_reservations_are_held_in_turn(machine):
    reservation, x = ost.Reservation(), np.zeros(1)
    graph = ost.Graph()
    first = graph.acquire(reservation)
    op = graph.task(count, x, after=first)
    graph.release(reservation, after=op)
    with graph.compile(machine) as program:
        program.retune(steps=25)
        program.replay(5)
    assert x[0] == 30
    assert reservation.acquire().done


def test_runs_before_and_after_it_are_in_order(machine):
    x, event = np.zeros(1), ost.UserEvent()
    seen = []

    @ost.task
    def note(x: ost.ReadWrite, step):
        seen.append(step)

    with ost.capture() as graph:
        note(x, ost.step)
    with graph.compile(machine) as program:
        first = program.submit(3, after=event)
        threading.Timer(0.05, event.trigger).start()
        program.retune(steps=20)
        assert first.done()
        last = program.submit(2)
        assert last.result(60) == 2
    assert seen == list(range(25))


def test_other_threads_may_submit_meanwhile(machine, in_threads):
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)
    with graph.compile(machine) as program:

        def submit():
            for _ in range(50):
                assert program.submit(2).result(60) == 2

        def retune():
            for _ in range(5):
                program.retune(steps=20)

        in_threads(submit, retune, submit)
    assert x[0] == 300


def test_two_threads_at_once(machine, in_threads):
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)
    with graph.compile(machine) as program:
        in_threads(*[lambda: program.retune(steps=30)] * 2)
        program.replay(1)
    assert x[0] == 61


def test_rebinding_before_and_after(machine):
    a, b, c = (np.zeros(1) for _ in range(3))
    with ost.capture() as graph:
        count(a)
    with graph.compile(machine) as program:
        program.retune(steps=10)
        program.rebind([(a, b)])
        program.retune(steps=20)
        program.rebind([(b, c)])
        program.replay(5)
        program.retune(steps=5)
    assert (a[0], b[0], c[0]) == (10, 20, 10)


def test_explain_says_that_costs_were_traced(machine):
    @ost.task(releases_gil=True)
    def nap(x: ost.ReadWrite):
        time.sleep(0.002)

    arrays = [np.zeros(1) for _ in range(4)]
    with ost.capture() as graph:
        for array in arrays:
            nap(array)
    with graph.compile(machine) as program:
        program.retune(steps=40)
        text = program.explain()
        assert "nap" in text
        program.statistics()
        program.trace(2)
        run = program.submit(2, profile=True)
        run.result(60)
        assert {record.op for record in run.profile} == set(graph.ops)


def test_what_was_chosen_stays_chosen(machine):
    @ost.task
    def relax(x: ost.ReadWrite):
        time.sleep(0.003)
        x += 1

    @relax.variant()
    def quick(x: ost.ReadWrite):
        x += 1

    x = np.zeros(1)
    with ost.capture() as graph:
        relax(x)
    graph.tune(machine, progress=False)
    with graph.compile(machine) as program:
        assert "quick" in program.explain()
        program.retune(steps=20)
        assert "quick" in program.explain()
        program.replay(1)
    assert x[0] == 21


def test_an_empty_graph(machine):
    with ost.Graph().compile(machine) as program:
        program.retune(steps=10)
        program.replay(2)


def test_nested_graphs(machine):
    graph, arrays = several()
    outer = ost.Graph()
    outer.subgraph(graph)
    with outer.compile(machine) as program:
        program.retune(steps=33)
        program.replay()
    assert values(arrays) == after_steps(34)


def test_conditions_are_given_as_to_a_replay(machine):
    x = np.zeros(1)
    graph = ost.Graph()
    before = graph.precondition("go")
    graph.task(count, x, after=before)
    go = ost.UserEvent()
    go.trigger()
    with graph.compile(machine) as program:
        program.retune(steps=20, after={"go": go})
        assert x[0] == 20
        with pytest.raises(ValueError, match="go"):
            program.retune(steps=20)


@pytest.mark.parametrize("runs", ["concurrent", "once"])
def test_programs_whose_runs_do_not_follow_each_other_say_so(machine, runs):
    """Steps of one run cannot be handed from one program to another where runs are independent, or only one."""
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)
    with graph.compile(machine, runs=runs) as program:
        with pytest.raises(ValueError, match=runs):
            program.retune(steps=20)
        assert x[0] == 0
        assert program.replay() == 1


def test_callbacks_and_events_of_runs_submitted_before_work_afterwards(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)
    with graph.compile(machine) as program:
        runs = [program.submit(3) for _ in range(3)]
        called = []
        program.retune(steps=30)
        runs[0].add_done_callback(called.append)
        assert [run.result(60) for run in runs] == [3, 3, 3]
        assert called == [runs[0]]
        assert runs[2].event.done


def test_what_is_not_used_any_more_is_given_back(machine, eventually):
    class Token:
        """Something that an op refers to."""

    @ost.task
    def touch(token: ost.Read, x: ost.ReadWrite):
        x += 1

    def retuned():
        token = Token()
        with ost.capture() as graph:
            touch(token, np.zeros(1))
        with graph.compile(machine) as program:
            for _ in range(5):
                program.retune(steps=20)
        return weakref.ref(token)

    gone = retuned()
    eventually(lambda: gc.collect() >= 0 and gone() is None)


@settings(max_examples=12)
@given(
    calls=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0.0, 1e-7, 1e-5, 1e-3, 1.0])),
        min_size=1,
        max_size=10,
    ),
    ring=st.integers(1, 3),
    steps=st.lists(st.integers(1, 120), min_size=1, max_size=3),
)
@pytest.mark.parametrize("cpus", [2, 4])
def test_whatever_the_costs_were_the_result_is_that_of_a_loop(cpus, calls, ring, steps):
    """Costs that are far off make for schedules that are given up."""

    def mix(src, dst, by):
        dst *= 0.25
        dst += src[::-1] / 2 + by % 7

    @ost.task(releases_gil=True)
    def mixed(src: ost.Read, dst: ost.ReadWrite, by):
        mix(src, dst, by)

    arrays = [[np.full(3, float(n + k)) for k in range(ring)] for n in range(5)]
    expected = [[array.copy() for array in each] for each in arrays]
    with ost.capture() as graph:
        rings = [ost.ring(*each) for each in arrays]
        ops = [mixed(rings[src][0], rings[dst][1], ost.step) for src, dst, _ in calls]
    for step in range(sum(steps) + len(steps)):
        for src, dst, _ in calls:
            mix(expected[src][step % ring], expected[dst][(step + 1) % ring], step)
    costs = {op: cost for op, (_, _, cost) in zip(ops, calls, strict=True)}
    with ost.Machine(cpus=cpus, gpus=0) as machine, graph.compile(machine, costs=costs) as program:
        for count_ in steps:
            program.retune(steps=count_)
            program.replay(1)
        program.simulate()
    assert [values(each) for each in arrays] == [values(each) for each in expected]
