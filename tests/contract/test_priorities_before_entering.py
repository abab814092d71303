"""Priorities of runs that a lane has not entered yet: it still has that of the run before, or 0."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost


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
