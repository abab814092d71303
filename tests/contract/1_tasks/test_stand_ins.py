"""The contract on `verify`, `trace`, `explain` and `rebind`, where programs meet what is outside."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@pytest.fixture
def everything(machine):
    """A program that uses all there is, with what it uses."""
    x, barrier, reservation = np.zeros(4), ost.Barrier(2, reduce="+", initial=0), ost.Reservation()
    inner = ost.Graph()
    inner.postcondition("done", after=inner.task(add, x[2:3], inner.param("k"), after=inner.precondition("go")))
    g = ost.Graph()
    go = g.precondition("go")
    first = g.task(add, x[:1], g.param("k"), after=go)
    held = g.acquire(reservation, after=first)
    arrive = g.arrive(barrier, count=2, value=g.param("k"), after=held)
    second = g.task(add, x[1:2], after=g.wait(barrier, after=arrive))
    g.release(reservation, after=second)
    op = g.subgraph(inner, params={"k": g.param("k")}, preconditions={"go": second})
    third = g.task(ost.task(blocking=True)(lambda: ost.merge().wait()), after=op.posts["done"])
    g.fill(x[3:], g.param("k"), after=third)
    g.postcondition("done", after=third)
    with g.compile(machine) as program:
        yield program, x, barrier, reservation


def check_usable(program, x, barrier, steps):
    run = program.submit(steps, after={"go": ost.merge()}, k=3)
    assert run.result(60) == steps
    run.posts["done"].wait(60)
    assert x.tolist() == [3 * steps, steps, 3 * steps, 3]
    assert barrier.phase == steps


# verify


def test_verify_acts_on_stand_ins(everything):
    program, x, barrier, reservation = everything
    reservation.acquire().wait(60)  # nobody waits for it
    assert program.verify(3, after={"go": ost.merge()}, k=3)
    assert program.verify(params={"k": 2}, after={"go": ost.merge()})
    assert (x == 0).all()
    assert (barrier.phase, barrier.event(0).done) == (0, False)
    other = reservation.acquire()
    assert not other.done
    reservation.release()
    other.wait(60)
    reservation.release()
    check_usable(program, x, barrier, 2)


def test_verify_finds_a_lie_inside_a_nested_graph(machine):
    x, hidden = np.zeros(1), np.zeros(1)

    @ost.task(name="sneaky")
    def sneaky(x: ost.ReadWrite):
        x += 1
        hidden[0] += x[0]

    inner = ost.Graph()
    inner.task(sneaky, x)
    g = ost.Graph()
    g.subgraph(inner)
    g.copy(hidden, np.zeros(1))
    with g.compile(machine) as program, pytest.raises(ost.ContractError, match="sneaky"):
        program.verify(2)
    assert (x[0], hidden[0]) == (0, 0)


@pytest.mark.parametrize("runs", ["serial", "concurrent"])
def test_verify_in_other_relations_of_runs(runs, machine):
    x, barrier = np.zeros(1), ost.Barrier(2)
    g = ost.Graph()
    g.wait(barrier, after=g.arrive(barrier, count=2, after=g.task(add, x)))
    with g.compile(machine, runs=runs) as program:
        program.verify(3)
        assert (x[0], barrier.phase) == (0, 0)
        assert program.replay(2) == 2
    assert (x[0], barrier.phase) == (2, 2)


# trace, explain, statistics


def test_trace_takes_what_a_run_takes(everything):
    program, x, barrier, _ = everything
    go = ost.UserEvent()
    timer = threading.Timer(0.01, go.trigger)
    timer.start()
    trace = program.trace(2, after={"go": go}, k=3)
    timer.join()
    spans = [event for event in trace.to_dict()["traceEvents"] if event.get("ph") == "X"]
    assert sum("add" in event["name"] for event in spans) == 6
    assert x.tolist() == [6, 2, 6, 3]
    assert barrier.phase == 2
    with pytest.raises((TypeError, ValueError)):
        program.trace(1, k=3)


def test_explain_and_statistics(everything):
    program, _, _, _ = everything
    text = program.explain()
    for word in ("go", "done", "arrive", "acquire", "release"):
        assert word in text
    before = program.statistics()
    program.replay(after={"go": ost.merge()}, k=1)
    assert program.statistics() != before


# rebind


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent"])
def test_rebind_of_arrays_in_nested_graphs(runs, machine):
    x, y = np.zeros(2), np.zeros(2)
    inner = ost.Graph()
    inner.task(add, x[1:])
    g = ost.Graph()
    g.subgraph(inner)
    g.task(add, x[:1], 10)
    with g.compile(machine, runs=runs) as program:
        start = ost.UserEvent()
        first = program.submit(2, after=start)
        program.rebind([(x, y)])
        second = program.submit(3)
        start.trigger()
        assert (first.result(60), second.result(60)) == (2, 3)
    assert x.tolist() == [20, 2]
    assert y.tolist() == [30, 3]
