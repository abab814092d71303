"""The contract on conditions of runs: the default one, those with names, before and after."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@pytest.fixture
def two(machine):
    """Two chains that have nothing to do with each other; the second waits for "go". Each tells when it is done."""
    x, y = np.zeros(1), np.zeros(1)
    g = ost.Graph()
    go = g.precondition("go")
    a = g.task(add, x)
    b = g.task(add, y, after=go)
    g.postcondition("a", after=a)
    g.postcondition("b", after=[b])
    with g.compile(machine) as program:
        yield program, x, y


# What is recorded


def test_a_precondition_only_stands_in_after():
    g = ost.Graph()
    op = g.task(add, np.zeros(1))
    pre = g.precondition("pre")
    assert isinstance(pre, ost.Op)
    assert pre.name == "pre"
    with pytest.raises(ost.GraphError):
        g.edge(op, pre)
    with pytest.raises(ost.GraphError):
        g.edge(op, pre, distance=1)
    g.edge(pre, op)


def test_a_postcondition_is_never_in_after():
    g = ost.Graph()
    op = g.task(add, np.zeros(1))
    post = g.postcondition("post", after=op)
    assert isinstance(post, ost.Op)
    with pytest.raises(ost.GraphError):
        g.task(add, np.zeros(1), after=post)
    with pytest.raises(ost.GraphError):
        g.task(add, np.zeros(1), after=[op, post])
    with pytest.raises(ost.GraphError):
        g.edge(post, op)
    with pytest.raises(ost.GraphError):
        g.postcondition("other", after=post)
    other = g.task(add, np.zeros(1))
    g.edge(other, post)


def test_empty_and_duplicate_names_are_graph_errors():
    g = ost.Graph()
    op = g.task(add, np.zeros(1))
    with pytest.raises(ost.GraphError):
        g.precondition("")
    with pytest.raises(ost.GraphError):
        g.postcondition("", after=op)
    g.precondition("in")
    with pytest.raises(ost.GraphError, match="in"):
        g.precondition("in")
    g.postcondition("out", after=op)
    with pytest.raises(ost.GraphError, match="out"):
        g.postcondition("out", after=op)
    for bad in (None, 3):
        with pytest.raises((TypeError, ValueError)):
            g.precondition(bad)
        with pytest.raises((TypeError, ValueError)):
            g.postcondition(bad, after=op)


def test_a_postcondition_on_a_precondition_or_on_nothing_is_a_graph_error():
    g = ost.Graph()
    g.task(add, np.zeros(1))
    pre = g.precondition("pre")
    for after in (pre, [pre], (), [], iter(())):
        with pytest.raises(ost.GraphError):
            g.postcondition("post", after=after)


def test_conditions_inside_a_capture(machine):
    x = np.zeros(1)
    with ost.capture() as g:
        go = g.precondition("go")
        op = add(x)
        g.edge(go, op)
        g.postcondition("done", after=op)
    go = ost.UserEvent()
    with g.compile(machine) as program:
        run = program.submit(after={"go": go})
        assert not run.posts["done"].done
        go.trigger()
        run.posts["done"].wait(60)
    assert x[0] == 1


# What a run is given


@pytest.mark.parametrize(
    "after",
    [None, {}, {"other": ost.merge()}, {"go": ost.merge(), "other": ost.merge()}, {None: ost.merge()}, ost.merge()],
)
@pytest.mark.parametrize("call", ["submit", "replay"])
def test_every_declared_precondition_must_be_given_and_no_other(after, call, two):
    program, x, y = two
    with pytest.raises((TypeError, ValueError)):
        getattr(program, call)(after=after)
    assert program.submit(after={"go": ost.merge()}).result(60) == 1
    assert (x[0], y[0]) == (1, 1)


@pytest.mark.parametrize("after", [3, "go", [ost.merge()], {"go": 3}, {"go": [ost.merge()]}])
def test_what_is_given_is_an_event_or_a_run(after, two):
    program, _, _ = two
    with pytest.raises((TypeError, ValueError)):
        program.submit(after=after)


def test_a_program_without_preconditions_takes_no_names(machine):
    g = ost.Graph()
    x = np.zeros(1)
    g.task(add, x)
    with g.compile(machine) as program:
        with pytest.raises((TypeError, ValueError)):
            program.submit(after={"go": ost.merge()})
        for after in (None, {}, {None: ost.merge()}, ost.merge()):
            assert program.replay(after=after) == 1
    assert x[0] == 4


# Named conditions


def test_a_named_precondition_gates_what_comes_after_it_and_nothing_else(two):
    program, x, y = two
    go = ost.UserEvent()
    run = program.submit(after={"go": go})
    assert set(run.posts) == {"a", "b"}
    run.posts["a"].wait(60)
    assert (x[0], y[0]) == (1, 0)
    assert not run.done()
    assert not run.posts["b"].done
    go.trigger()
    run.posts["b"].wait(60)
    assert run.result(60) == 1
    assert (x[0], y[0]) == (1, 1)


def test_a_precondition_holds_back_the_first_step_only(two):
    program, x, y = two
    go = ost.UserEvent()
    run = program.submit(5, after={"go": go})
    go.trigger()
    assert run.result(60) == 5
    assert program.replay(2, after={"go": go}) == 2  # has happened already
    assert (x[0], y[0]) == (7, 7)


def test_the_default_precondition_gates_all_of_the_first_step(two):
    program, x, y = two
    start, go = ost.UserEvent(), ost.UserEvent()
    run = program.submit(2, after={None: start, "go": go})
    go.trigger()
    with pytest.raises(TimeoutError):
        run.posts["a"].wait(0.02)
    assert (x[0], y[0]) == (0, 0)
    assert run.steps_done == 0
    start.trigger()
    assert run.result(60) == 2
    assert (x[0], y[0]) == (2, 2)


def test_a_run_may_be_a_condition(two, machine):
    program, x, y = two
    z, start = np.zeros(1), ost.UserEvent()
    g = ost.Graph()
    g.task(add, z)
    with g.compile(machine) as before:
        first = before.submit(3, after=start)
        second = program.submit(after={"go": first, None: ost.merge(first, first.event)})
        third = before.submit(after=second)
        assert not second.done()
        start.trigger()
        assert third.result(60) == 1
        assert second.done()
    assert (x[0], y[0], z[0]) == (1, 1, 4)


def test_several_preconditions_on_one_op_and_one_on_several(machine):
    x = np.zeros(3)
    g = ost.Graph()
    p, q = g.precondition("p"), g.precondition("q")
    g.task(add, x[0:1], after=[p, q])
    g.task(add, x[1:2], after=p)
    g.postcondition("second", after=g.task(add, x[2:3], after=[q]))
    events = {"p": ost.UserEvent(), "q": ost.UserEvent()}
    with g.compile(machine) as program:
        run = program.submit(after=events)
        events["q"].trigger()
        run.posts["second"].wait(60)
        assert x.tolist() == [0, 0, 1]
        events["p"].trigger()
        run.result(60)
    assert x.tolist() == [1, 1, 1]


def test_a_postcondition_triggers_as_soon_as_its_sources_are_done_in_the_last_step(machine):
    x, y, barrier = np.zeros(1), np.zeros(1), ost.Barrier(1)
    g = ost.Graph(infer=False)
    a = g.task(add, x)
    b = g.task(add, y, after=g.wait(barrier))
    for op in (a, b):
        g.edge(op, op, distance=1)  # steps overlap
    g.postcondition("a", after=a)
    g.postcondition("both", after=[a, b])
    with g.compile(machine) as program:
        run = program.submit(3)
        run.posts["a"].wait(60)
        assert (x[0], y[0]) == (3, 0)
        for _ in range(3):
            assert not run.posts["both"].done
            assert not run.done()
            barrier.arrive()
        run.posts["both"].wait(60)
        assert run.result(60) == 3


@pytest.mark.parametrize("on", [None, "cpu:0"])
def test_a_postcondition_on_an_op_of_the_step_before(on, machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.postcondition("before", after=ost.previous(g.task(add, x, on=on)))
    with g.compile(machine) as program:
        for steps in (3, 1):
            run = program.submit(steps)
            run.posts["before"].wait(60)
            assert run.result(60) == steps
    assert x[0] == 4


def test_posts_are_events_each_run_has_its_own(two):
    program, _, _ = two
    go = [ost.UserEvent() for _ in range(3)]
    runs = [program.submit(after={"go": event}) for event in go]
    for k in range(3):
        assert isinstance(runs[k].posts["b"], ost.Event)
        assert not runs[k].posts["b"].done
        go[k].trigger()
        runs[k].posts["b"].wait(60)
        assert runs[k].result(60) == 1
    with pytest.raises(KeyError):
        runs[0].posts["c"]


def test_a_run_without_postconditions_has_no_posts(machine):
    g = ost.Graph()
    g.task(add, np.zeros(1))
    with g.compile(machine) as program:
        assert dict(program.submit().posts) == {}


def test_an_empty_graphs_run_ends_when_its_events_have_triggered(machine):
    with ost.Graph().compile(machine) as program:
        assert program.replay(3) == 3
        start = ost.UserEvent()
        run = program.submit(2, after=start)
        with pytest.raises(TimeoutError):
            run.result(0.02)
        start.trigger()
        assert run.result(60) == 2


# Before the inputs exist


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_runs_are_submitted_before_their_inputs_exist(order, two):
    program, x, y = two
    starts, goes = [ost.UserEvent() for _ in range(12)], [ost.UserEvent() for _ in range(12)]
    runs = [program.submit(2, after={None: s, "go": g}) for s, g in zip(starts, goes, strict=True)]
    events = [*starts, *goes] if order == "forward" else [*goes, *starts][::-1]
    for event in events:
        assert not runs[-1].done()
        event.trigger()
    assert [run.result(60) for run in runs] == [2] * 12
    assert (x[0], y[0]) == (24, 24)


def test_data_made_before_the_trigger_is_seen(machine):
    """Whoever makes the input in an array writes it first and triggers then."""
    source, sink, seen = np.zeros(1000), np.zeros(1000), []
    g = ost.Graph()
    g.copy(source, sink, after=g.precondition("filled"))
    g.task(lambda x: seen.append(set(x.tolist())), sink, access=(ost.Read,))
    with g.compile(machine) as program:
        for k in range(1, 50):
            filled = ost.UserEvent()
            run = program.submit(after={"filled": filled})
            source[:] = k
            filled.trigger()
            run.result(60)
    assert seen == [{k} for k in range(1, 50)]


def test_replay_waits_for_its_condition(machine):
    x, start = np.zeros(1), ost.UserEvent()
    g = ost.Graph()
    g.task(add, x)
    with g.compile(machine) as program:
        timer = threading.Timer(0.02, lambda: (x.fill(10), start.trigger()))
        timer.start()
        assert program.replay(2, after=start) == 2
        timer.join()
    assert x[0] == 12


def test_programs_in_a_ring_each_starts_what_comes_next(machine):
    """Posts of one program are the preconditions of the next one, and the last one's those of the first one's next."""
    x, n = np.zeros(1), 4
    programs = []
    for k in range(n):
        g = ost.Graph()
        op = g.task(lambda x, k: x.fill(x[0] * n + k if x[0] < 1e6 else k), x, k, access=(ost.ReadWrite, None))
        g.edge(g.precondition("before"), op)
        g.postcondition("after", after=op)
        programs.append(g.compile(machine))
    start = ost.UserEvent()
    event, expected, runs = start, 0, []
    for k in range(60):
        runs.append(programs[k % n].submit(after={"before": event}))
        event = runs[-1].posts["after"]
        expected = expected * n + k % n if expected < 1e6 else k % n
    start.trigger()
    event.wait(60)
    assert x[0] == expected
    for program in programs:
        program.close()


def test_a_run_that_waits_for_its_condition_can_be_cancelled(two):
    program, x, y = two
    first = program.submit(3, after={None: ost.UserEvent(), "go": ost.UserEvent()})
    second = program.submit(3, after={"go": ost.UserEvent()})
    third = program.submit(1, after={"go": ost.merge()})
    assert first.cancel()
    assert second.cancel()
    for run in (first, second):
        with pytest.raises(CancelledError):
            run.result(60)
    assert third.result(60) == 1
    assert y[0] == 1
    assert 1 <= x[0] <= 4  # what waits for nothing may run ahead of what was cancelled


def test_conditions_with_priorities_parameters_and_until(machine):
    x, flag = np.zeros(1), np.zeros(1)
    g = ost.Graph()
    a = g.task(add, x, g.param("k", 1), after=g.precondition("go"))
    g.task(lambda x, f: f.fill(x[0] >= 10), x, flag, access=(ost.Read, ost.Write))
    g.until(flag)
    g.postcondition("done", after=a)
    go = ost.UserEvent()
    with g.compile(machine) as program:
        run = program.submit(100, after={"go": go}, priority=3, k=2)
        assert not run.posts["done"].done
        go.trigger()
        run.posts["done"].wait(60)
        assert x[0] == 10
        assert run.result(60) == 5
