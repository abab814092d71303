"""The contract on barriers, outside graphs and inside."""

from __future__ import annotations

import operator
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost

# Outside


def test_phases_complete_one_after_the_other():
    barrier = ost.Barrier(3)
    assert barrier.phase == 0
    events = [barrier.event(phase) for phase in range(4)]
    assert all(isinstance(event, ost.Event) for event in events)
    for phase in range(3):
        for _ in range(3):
            assert barrier.phase == phase
            assert [event.done for event in events] == [k < phase for k in range(4)]
            barrier.arrive()
        events[phase].wait(60)
    assert barrier.phase == 3
    assert barrier.event(0).done
    assert barrier.event(2).done
    assert not barrier.event(3).done


def test_arrive_counts():
    barrier = ost.Barrier(5)
    barrier.arrive(2)
    barrier.arrive(count=2)
    assert barrier.phase == 0
    barrier.arrive()
    assert barrier.phase == 1
    barrier.arrive(5)
    assert barrier.phase == 2


def test_excess_arrivals_are_a_runtime_error_and_do_not_arrive():
    barrier = ost.Barrier(2)
    with pytest.raises(RuntimeError):
        barrier.arrive(3)
    assert barrier.phase == 0
    barrier.arrive()
    with pytest.raises(RuntimeError):
        barrier.arrive(2)
    assert barrier.phase == 0
    barrier.arrive()
    assert barrier.phase == 1


@pytest.mark.parametrize("bad", [-1, 0, 1.5, "2", None])
def test_arrivals_are_checked(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.Barrier(bad)


@pytest.mark.parametrize("bad", [-1, 1.5, "2", None])
def test_counts_and_phases_are_checked(bad):
    barrier = ost.Barrier(2)
    with pytest.raises((TypeError, ValueError)):
        barrier.arrive(bad)
    with pytest.raises((TypeError, ValueError, IndexError)):
        barrier.event(bad)
    with pytest.raises((TypeError, ValueError, IndexError)):
        barrier.result(bad)
    assert barrier.phase == 0


@pytest.mark.parametrize("bad", ["/", 3, "plus"])
def test_reduce_is_checked(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.Barrier(2, reduce=bad, initial=0)


@pytest.mark.parametrize(
    ("reduce", "initial", "expected"),
    [
        ("+", 100, 106),
        ("*", 2, 12),
        ("min", 2, 1),
        ("max", 2, 3),
        (operator.add, 0, 6),
        (lambda a, b: a * 2 + b, 0, None),
        (lambda a, b: (a, b), "start", None),
    ],
)
def test_each_phase_starts_from_initial_and_reduces_the_values(reduce, initial, expected):
    barrier = ost.Barrier(3, reduce=reduce, initial=initial)
    for _ in range(4):
        for value in (1, 2, 3):
            barrier.arrive(value=value)
    for phase in range(4):
        result = barrier.result(phase)
        if expected is not None:
            assert result == expected
        assert result == barrier.result(0)


def test_reduce_gets_what_there_is_and_the_value():
    barrier = ost.Barrier(3, reduce=lambda so_far, value: [*so_far, value], initial=[])
    for _ in range(2):
        for value in "abc":
            barrier.arrive(value=value)
    assert [sorted(barrier.result(phase)) for phase in range(2)] == [["a", "b", "c"]] * 2


def test_values_are_arrays_and_initial_is_left_alone():
    initial = np.zeros(3)
    barrier = ost.Barrier(2, reduce="+", initial=initial)
    for k in range(6):
        barrier.arrive(value=np.full(3, float(k)))
    assert [barrier.result(phase).tolist() for phase in range(3)] == [[1] * 3, [5] * 3, [9] * 3]
    assert (initial == 0).all()


def test_an_arrival_without_a_value_does_not_change_the_result():
    barrier = ost.Barrier(3, reduce="+", initial=10)
    barrier.arrive()
    barrier.arrive(value=5)
    barrier.arrive()
    assert barrier.result(0) == 15


def test_an_arrival_after_an_event():
    barrier, event = ost.Barrier(2, reduce="+", initial=0), ost.UserEvent()
    barrier.arrive(value=1, after=event)
    barrier.arrive(value=2)
    assert not barrier.event(0).done
    event.trigger()
    barrier.event(0).wait(60)
    assert barrier.result(0) == 3
    barrier.arrive(value=3, after=event)  # done already
    barrier.arrive(value=3, after=ost.merge())
    barrier.event(1).wait(60)
    assert barrier.result(1) == 6


def test_an_arrival_after_a_poisoned_event_does_not_arrive():
    barrier, event = ost.Barrier(1), ost.UserEvent()
    barrier.arrive(after=event)
    event.poison(KeyError())
    with pytest.raises(TimeoutError):
        barrier.event(0).wait(0.01)
    assert barrier.phase == 0
    barrier.arrive()
    barrier.event(0).wait(60)
    assert barrier.event(0).exception() is None


def test_arrivals_from_many_threads(in_threads):
    barrier = ost.Barrier(8, reduce="+", initial=0)

    def work(k):
        for phase in range(50):
            barrier.arrive(value=k + phase)
            barrier.event(phase).wait(60)
            assert barrier.phase > phase

    in_threads(*[lambda k=k: work(k) for k in range(8)])
    assert barrier.phase == 50
    assert barrier.result(49) == 28 + 8 * 49


def test_a_barrier_is_met_by_loops_of_asyncio():
    import asyncio

    barrier = ost.Barrier(5)

    async def main():
        async def one():
            for phase in range(10):
                barrier.arrive()
                await barrier.event(phase)

        await asyncio.gather(*(one() for _ in range(5)))

    asyncio.run(main())
    assert barrier.phase == 10


# In graphs


def arriving(machine, barrier, **options):
    g = ost.Graph()
    op = g.arrive(barrier, **options)
    assert isinstance(op, ost.Op)
    return g.compile(machine)


def test_step_k_belongs_to_phase_p_plus_k(machine):
    barrier = ost.Barrier(2)
    barrier.arrive(2)
    barrier.arrive(2)
    with arriving(machine, barrier) as program:
        assert program.replay(5) == 5  # does not wait
        assert barrier.phase == 2
        for k in range(5):
            barrier.arrive()
            barrier.event(2 + k).wait(60)
            assert barrier.phase == 3 + k
        program.replay(2)  # steps count over the program's life
        barrier.arrive(2 - 1)
        assert barrier.phase == 8


def test_wait_is_done_when_the_phase_is(machine, eventually):
    barrier, x = ost.Barrier(1), np.zeros(1)
    g = ost.Graph()
    g.task(lambda x: x.__iadd__(1), x, access=(ost.ReadWrite,), after=g.wait(barrier))
    with g.compile(machine) as program:
        run = program.submit(3)
        for k in range(3):
            assert not run.done()
            assert x[0] <= k
            barrier.arrive()
            eventually(lambda k=k: x[0] >= k + 1)
            assert x[0] == k + 1
        assert run.result(60) == 3
        program.replay(0)
        barrier.arrive()
        assert program.replay(1) == 1  # its phase is done already


def test_two_programs_in_lockstep(machine):
    barrier, counts, wrong = ost.Barrier(2), [0, 0], []

    def work(k):
        if counts[1 - k] not in (counts[k], counts[k] + 1):
            wrong.append((k, list(counts)))
        counts[k] += 1

    programs = []
    for k in range(2):
        g = ost.Graph()
        done = g.task(work, k, access=(None,))
        g.edge(g.wait(barrier, after=g.arrive(barrier, after=done)), done, distance=1)
        programs.append(g.compile(machine))
    runs = [program.submit(50) for program in programs]
    assert [run.result(60) for run in runs] == [50, 50]
    assert counts == [50, 50]
    assert not wrong
    for program in programs:
        program.close()


def test_arrive_and_wait_of_one_step_meet_however_they_are_written(machine):
    barrier, seen = ost.Barrier(2), []
    g = ost.Graph()
    wait = g.wait(barrier)
    g.arrive(barrier)
    g.arrive(barrier)
    g.task(seen.append, ost.step, access=(None,), after=wait)
    with g.compile(machine) as program:
        program.replay(6)
    assert seen == list(range(6))
    assert barrier.phase == 6


@pytest.mark.parametrize("count", [2, 3])
def test_count_and_value(count, machine):
    barrier = ost.Barrier(count + 1, reduce="+", initial=10)
    g = ost.Graph()
    g.arrive(barrier, count=count, value=4)
    g.arrive(barrier, value=5)
    with g.compile(machine) as program:
        program.replay(2)
    assert barrier.phase == 2
    assert barrier.result(0) == barrier.result(1)
    barrier_of_one = ost.Barrier(2, reduce="max", initial=0)
    with arriving(machine, barrier_of_one, count=2, value=7) as program:
        program.replay()
    assert barrier_of_one.result(0) == 7


def test_arrive_comes_after_its_predecessors(machine):
    barrier, start, x = ost.Barrier(1), ost.UserEvent(), np.zeros(1)
    g = ost.Graph()
    write = g.task(lambda x: x.__iadd__(1), x, access=(ost.ReadWrite,))
    g.arrive(barrier, after=write)
    with g.compile(machine) as program:
        run = program.submit(after=start)
        assert not barrier.event(0).done
        start.trigger()
        barrier.event(0).wait(60)
        assert x[0] == 1
        run.result(60)


def test_excess_arrivals_in_a_graph_are_a_task_error(machine):
    barrier = ost.Barrier(2)
    g = ost.Graph()
    op = g.arrive(barrier, count=2, after=g.arrive(barrier))
    with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay()
    assert error.value.op.name == op.name
    assert error.value.step == 0
    assert isinstance(error.value.__cause__, RuntimeError)
    assert "test_barriers.py" in str(error.value)


def test_arrivals_as_parameters(machine):
    barrier = ost.Barrier(4, reduce="max", initial=0)
    g = ost.Graph()
    g.arrive(barrier, count=g.param("n", 4), value=g.param("v"))
    with g.compile(machine) as program:
        program.replay(v=3)
        barrier.arrive()
        program.replay(n=3, v=5)
        with pytest.raises((TypeError, ValueError, ost.TaskError)):
            program.replay(n="x", v=5)
    assert [barrier.phase, barrier.result(0), barrier.result(1)] == [2, 3, 5]


def test_a_barrier_as_a_parameter(machine):
    one, two = ost.Barrier(1, reduce="+", initial=0), ost.Barrier(2, reduce="+", initial=0)
    one.arrive()
    seen = []
    g = ost.Graph()
    b = g.param("b")
    arrive = g.arrive(b, value=4)
    g.task(lambda: seen.append(two.phase), access=(), after=g.wait(b, after=arrive))
    with g.compile(machine) as program:
        program.replay(b=one)
        program.replay(b=one)
        assert one.phase == 3
        assert [one.result(1), one.result(2)] == [4, 4]
        run = program.submit(b=two)
        two.arrive()
        assert run.result(60) == 1
        assert seen == [0, 0, 1]
        for bad in (None, 3, "x"):
            with pytest.raises((TypeError, ValueError)):
                program.submit(b=bad)
        with pytest.raises(TypeError):
            program.submit()


def test_several_barriers_and_several_phases_ahead(machine):
    barriers = [ost.Barrier(2) for _ in range(3)]
    g = ost.Graph(infer=False)
    for barrier in barriers:
        g.arrive(barrier, after=g.ops[-1:])
    with g.compile(machine) as program:
        program.submit(10).result(60)
        assert [b.phase for b in barriers] == [0, 0, 0]
        threads = [threading.Thread(target=lambda b=b: [b.arrive() for _ in range(10)]) for b in barriers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [b.phase for b in barriers] == [10, 10, 10]


@pytest.mark.parametrize("bad", [None, 3, "barrier", threading.Barrier(2)])
def test_what_is_no_barrier_is_refused(bad):
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.arrive(bad)
    with pytest.raises((TypeError, ValueError)):
        g.wait(bad)
    assert len(g) == 0


def test_cancel_while_a_barrier_is_waited_for(machine):
    barrier = ost.Barrier(2)
    g = ost.Graph()
    g.wait(barrier, after=g.arrive(barrier))
    with g.compile(machine) as program:
        run = program.submit(3)
        assert run.cancel()
        with pytest.raises(CancelledError):
            run.result(60)


def arriving_at_given(machine, waits=False, runs="pipelined", **more):
    graph = ost.Graph()
    barrier = graph.param("barrier")
    arrived = graph.arrive(barrier, **more)
    if waits:
        graph.wait(barrier, after=arrived)
    return graph.compile(machine, runs=runs)


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize(
    ("arrivals", "steps", "count", "phases"), [(2, 1, 1, 2), (1, 3, 1, 12), (2, 3, 1, 6), (4, 2, 2, 4)]
)
def test_a_given_barrier_is_used_from_its_phase_at_submission(machine, in_flight, arrivals, steps, count, phases):
    barrier, start = ost.Barrier(arrivals), ost.UserEvent()
    if not in_flight:
        start.trigger()
    with arriving_at_given(machine, count=count) as program:
        runs = []
        for _ in range(4):
            runs.append(program.submit(steps, barrier=barrier, after=start))
            if not in_flight:
                runs[-1].result(60)
        if in_flight:
            start.trigger()
        assert [run.result(60) for run in runs] == [steps] * 4
    assert barrier.phase == phases


@pytest.mark.parametrize("order", ["ABAB", "AABB", "ABBA"])
def test_runs_of_two_programs_meet_at_given_barriers(machine, order):
    barrier = ost.Barrier(2)
    with arriving_at_given(machine, waits=True) as one, arriving_at_given(machine, waits=True) as other:
        runs = [{"A": one, "B": other}[name].submit(5, barrier=barrier) for name in order]
        assert [run.result(60) for run in runs] == [5] * 4
    assert barrier.phase == 10


def test_concurrent_runs_meet_at_a_given_barrier(machine):
    barrier = ost.Barrier(3)
    with arriving_at_given(machine, waits=True, runs="concurrent") as program:
        runs = [program.submit(2, barrier=barrier) for _ in range(6)]
        assert [run.result(60) for run in runs] == [2] * 6
    assert barrier.phase == 4


@pytest.mark.parametrize("how", ["cancelled", "poisoned"])
def test_arrivals_of_a_run_that_has_ended_are_no_longer_expected(machine, how):
    barrier, start = ost.Barrier(1), ost.UserEvent()
    with arriving_at_given(machine) as program, arriving_at_given(machine) as other:
        never_arrives = program.submit(10**12, barrier=barrier, after=start)
        if how == "cancelled":
            never_arrives.cancel()
        else:
            start.poison()
        with pytest.raises((CancelledError, ost.PoisonError)):
            never_arrives.result(60)
        assert other.replay(3, barrier=barrier) == 3
    assert barrier.phase == 3


def test_two_parameters_may_be_given_one_barrier(machine):
    barrier = ost.Barrier(2)
    graph = ost.Graph()
    graph.arrive(graph.param("one"))
    graph.arrive(graph.param("other"))
    with graph.compile(machine) as program:
        runs = [program.submit(one=barrier, other=barrier) for _ in range(3)]
        assert [run.result(60) for run in runs] == [1] * 3
    assert barrier.phase == 3
