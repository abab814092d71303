"""What the reviewers of Realm's subgraphs feared, one test for each remark that is about behaviour.

The numbers are those of section 3.4 of the inventory of Realm's subgraphs. Each test brings about the situation that
worried the reviewer, and shows what comes of it here.
"""

from __future__ import annotations

import contextvars
import inspect
import threading

import numpy as np
import pytest

import ostinato as ost
from support.endless import endless_calls


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


def chain(x, ops=4, **options):
    g = ost.Graph()
    for _ in range(ops):
        g.task(add, x, **options)
    return g


@pytest.fixture(scope="module", params=[1, 2], ids=["1 thread", "2 threads"])
def machine(request):
    with ost.Machine(cpus=request.param, gpus=0) as machine:
        yield machine


def test_r1_the_scheduler_does_not_know_graphs_all_kinds_of_work_mix_on_one_thread(machine):
    """Runs of graphs, spawned tasks, ops that wait and blocking tasks, all at once: each does what it does alone."""
    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)
    barrier, go = ost.Barrier(2), ost.UserEvent()
    waiting = ost.Graph()
    waiting.task(add, y, after=waiting.wait(barrier, after=waiting.arrive(barrier)))
    gated = ost.Graph()

    @ost.task(blocking=True)
    def blocking(z: ost.ReadWrite):
        z += 1

    gated.postcondition("done", after=gated.task(blocking, z, after=gated.precondition("go")))
    with chain(x).compile(machine) as p, waiting.compile(machine) as q, gated.compile(machine) as r:
        runs = [q.submit(5), r.submit(5, after={"go": go}), p.submit(5)]
        spawned = [machine.spawn(ost.task(lambda k: k), k) for k in range(20)]
        assert [run.result(60) for run in spawned] == list(range(20))
        assert runs[2].result(60) == 5
        assert p.replay(5) == 5
        assert not runs[0].done()
        assert not runs[1].done()
        go.trigger()
        for _ in range(5):
            barrier.arrive()
        assert [run.result(60) for run in runs] == [5] * 3
    assert (x[0], y[0], z[0]) == (40, 5, 5)


def test_r4_each_run_brings_its_context_to_the_thread_and_takes_it_away(machine):
    """Two runs that take turns on the same threads, task by task, each see their own context."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    n, seen, programs = 10, {"a": [], "b": []}, []
    turns = [ost.Barrier(1) for _ in range(2 * n + 1)]
    for who, first in (("a", 0), ("b", 1)):
        g = ost.Graph()
        for k in range(first, 2 * n, 2):  # the other one's task comes between any two of mine
            op = g.task(lambda who: seen[who].append(variable.get()), who, access=(None,), after=g.wait(turns[k]))
            g.arrive(turns[k + 1], after=op)
        programs.append(g.compile(machine))
    runs = []
    for who, program in zip("ab", programs, strict=True):
        token = variable.set(who)
        runs.append(program.submit())
        variable.reset(token)
    turns[0].arrive()
    assert [run.result(60) for run in runs] == [1, 1]
    assert seen == {"a": ["a"] * n, "b": ["b"] * n}
    for program in programs:
        program.close()


def test_r7_the_end_of_a_run_does_not_wait_for_bookkeeping():
    """A callback that takes its time delays other callbacks, but no result, no event, no postcondition."""
    x, gate, entered = np.zeros(1), threading.Event(), threading.Event()
    begin = ost.UserEvent()
    with ost.Machine(cpus=1) as machine:
        g = ost.Graph()
        g.postcondition("done", after=g.task(add, x))
        with g.compile(machine) as program:
            first = program.submit(after=begin)
            first.event.add_done_callback(lambda e: (entered.set(), gate.wait(60)))
            begin.trigger()
            try:
                assert first.result(60) == 1
                for _ in range(5):
                    run = program.submit(3, profile=True)
                    run.posts["done"].wait(60)
                    run.event.wait(60)
                    assert run.result(60) == 3
                    assert program.replay(2) == 2
            finally:
                gate.set()
    assert x[0] == 26


def test_r8_a_graph_with_nothing_ready_does_not_keep_a_thread_from_others(machine):
    """Runs under way, whose next ops wait for the outside, on every thread: spawned tasks and programs go on."""
    go, x = ost.UserEvent(), np.zeros(1)
    g = ost.Graph()
    for processor in machine.processors:
        begun = g.task(lambda: None, access=(), on=processor)
        g.task(lambda: None, access=(), on=processor, after=[begun, g.precondition(processor.name)])
    with g.compile(machine) as idle, chain(x).compile(machine) as program:
        run = idle.submit(after={processor.name: go for processor in machine.processors})
        for k in range(20):
            for processor in machine.processors:
                assert machine.spawn(ost.task(lambda k: k), k, on=processor).result(60) == k
        assert program.submit(10).result(60) == 10
        assert program.replay(10) == 10
        assert not run.done()
        go.trigger()
        assert run.result(60) == 1


def test_r9_waiting_inside_a_task_is_refused_and_never_spins(machine):
    """What would wait for work of its own thread raises at once; where it says that it blocks, it may."""
    x = np.zeros(1)
    with chain(x).compile(machine) as program:

        def wait_for_own_thread():
            machine.spawn(add, x).result()

        for wait in (wait_for_own_thread, program.replay, ost.UserEvent().wait):
            g = ost.Graph()
            g.task(wait, access=(), on=machine.processors[0])
            with g.compile(machine) as bad, pytest.raises(ost.TaskError) as error:
                bad.submit().result(60)
            assert isinstance(error.value.__cause__, ost.ContractError)
        g = ost.Graph()
        g.task(ost.task(blocking=True)(wait_for_own_thread))
        g.task(ost.task(blocking=True)(program.replay), 2)
        with g.compile(machine) as good:
            assert good.submit(3).result(60) == 3


def test_r10_graphs_and_single_tasks_take_turns_and_nobody_starves(machine):
    """Endless programs on every thread, and endless spawns: each of them goes on."""
    counts = np.zeros(3)

    def count():
        counts[2] += 1

    programs = []
    for k in range(2):
        g = ost.Graph()
        for processor in machine.processors:
            g.task(add, counts[k : k + 1], on=processor)
        programs.append(g.compile(machine))
    runs = [program.submit(10**12) for program in programs]
    try:
        with endless_calls(machine, 1, work=count):
            for _ in range(5):
                before = counts.copy()
                while not (counts > before + 5).all():  # the watchdog ends it if somebody starves
                    assert machine.spawn(ost.task(lambda: 1)).result(60) == 1
    finally:
        for run in runs:
            run.cancel()
    for program in programs:
        program.close()


def test_r11_replays_in_flight_on_the_same_processors_whatever_the_order_they_came_in(machine, in_threads):
    """Programs that cross all processors, in opposite directions, submitted in opposite orders by two threads."""
    x = np.zeros(4)
    programs = []
    for k in range(4):
        g = ost.Graph()
        for processor in list(machine.processors)[:: 1 if k % 2 else -1] * 3:
            g.task(add, x[k : k + 1], on=processor)
        programs.append(g.compile(machine))

    def work(order):
        for _ in range(25):
            runs = [programs[k].submit(2) for k in order]
            assert [run.result(60) for run in runs] == [2] * 4

    in_threads(lambda: work([0, 1, 2, 3]), lambda: work([3, 2, 1, 0]), lambda: work([2, 0, 3, 1]))
    assert (x == 3 * 25 * 2 * 3 * len(machine.processors)).all()
    for program in programs:
        program.close()


def test_r14_the_client_changes_nothing_and_what_needs_a_promise_is_opt_in(machine):
    """The same function: called, in a graph, nested, spawned, with the promise that it blocks or lets the GIL go."""
    results = []
    for promise in ({}, {"releases_gil": True}, {"blocking": True}):

        @ost.task(**promise)
        def work(x: ost.ReadWrite, k):
            x *= 2
            x += k

        x = np.ones(2)
        work(x, 1)
        inner = ost.Graph()
        inner.task(work, x, 2)
        g = ost.Graph()
        g.task(work, x, ost.step)
        g.subgraph(inner)
        with g.compile(machine) as program:
            program.replay(3)
        machine.spawn(work, x, 5).result(60)
        results.append(x.tolist())
    assert results[0] == results[1] == results[2]


def test_r15_there_is_one_compiled_path_and_no_mode_to_choose(machine):
    """Ops of every kind in one graph, with ports, parameters and a profile, compile and run; nothing falls back."""
    names = set(inspect.signature(ost.Graph.compile).parameters)
    assert names == {"self", "machine", "runs", "lanes", "costs", "adapt", "ranks"}
    x, flag, barrier, reservation = np.zeros(4), np.zeros(1), ost.Barrier(1, reduce="+", initial=0), ost.Reservation()
    inner = chain(x[3:], ops=2)
    g = ost.Graph()
    a, b = np.zeros(1), np.zeros(1)
    ring = g.ring(a, b)
    go = g.precondition("go")
    op = g.task(add, x[:1], g.param("k"), after=go)
    g.copy(x[:1], x[1:2], reduce="+")
    g.copy(x, x[2:3], indices=np.array([0]))
    g.copy(ring[0], ring[1])
    g.fill(flag, g.param("stop", 0))
    g.subgraph(inner)
    held = g.acquire(reservation, after=op)
    wait = g.wait(barrier, after=g.arrive(barrier, value=g.param("k"), after=held))
    g.release(reservation, after=g.task(ost.task(blocking=True)(lambda: None), after=wait))
    g.until(flag)
    g.postcondition("done", after=op)
    with g.compile(machine) as program:
        run = program.submit(3, after={"go": ost.merge()}, k=2, profile=True)
        assert run.result(60) == 3
        run.posts["done"].wait(60)
        assert {record.status for record in run.profile} == {"ok"}
        assert isinstance(program.explain(), str)
    assert x.tolist() == [6, 12, 6, 6]
    assert [barrier.result(phase) for phase in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent"])
def test_r17_what_many_threads_hand_over_arrives_once_and_in_order(runs, machine, in_threads):
    """Submits, spawns and triggers from many threads at once: nothing is lost, doubled or, of one thread, reordered."""
    threads, count = 6, 60
    log, spawned, runs_of_tasks, lock = [], [], [], threading.Lock()

    def note(where, what):
        with lock:
            where.append(what)

    g = ost.Graph()
    g.task(lambda k: note(log, k), g.param("k"), access=(None,))
    with g.compile(machine, runs=runs) as program:

        def work(thread):
            made = []
            for k in range(count):
                event = ost.UserEvent()
                made.append(program.submit(after=event if k % 3 == 0 else None, k=(thread, k)))
                runs_of_tasks.append(machine.spawn(ost.task(note), spawned, (thread, k)))
                event.trigger()
            assert [run.result(60) for run in made] == [1] * count

        in_threads(*[lambda t=t: work(t) for t in range(threads)])
    everything = [(t, k) for t in range(threads) for k in range(count)]
    assert sorted(log) == everything
    if runs == "pipelined":
        for thread in range(threads):
            assert [k for t, k in log if t == thread] == list(range(count))
    for run in runs_of_tasks:
        run.result(60)
    assert sorted(spawned) == everything
