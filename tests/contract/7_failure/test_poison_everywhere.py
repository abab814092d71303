"""Exact poison: what depends on a failure is skipped, through ops of every kind, and nothing else is.

The oracle works out from `graph.edges` which ops of which steps are to be skipped.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost
from native import load


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@ost.task
def boom(x: ost.ReadWrite):
    raise KeyError("original")


def original(error, causes):
    return any(isinstance(cause, KeyError) for cause in causes(error))


def downstream(graph, steps, failed):
    """Return the (op, step) that are to be skipped when those of `failed` fail in a run of so many steps."""
    sources = {op: [] for op in graph.ops}
    for a, b, distance in graph.edges:
        sources[b].append((a, distance))
    skipped = set()
    for step in range(steps):
        changed = True
        while changed:  # `graph.ops` need not be sorted by the edges given
            changed = False
            for op in graph.ops:
                bad = any((a, step - d) in skipped or (a, step - d) in failed for a, d in sources[op])
                if bad and (op, step) not in skipped:
                    skipped.add((op, step))
                    changed = True
    return skipped


# At random


def random_graph(rng, machine):
    """A graph of ops of many kinds, and the tasks among them, which fail where `failed` says."""
    failed, ran, x = set(), set(), np.zeros((5, 4))
    g = ost.Graph(infer=rng.random() < 0.6)
    tasks = []

    def row():
        return x[rng.randrange(5)] if g.infer else np.zeros(4)

    def body(which, step):
        ran.add((tasks[which], step))
        if (tasks[which], step) in failed:
            raise ArithmeticError(which)

    def add_task(after):
        which = len(tasks)
        accesses = [rng.choice([None, ost.Read, ost.ReadWrite]) for _ in range(2)]
        rows = [None if access is None else row() for access in accesses]

        def call(a, b, s):
            body(which, s)

        call.__annotations__ = {n: m for n, m in zip("ab", accesses, strict=True) if m is not None}
        task = ost.task(blocking=rng.random() < 0.2)(call)
        on = rng.choice([None, None, machine.processors[-1].name])
        tasks.append(g.task(task, *rows, ost.step, after=after, on=on))

    for _ in range(rng.randint(4, 14)):
        after = rng.sample(list(g.ops), min(len(g.ops), rng.choice([0, 0, 1, 1, 2])))
        after += [ost.previous(op) for op in rng.sample(list(g.ops), min(len(g.ops), rng.choice([0, 0, 1])))]
        kind = rng.choice(["task", "task", "task", "copy", "fill", "arrive", "wait", "section", "nested"])
        if kind == "task":
            add_task(after)
        elif kind == "copy":
            g.copy(row(), row(), after=after)
        elif kind == "fill":
            g.fill(row(), 0, after=after)
        elif kind == "arrive":
            g.arrive(ost.Barrier(100), after=after)
        elif kind == "wait":
            barrier = ost.Barrier(1)
            for _ in range(20):
                barrier.arrive()
            # Compiled at phase 20, its phases are to come; so arrive in the same step, whatever else happens.
            g.arrive(barrier)
            g.wait(barrier, after=after)
        elif kind == "section":
            reservation = ost.Reservation()
            acquire = g.acquire(reservation, after=after)
            add_task([acquire])
            g.release(reservation, after=tasks[-1])
        else:
            inner = ost.Graph()
            inner.task(lambda x: None, row(), access=(ost.ReadWrite,))
            g.subgraph(inner, after=after)
    if not tasks:
        add_task([])
    return g, tasks, failed, ran


@pytest.mark.parametrize("seed", range(40))
def test_exactly_what_is_downstream_is_skipped(seed, machine):
    rng = random.Random(seed)
    g, tasks, failed, ran = random_graph(rng, machine)
    steps = rng.randint(1, 7)
    wanted = {(rng.choice(tasks), rng.randrange(steps)) for _ in range(rng.choice([1, 1, 2, 3]))}
    failed |= wanted
    with g.compile(machine) as program:
        run = program.submit(steps, on_error="continue", profile=True)
        error = run.exception(60)
        skipped = downstream(g, steps, wanted)
        really = wanted - skipped
        assert isinstance(error, ost.TaskError)
        place = {op: k for k, op in enumerate(g.ops)}
        least = min(really, key=lambda found: (found[1], place[found[0]]))
        assert (error.op, error.step) == least
        assert ran == {(op, step) for op in tasks for step in range(steps)} - skipped
        status = {(record.op, record.step): record.status for record in run.profile}
        for found, told in status.items():
            if found in really:
                assert told == "failed"
            elif found[0] in tasks or (found[0] in place and found[0].name in ("copy", "fill", "arrive")):
                assert told == ("poisoned" if found in skipped else "ok"), (found, told)
        failed.clear()
        ran.clear()
        assert program.submit(2).result(60) == 2  # starts clean
        assert len(ran) == 2 * len(tasks)


# Every kind by itself, beside one of the same kind that is not downstream


def test_copy_fill_and_native(machine):
    x, y, z = np.ones(1), np.zeros((4, 1)), np.zeros((4, 1))
    native = ost.native(load("contract/tasks.c").add, (ost.ReadWrite, int))
    g = ost.Graph()
    bad = g.task(boom, x)
    for array, after in ((y, [bad]), (z, [])):
        g.copy(np.ones(1), array[0], after=after)
        g.fill(array[1], 1, after=after)
        g.task(native, array[2], 1, after=after)
        g.copy(np.ones(1), array[3], reduce="+", after=after)
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay(on_error="continue")
    assert y.sum() == 0
    assert z.sum() == 4


def test_skipped_arrivals_do_not_arrive_so_that_the_phase_stays_open(machine):
    bad_one, good_one = ost.Barrier(1), ost.Barrier(1)
    g = ost.Graph()
    g.arrive(bad_one, after=g.task(boom, np.zeros(1)))
    g.arrive(good_one)
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay()
    assert (bad_one.phase, good_one.phase) == (0, 1)
    bad_one.arrive()
    bad_one.event(0).wait(60)


def test_a_skipped_wait_does_not_wait(machine):
    g = ost.Graph()
    g.wait(ost.Barrier(1), after=g.task(boom, np.zeros(1)))
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.submit().result(60)


@pytest.mark.parametrize("on_error", ["stop", "continue"])
def test_reservations_order_but_carry_no_poison(on_error, machine):
    """The second section comes after the first one, but does not depend on it."""
    reservation, ran = ost.Reservation(), []
    g = ost.Graph()
    failed = g.task(boom, np.zeros(1), after=g.acquire(reservation))
    g.release(reservation, after=failed)
    inside = g.task(ran.append, ost.step, access=(None,), after=g.acquire(reservation))
    g.release(reservation, after=inside)
    with g.compile(machine) as program:
        run = program.submit(3, on_error=on_error)
        with pytest.raises(ost.TaskError) as error:
            run.result(60)
        assert (error.value.op, error.value.step) == (failed, 0)
        assert ran == (list(range(3)) if on_error == "continue" else list(range(len(ran))))
        assert 0 in ran
        reservation.acquire().wait(60)
        reservation.release()


def test_nested_graphs_are_poisoned_op_by_op(machine):
    """Failure inside reaches what depends on it, inside and outside; failure outside what is behind its port."""
    x = np.zeros(6)
    inner = ost.Graph()
    a = inner.task(boom, np.zeros(1), after=inner.precondition("go"))
    inner.postcondition("a", after=a)
    inner.postcondition("b", after=inner.task(add, x[0:1]))
    g = ost.Graph()
    op = g.subgraph(inner, preconditions={"go": ()})
    g.task(add, x[1:2], after=op.posts["a"])
    g.task(add, x[2:3], after=op.posts["b"])
    g.task(add, x[3:4], after=op)
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay(on_error="continue")
    assert x.tolist() == [1, 0, 1, 0, 0, 0]
    inner = ost.Graph()
    inner.task(add, x[4:5], after=inner.precondition("go"))
    inner.task(add, x[5:6])
    g = ost.Graph()
    g.subgraph(inner, preconditions={"go": g.task(boom, np.zeros(1))})
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay(on_error="continue")
    assert x.tolist() == [1, 0, 1, 0, 0, 1]


def test_blocking_tasks(machine):
    x = np.zeros(2)

    @ost.task(blocking=True)
    def blocking(x: ost.ReadWrite):
        x += 1

    @ost.task(blocking=True)
    def bad():
        raise KeyError

    g = ost.Graph(infer=False)
    first = g.task(bad)
    g.task(blocking, x[:1], after=first)
    g.task(blocking, x[1:])
    with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay(on_error="continue")
    assert error.value.op is first
    assert x.tolist() == [0, 1]


# Conditions


def test_postconditions_downstream_are_poisoned_and_the_others_trigger(machine, causes):
    g = ost.Graph()
    bad, good = g.task(boom, np.zeros(1)), g.task(add, np.zeros(1))
    g.postcondition("bad", after=bad)
    g.postcondition("good", after=good)
    g.postcondition("both", after=[bad, good])
    with g.compile(machine) as program:
        run = program.submit()
        run.posts["good"].wait(60)
        for name in ("bad", "both"):
            with pytest.raises(ost.PoisonError) as error:
                run.posts[name].wait(60)
            assert original(error.value, causes)
        with pytest.raises(ost.TaskError):
            run.result(60)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_poisoned_precondition_skips_what_comes_after_it_and_nothing_else(steps, machine):
    x, y, go, cause = np.zeros(1), np.zeros(1), ost.UserEvent(), KeyError("original")
    g = ost.Graph()
    g.postcondition("x", after=g.task(add, x))
    g.postcondition("y", after=g.task(add, y, after=g.precondition("go")))
    with g.compile(machine) as program:
        run = program.submit(steps, after={"go": go}, on_error="continue")
        go.poison(cause)
        with pytest.raises(ost.PoisonError) as error:
            run.result(60)
        assert error.value.__cause__ is cause
        run.posts["x"].wait(60)
        with pytest.raises(ost.PoisonError):
            run.posts["y"].wait(60)
        assert (x[0], y[0]) == (steps, 0)
        assert program.submit(2, after={"go": ost.merge()}).result(60) == 2
    assert (x[0], y[0]) == (steps + 2, 2)


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent", "once"])
def test_a_poisoned_default_precondition_skips_everything(runs, machine, causes):
    x, barrier, cause, start = np.zeros(2), ost.Barrier(1), KeyError("original"), ost.UserEvent()
    g = ost.Graph()
    op = g.task(add, x[:1])
    g.fill(x[1:], 1)
    g.arrive(barrier)
    g.postcondition("done", after=op)
    with g.compile(machine, runs=runs) as program:
        run = program.submit(after=start)
        start.poison(cause)
        with pytest.raises(ost.PoisonError) as error:
            run.result(60)
        assert cause in causes(error.value)
        assert isinstance(run.exception(60), ost.PoisonError)
        with pytest.raises(ost.PoisonError) as error:
            run.posts["done"].wait(60)
        with pytest.raises(ost.PoisonError):
            run.event.wait(60)
        if runs != "once":
            assert program.submit(2).result(60) == 2
    assert x.tolist() == ([0, 0] if runs == "once" else [2, 1])
    assert barrier.phase == 0  # steps 0 and, later, 1 and 2: the phase of step 0 stays open


def test_poison_through_programs_spawned_tasks_and_merges(machine, causes):
    ran = []
    g = ost.Graph()
    op = g.task(ran.append, g.param("k"), access=(None,), after=g.precondition("in"))
    g.postcondition("out", after=op)
    h = ost.Graph()
    h.postcondition("out", after=h.task(boom, np.zeros(1)))
    with g.compile(machine) as second, h.compile(machine) as first, g.compile(machine) as third:
        bad = first.submit()
        middle = second.submit(after={"in": bad.posts["out"]}, k=1)
        spawned = machine.spawn(ost.task(ran.append), 2, after=middle.posts["out"])
        last = third.submit(after={"in": ost.merge(spawned, ost.merge())}, k=3)
        healed = machine.spawn(ost.task(lambda: 4), after=ost.merge(last, ignore_poison=True))
        assert healed.result(60) == 4
        for run in (last, spawned, middle):
            with pytest.raises(ost.PoisonError) as error:
                run.result(60)
            assert original(error.value, causes)
        assert isinstance(bad.exception(60), ost.TaskError)
        assert second.submit(after={"in": ost.merge()}, k=5).result(60) == 1
    assert ran == [5]


def test_poison_reaches_runs_submitted_before_the_failure_was_told(machine, causes):
    x, y, start, go = np.zeros(1), np.zeros(1), ost.UserEvent(), ost.UserEvent()
    g = ost.Graph()
    g.task(add, x, after=g.precondition("go"))
    g.task(add, y)
    with g.compile(machine) as program:
        first = program.submit(after={None: start, "go": go}, on_error="continue")
        second = program.submit(3, after={"go": ost.merge()}, on_error="continue")
        start.trigger()
        go.poison(KeyError("original"))
        with pytest.raises(ost.PoisonError) as error:
            second.result(60)
        assert original(error.value, causes)
        assert isinstance(first.exception(60), ost.PoisonError)
        assert (x[0], y[0]) == (0, 4)
        assert program.submit(2, after={"go": ost.merge()}).result(60) == 2
    assert (x[0], y[0]) == (2, 6)


def test_a_cancelled_run_leaves_no_poison(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, after=g.precondition("go"))
    with g.compile(machine) as program:
        first = program.submit(5, after={"go": ost.UserEvent()})
        second = program.submit(5, after={"go": ost.merge()})
        assert first.cancel()
        with pytest.raises(CancelledError):
            first.result(60)
        assert second.result(60) == 5
    assert x[0] == 5 + first.steps_done


def test_failures_while_many_runs_wait(machine):
    """Of twenty programs that come after one event each, those fail that are told to, and no others."""
    counts, lock = {}, threading.Lock()

    def work(k):
        with lock:
            counts[k] = counts.get(k, 0) + 1
        if k % 3 == 0:
            raise KeyError(k)

    g = ost.Graph()
    g.task(work, g.param("k"), access=(None,))
    programs = [g.compile(machine) for _ in range(20)]
    start = ost.UserEvent()
    runs = [programs[k].submit(2, after=start, k=k) for k in range(20)]
    after = [programs[(k + 1) % 20].submit(after=run, k=100) for k, run in enumerate(runs)]
    start.trigger()
    for k, run in enumerate(runs):
        assert isinstance(run.exception(60), ost.TaskError) == (k % 3 == 0)
    for k, run in enumerate(after):
        bad = k % 3 == 0 or (k + 1) % 20 % 3 == 0
        assert isinstance(run.exception(60), ost.PoisonError) == bad
    for program in programs:
        program.close()
