"""The contract on how runs of one program relate to each other: pipelined, serial, concurrent, once."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


def logging_program(machine, runs, ops=3, **options):
    """A program whose ops, one after the other, note which run they are in, and the step; and the log."""
    log = []
    g = ost.Graph()
    for k in range(ops):
        g.task(lambda k, run, s: log.append((run, s, k)), k, g.param("run"), ost.step, access=(None,) * 3)
    return g.compile(machine, runs=runs, **options), log


def whole(log):
    """Return the runs in the log's order, having checked that each is in one piece."""
    found = [run for run, _ in itertools.groupby(log, key=lambda entry: entry[0])]
    assert len(found) == len(set(found))
    return found


# The ancestor's test


@pytest.mark.parametrize("runs", ["serial", "concurrent"])
@pytest.mark.parametrize("steps", [1, 4])
def test_four_runs_whose_start_events_are_chained_in_reverse_order(runs, steps, machine):
    """Run 3 starts when the user says so, and each other run when the one submitted after it is done."""
    program, log = logging_program(machine, runs)
    with program:
        starts = [ost.UserEvent() for _ in range(4)]
        submitted = [program.submit(steps, after=starts[k], run=k) for k in range(4)]
        for k in range(3):
            submitted[k + 1].add_done_callback(lambda r, k=k: starts[k].trigger())
        with pytest.raises(TimeoutError):
            submitted[3].result(0.01)
        starts[3].trigger()
        assert submitted[0].result(60) == steps
        assert all(run.done() for run in submitted)
    assert whole(log) == [3, 2, 1, 0]
    assert len(log) == 4 * steps * 3


@pytest.mark.parametrize("runs", ["serial", "concurrent"])
def test_the_same_with_a_task_of_each_run_that_starts_the_next(runs, machine):
    starts, log = [ost.UserEvent() for _ in range(4)], []

    def work(k):
        log.append(k)
        if k:
            starts[k - 1].trigger()

    g = ost.Graph()
    g.task(work, g.param("k"), access=(None,))
    with g.compile(machine, runs=runs) as program:
        submitted = [program.submit(after=starts[k], k=k) for k in range(4)]
        starts[3].trigger()
        assert [run.result(60) for run in submitted] == [1] * 4
    assert log == [3, 2, 1, 0]


# Pipelined


def test_pipelined_is_the_default_and_in_submission_order(machine):
    program, log = logging_program(machine, "pipelined")
    with program:
        starts = [ost.UserEvent() for _ in range(5)]
        submitted = [program.submit(2, after=starts[k], run=k) for k in range(5)]
        for start in starts[::-1]:
            assert not any(run.done() for run in submitted)
            start.trigger()
        assert [run.result(60) for run in submitted] == [2] * 5
    assert whole(log) == list(range(5))
    assert [s for _, s, _ in log] == [s for s in range(10) for _ in range(3)]


def test_pipelined_runs_overlap_as_far_as_accesses_allow(machine):
    """What the first run holds back does not hold back what the second one does elsewhere."""
    x, y = np.zeros(1), np.zeros(1)
    g = ost.Graph()
    a = g.task(add, x)
    g.task(add, y, after=g.precondition("go"))
    g.postcondition("a", after=a)
    with g.compile(machine) as program:
        goes = [ost.UserEvent() for _ in range(3)]
        runs = [program.submit(after={"go": go}) for go in goes]
        runs[2].posts["a"].wait(60)
        assert (x[0], y[0]) == (3, 0)
        for go in goes[::-1]:
            assert y[0] == 0
            go.trigger()
        assert [run.result(60) for run in runs] == [1] * 3
    assert y[0] == 3


def test_pipelined_without_overlap_between_steps_where_no_edge_is_given(machine):
    """With infer=False, and no edge to another step, a step begins when the one before has ended."""
    x, y = np.zeros(1), np.zeros(1)
    g = ost.Graph(infer=False)
    g.postcondition("a", after=g.task(add, x))
    g.task(add, y, after=g.precondition("go"))
    with g.compile(machine) as program:
        go = ost.UserEvent()
        first, second = program.submit(after={"go": go}), program.submit(after={"go": go})
        first.posts["a"].wait(60)
        with pytest.raises(TimeoutError):
            second.posts["a"].wait(0.01)
        assert x[0] == 1
        go.trigger()
        assert second.result(60) == 1
    assert (x[0], y[0]) == (2, 2)


# Serial


@pytest.mark.parametrize("seed", range(6))
def test_serial_runs_go_in_the_order_in_which_their_conditions_trigger(seed, machine):
    n, rng = 8, random.Random(seed)
    program, log = logging_program(machine, "serial")
    with program:
        starts = [ost.UserEvent() for _ in range(n)]
        submitted = [program.submit(rng.randint(1, 4), after=starts[k], run=k) for k in range(n)]
        order = rng.sample(range(n), n)
        for k in order:
            starts[k].trigger()
        for run in submitted:
            run.result(60)
    assert whole(log) == order


@pytest.mark.parametrize("after", ["nothing", "one event", "done"])
def test_serial_ties_go_by_submission(after, machine):
    program, log = logging_program(machine, "serial")
    with program:
        start = ost.UserEvent()
        if after == "done":
            start.trigger()
        event = None if after == "nothing" else start
        submitted = [program.submit(2, after=event, run=k) for k in range(10)]
        if after == "one event":
            start.trigger()
        assert [run.result(60) for run in submitted] == [2] * 10
    assert whole(log) == list(range(10))


def test_serial_one_whole_run_at_a_time(machine):
    """A run that has begun and waits, for a condition of its own, keeps the others out."""
    log, reached = [], threading.Event()
    g = ost.Graph(infer=False)
    g.task(lambda k: (log.append(("a", k)), reached.set()), g.param("k"), access=(None,))
    g.task(lambda k: log.append(("b", k)), g.param("k"), access=(None,), after=g.precondition("go"))
    with g.compile(machine, runs="serial") as program:
        go = ost.UserEvent()
        first = program.submit(after={"go": go}, k=0)
        assert reached.wait(60)
        second = program.submit(after={"go": ost.merge()}, k=1)
        with pytest.raises(TimeoutError):
            second.result(0.02)
        assert log == [("a", 0)]
        go.trigger()
        assert (first.result(60), second.result(60)) == (1, 1)
    assert [k for _, k in log] == [0, 0, 1, 1]


def test_serial_a_waiting_run_can_be_cancelled_and_holds_nobody_up(machine):
    program, log = logging_program(machine, "serial")
    with program:
        never = program.submit(after=ost.UserEvent(), run="never")
        later = ost.UserEvent()
        last = program.submit(2, after=later, run="last")
        assert program.replay(3, run="now") == 3
        assert never.cancel()
        with pytest.raises(CancelledError):
            never.result(60)
        later.trigger()
        assert last.result(60) == 2
    assert whole(log) == ["now", "last"]


# Concurrent


@pytest.mark.parametrize("n", [2, 4, 16])
def test_concurrent_runs_can_meet_each_other(n, machine):
    """Correct only if all are under way at once, on however few threads."""
    barrier, log = ost.Barrier(n), []
    g = ost.Graph()
    wait = g.wait(g.param("b"), after=g.arrive(g.param("b")))
    g.task(log.append, g.param("k"), access=(None,), after=wait)
    with g.compile(machine, runs="concurrent") as program:
        for _ in range(3):
            runs = [program.submit(b=barrier, k=k) for k in range(n)]
            assert [run.result(60) for run in runs] == [1] * n
            assert sorted(log) == list(range(n))
            log.clear()
    assert barrier.phase == 3


def test_concurrent_runs_end_in_any_order(machine):
    program, log = logging_program(machine, "concurrent")
    with program:
        starts = [ost.UserEvent() for _ in range(8)]
        runs = [program.submit(2, after=starts[k], run=k) for k in range(8)]
        order = random.Random(0).sample(range(8), 8)
        for k in order:
            starts[k].trigger()
            assert runs[k].result(60) == 2
    assert whole(log) == order


def test_concurrent_steps_are_numbered_at_submission(machine):
    program, log = logging_program(machine, "concurrent", ops=1)
    with program:
        starts = [ost.UserEvent() for _ in range(4)]
        runs = [program.submit(k + 1, after=starts[k], run=k) for k in range(4)]
        for k in (3, 1, 0, 2):
            starts[k].trigger()
            runs[k].result(60)
    assert sorted(log) == [(0, 0, 0), (1, 1, 0), (1, 2, 0), *((2, s, 0) for s in (3, 4, 5)),
                           *((3, s, 0) for s in (6, 7, 8, 9))]  # fmt: skip


def test_concurrent_runs_of_many_ops_with_their_own_arrays(machine):
    """Each run's own data come as a parameter; every run's order is kept."""
    g = ost.Graph()
    for k in range(10):
        g.task(lambda out, k, s: out.append((s, k)), g.param("out"), k, ost.step, access=(None,) * 3)
    with g.compile(machine, runs="concurrent") as program:
        outs = [[] for _ in range(40)]
        runs = [program.submit(3, out=out) for out in outs]
        assert [run.result(60) for run in runs] == [3] * 40
    for k, out in enumerate(outs):
        assert out == [(3 * k + s, op) for s in range(3) for op in range(10)]


def test_concurrent_order_of_reservations_holds_within_a_run(machine):
    """A run that waits for its conditions does not keep a later one from the reservation."""
    reservation, log = ost.Reservation(), []
    g = ost.Graph()
    acquire = g.acquire(reservation, after=g.precondition("go"))
    g.release(reservation, after=g.task(log.append, g.param("k"), access=(None,), after=acquire))
    with g.compile(machine, runs="concurrent") as program:
        go = ost.UserEvent()
        first = program.submit(after={"go": go}, k=0)
        second = program.submit(2, after={"go": ost.merge()}, k=1)
        assert second.result(60) == 2
        go.trigger()
        assert first.result(60) == 1
    assert log == [1, 1, 0]


def test_concurrent_failures_are_their_runs_own(machine):
    def work(k):
        if k == 1:
            raise KeyError(k)

    g = ost.Graph()
    g.task(work, g.param("k"), access=(None,))
    with g.compile(machine, runs="concurrent") as program:
        start = ost.UserEvent()
        runs = [program.submit(after=start, k=k) for k in range(3)]
        start.trigger()
        assert runs[0].result(60) == 1
        assert runs[2].result(60) == 1
        assert isinstance(runs[1].exception(60), ost.TaskError)


def test_concurrent_from_many_threads(machine, in_threads):
    lock, counts = threading.Lock(), {}

    def count(k):
        with lock:
            counts[k] = counts.get(k, 0) + 1

    g = ost.Graph()
    g.task(count, g.param("k"), access=(None,))
    with g.compile(machine, runs="concurrent") as program:

        def work(t):
            runs = [program.submit(2, k=(t, j)) for j in range(20)]
            assert [run.result(60) for run in runs] == [2] * 20
            program.replay(3, k=(t, "replay"))

        in_threads(*[lambda t=t: work(t) for t in range(4)])
    assert counts == {(t, j): 2 for t in range(4) for j in range(20)} | {(t, "replay"): 3 for t in range(4)}


# Once


def test_once_a_second_submit_raises(machine):
    program, log = logging_program(machine, "once")
    with program:
        start = ost.UserEvent()
        run = program.submit(3, after=start, run=0)
        for call in (program.submit, program.replay):
            with pytest.raises(RuntimeError):
                call(run=1)
        start.trigger()
        assert run.result(60) == 3
        for call in (program.submit, program.replay):
            with pytest.raises(RuntimeError):
                call(run=1)
    assert whole(log) == [0]
    program, log = logging_program(machine, "once")
    with program:
        assert program.replay(2, run="it") == 2
        with pytest.raises(RuntimeError):
            program.submit(run="again")
    assert whole(log) == ["it"]


# All of them


@pytest.mark.parametrize("bad", ["parallel", "", None, 3])
def test_runs_is_checked(bad, machine):
    with pytest.raises((TypeError, ValueError)):
        ost.Graph().compile(machine, runs=bad)


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent", "once"])
def test_every_relation_does_everything(runs, machine):
    x, barrier, reservation = np.zeros(4), ost.Barrier(1), ost.Reservation()
    inner = ost.Graph()
    inner.task(add, x[3:], inner.param("k"))
    g = ost.Graph()
    go = g.precondition("go")
    op = g.task(add, x[:1], g.param("k", 2), after=go)
    g.copy(x[:1], x[1:2])
    g.fill(x[2:3], g.param("k"))
    g.subgraph(inner, params={"k": g.param("k")})
    g.release(reservation, after=g.arrive(barrier, after=g.acquire(reservation, after=op)))
    g.postcondition("done", after=op)
    with g.compile(machine, runs=runs) as program:
        run = program.submit(5, after={"go": ost.merge(), None: ost.merge()}, k=3, priority=2, profile=True)
        assert run.result(60) == 5
        run.posts["done"].wait(60)
        assert isinstance(run.stuck(), str)
    assert x.tolist() == [15, 15, 3, 15]
    assert barrier.phase == 5


def test_a_serial_run_that_waits_for_its_event_says_so(machine):
    program, _ = logging_program(machine, "serial")
    with program:
        program.replay(run=0)
        event = ost.UserEvent()
        run = program.submit(3, after=event, run=1)
        assert not run.running()
        assert run.steps_done == 0
        assert "waits for the event that the run comes after" in run.stuck()
        event.trigger()
        assert run.result(20) == 3


def test_counters_of_concurrent_runs_only_grow(machine):
    program, _ = logging_program(machine, "concurrent")
    with program:
        event = ost.UserEvent()
        runs = [program.submit(after=event, run=k) for k in range(50)]
        event.trigger()
        for run in runs:
            run.result(20)
        for k in range(100):
            program.submit(run=k).result(20)
        found = program.statistics()
    assert (found.runs_submitted, found.runs_done, found.operations) == (150, 150, 450)
