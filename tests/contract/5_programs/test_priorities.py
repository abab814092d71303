"""The contract on priorities of runs, spawned tasks and ops."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


def blocked(machine):
    """Return a function that lets go of the machine's one thread, which a task holds."""
    gate, entered = threading.Event(), threading.Event()

    @ost.task(releases_gil=True)
    def hold():
        entered.set()
        assert gate.wait(60)

    machine.spawn(hold)
    assert entered.wait(60)
    return gate.set


@pytest.fixture
def narrow():
    with ost.Machine(cpus=1) as machine:
        yield machine


def test_more_urgent_runs_first_whatever_their_program(narrow):
    order, programs = [], []
    for _ in range(6):
        g = ost.Graph()
        g.task(order.append, g.param("p"), access=(None,))
        programs.append(g.compile(narrow))
    let_go = blocked(narrow)
    priorities = [0, 4, -3, 2, 7, -1]
    runs = [program.submit(priority=p, p=p) for program, p in zip(programs, priorities, strict=True)]
    let_go()
    assert [run.result(60) for run in runs] == [1] * 6
    assert order == sorted(priorities, reverse=True)
    for program in programs:
        program.close()


def test_a_run_that_is_not_urgent_after_one_that_was(narrow):
    """The first program has had an urgent run; that is over."""
    order, programs = [], []
    for _ in range(2):
        g = ost.Graph()
        g.task(order.append, g.param("p"), access=(None,))
        programs.append(g.compile(narrow))
    programs[0].submit(priority=9, p=9).result(60)
    let_go = blocked(narrow)
    runs = [programs[0].submit(priority=1, p=1), programs[1].submit(priority=2, p=2)]
    let_go()
    assert [run.result(60) for run in runs] == [1] * 2
    assert order == [9, 2, 1]
    for program in programs:
        program.close()


def test_runs_and_spawned_tasks_are_ranked_together(narrow):
    order, runs, programs = [], [], []
    note = ost.task(lambda p: order.append(p))
    let_go = blocked(narrow)
    for p in (1, 6, 3):
        g = ost.Graph()
        g.task(order.append, g.param("p"), access=(None,))
        programs.append(g.compile(narrow))
        runs.append(programs[-1].submit(priority=p, p=p))
        runs.append(narrow.spawn(note, p + 1, priority=p + 1))
    let_go()
    for run in runs:
        run.result(60)
    assert order == [7, 6, 4, 3, 2, 1]
    for program in programs:
        program.close()


def test_an_urgent_run_gets_the_thread_at_the_next_op_boundary(narrow):
    """A long run of many ops lets an urgent one in, long before its end."""
    x, seen = np.zeros(1), []
    g = ost.Graph()
    for _ in range(10):
        g.task(add, x)
    h = ost.Graph()
    h.task(lambda x: seen.append(x[0]), x, access=(ost.Read,))
    with g.compile(narrow) as long, h.compile(narrow) as urgent:
        run = long.submit(10**12)
        assert urgent.submit(priority=5).result(60) == 1
        assert narrow.spawn(ost.task(lambda: 7), priority=5).result(60) == 7
        assert not run.done()
        run.cancel()
    assert len(seen) == 1


def test_ready_ops_of_a_step_by_priority(narrow):
    order = []
    g = ost.Graph(infer=False)
    for p in (0, 5, -2, 3):
        g.task(order.append, p, access=(None,), priority=p)
    with g.compile(narrow, lanes=1) as program:
        program.replay(2)
    assert order == [5, 3, 0, -2] * 2
