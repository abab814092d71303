"""The contract on parameters: every kind, nested, combined, and different in runs that overlap."""

from __future__ import annotations

import functools
import gc
import operator
import weakref

import numpy as np
import pytest

import ostinato as ost
from native import load


class Thing:
    """Something that can be told apart and referred to weakly."""


def note(log):
    """Return a callable that notes its arguments."""
    return lambda *args: log.append(args)


def test_scalars_and_objects_in_tasks_of_every_kind(machine):
    x, log = np.zeros(1), []
    native = ost.native(load("contract/tasks.c").add, (ost.ReadWrite, int))
    g = ost.Graph()
    g.task(native, x, g.param("n"))
    g.task(note(log), g.param("n"), g.param("o", None), g.param("n"), access=(None, None, None))
    thing = Thing()
    with g.compile(machine) as program:
        program.replay(2, n=3)
        program.submit(1, n=np.int16(4), o=thing).result(60)
    assert x[0] == 10
    assert log == [(3, None, 3)] * 2 + [(4, thing, 4)]


def test_tokens_are_no_parameters_but_values_are_passed_as_they_are(machine):
    log = []
    g = ost.Graph()
    g.task(note(log), g.param("o"), access=(None,))
    with g.compile(machine) as program:
        for value in (None, "text", (), [1], {"a": 1}, np.arange(3), ost.Graph, ost.merge(), 2**100, float("nan")):
            program.replay(o=value)
            assert log.pop()[0] is value


def test_every_place_that_takes_a_parameter(machine):
    x, log = np.zeros(3), []
    barrier = ost.Barrier(3, reduce="max", initial=0)
    g = ost.Graph()
    p = g.param("p", 3)
    g.fill(x, p)
    g.task(note(log), p, access=(None,))
    g.arrive(g.param("b"), count=p, value=p)
    inner = ost.Graph()
    inner.task(note(log), inner.param("q"), access=(None,))
    g.subgraph(inner, params={"q": p})
    with g.compile(machine) as program:
        program.replay(b=barrier)
        assert x.tolist() == [3, 3, 3]
        assert (barrier.phase, barrier.result(0)) == (1, 3)
        small = ost.Barrier(1, reduce="max", initial=0)
        program.replay(params={"b": small, "p": 1})
        assert (small.phase, small.result(0), x[0]) == (1, 1, 1)
    assert log == [(3,), (3,), (1,), (1,)]


# Overlapping runs


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent"])
def test_each_run_sees_its_own(runs, machine):
    log, out = [], np.zeros(1)
    native = ost.native(load("contract/tasks.c").add, (ost.ReadWrite, int))
    g = ost.Graph()
    g.task(note(log), g.param("a"), g.param("b", -1), ost.step, access=(None, None, None))
    if runs != "concurrent":
        g.task(native, out, g.param("a"))
    with g.compile(machine, runs=runs) as program:
        start = ost.UserEvent()
        submitted = []
        for k in range(30):
            more = {"b": k * 10} if k % 2 else {}
            submitted.append(program.submit(3, after=start, a=k, **more))
        start.trigger()
        assert [run.result(60) for run in submitted] == [3] * 30
    expected = [(k, k * 10 if k % 2 else -1, 3 * k + s) for k in range(30) for s in range(3)]
    assert sorted(log) == expected
    if runs != "concurrent":
        assert log == expected
        assert out[0] == 3 * sum(range(30))


def test_fill_values_and_barriers_of_overlapping_runs(machine):
    n = 20
    x, seen = np.zeros(1), []
    barriers = [ost.Barrier(1, reduce="max", initial=-1) for _ in range(n)]
    g = ost.Graph()
    g.fill(x, g.param("v"))
    g.task(lambda x: seen.append(x[0]), x, access=(ost.Read,))
    g.arrive(g.param("b"), value=g.param("v"))
    with g.compile(machine) as program:
        start = ost.UserEvent()
        runs = [program.submit(after=start, v=k, b=barriers[k]) for k in range(n)]
        start.trigger()
        assert [run.result(60) for run in runs] == [1] * n
    assert seen == list(range(n))
    assert [barrier.result(0) for barrier in barriers] == list(range(n))


def test_objects_are_let_go_after_their_runs(machine):
    g = ost.Graph()
    g.task(lambda o: None, g.param("o"), access=(None,))
    with g.compile(machine) as program:
        refs = []
        for _ in range(5):
            thing = Thing()
            refs.append(weakref.ref(thing))
            program.submit(2, o=thing).result(60)
        del thing
        for _ in range(3):
            program.replay(o=None)
        gc.collect()
        assert [ref() for ref in refs] == [None] * 5


@pytest.mark.parametrize("runs", ["pipelined", "concurrent"])
def test_step_numbers_that_tasks_keep(runs, machine):
    """Numbers beyond those that Python has ready, on several lanes, with rings of two and three, from 10^9 on."""
    kept: list[list[tuple[int, float, int]]] = [[] for _ in range(6)]
    rings = [ost.ring(*np.arange(float(2 + lane % 2)).reshape(-1, 1)) for lane in range(6)]
    g = ost.Graph()
    for lane, ring in enumerate(rings):
        keep = kept[lane]
        # A function, and a callable of another kind.
        g.task(
            lambda x, again, step, keep=keep: keep.append((step, float(x[0]), again)),
            ring[0],
            ost.step,
            ost.step,
            access=(ost.Read, None, None),
        )
        g.task(functools.partial(note(keep), "also"), ring[1], ost.step, access=(ost.Read, None))
    with g.compile(machine, runs=runs, lanes=2) as program:
        program.reset(10**9)
        for run in [program.submit(40) for _ in range(5)]:
            assert run.result(60) == 40
    del program
    gc.collect()
    steps = range(10**9, 10**9 + 200)
    for lane, keep in enumerate(kept):
        turns = 2 + lane % 2
        own = sorted(entry for entry in keep if entry[0] != "also")
        assert own == [(step, float(step % turns), step) for step in steps]
        assert sorted(entry[2] for entry in keep if entry[0] == "also") == list(steps)


def test_wrong_parameters_leave_nothing_behind(machine):
    log = []
    g = ost.Graph()
    g.task(note(log), g.param("a"), ost.step, access=(None, None))
    with g.compile(machine) as program:
        for bad in ({}, {"b": 1}, {"a": 1, "b": 1}):
            with pytest.raises(TypeError):
                program.submit(params=bad)
        with pytest.raises((TypeError, ValueError)):
            program.submit(params={"a": 1}, a=2)
        program.replay(a=1)
    assert log == [(1, 0)]


# Combine


def test_combine_of_every_callable(machine):
    log = []
    g = ost.Graph()
    g.task(
        note(log),
        g.param("a", 10, combine=operator.sub),
        g.param("b", [1], combine=lambda default, given: default + given),
        g.param("c", 5.0, combine=np.maximum),
        access=(None,) * 3,
    )
    with g.compile(machine) as program:
        program.replay()
        program.replay(a=1, b=[2])
        program.replay(c=7)
        program.replay(a=1, b=[2])  # what was combined before is not combined again
    assert log == [(10, [1], 5.0), (9, [1, 2], 5.0), (10, [1], 7.0), (9, [1, 2], 5.0)]


def test_combine_where_the_value_is_used_by_the_core(machine):
    x = np.zeros(1)
    barrier = ost.Barrier(4, reduce="max", initial=0)
    native = ost.native(load("contract/tasks.c").add, (ost.ReadWrite, int))
    g = ost.Graph()
    g.fill(x, g.param("v", 10, combine=operator.mul))
    g.task(native, x, g.param("v"))
    g.arrive(barrier, count=g.param("n", 1, combine=operator.add), value=g.param("v"))
    with g.compile(machine) as program:
        program.replay(v=2, n=3)
    assert x[0] == 40
    assert barrier.result(0) == 20


# Nested


def test_parameters_of_nested_graphs_are_values_or_outer_parameters(machine):
    log = []
    inner = ost.Graph()
    inner.task(note(log), inner.param("a"), inner.param("b", "default"), access=(None, None))
    g = ost.Graph()
    g.subgraph(inner, params={"a": 1})
    g.subgraph(inner, params={"a": g.param("x"), "b": g.param("y", 7)})
    g.subgraph(inner, params={"a": g.param("x"), "b": g.param("x")})
    with g.compile(machine) as program:
        program.replay(x=2)
        program.replay(x=3, y=4)
        for bad in ({"a": 1, "x": 1}, {}):
            with pytest.raises(TypeError):
                program.replay(params=bad)
    assert log == [(1, "default"), (2, 7), (2, 2), (1, "default"), (3, 4), (3, 3)]


def test_names_of_nested_parameters_are_their_graphs_own(machine):
    log = []
    inner = ost.Graph()
    inner.task(note(log), "inner", inner.param("a", 1), access=(None, None))
    g = ost.Graph()
    g.task(note(log), "outer", g.param("a", 2), access=(None, None))
    g.subgraph(inner)
    g.subgraph(inner, params={"a": 5})
    with g.compile(machine) as program:
        program.replay()
        program.replay(a=9)
    assert log == [("outer", 2), ("inner", 1), ("inner", 5), ("outer", 9), ("inner", 1), ("inner", 5)]


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_parameters_composed_to_any_depth(depth, machine):
    log = []
    g = ost.Graph()
    g.task(note(log), g.param("p0"), access=(None,))
    for level in range(depth):
        outer = ost.Graph()
        outer.subgraph(g, params={f"p{level}": outer.param(f"p{level + 1}")})
        g = outer
    with g.compile(machine) as program:
        for value in (1, "a"):
            program.replay(params={f"p{depth}": value})
    assert log == [(1,), ("a",)]


def test_combine_at_each_level(machine):
    log = []
    inner = ost.Graph()
    inner.task(note(log), inner.param("k", 10, combine=operator.add), access=(None,))
    middle = ost.Graph()
    middle.subgraph(inner, params={"k": middle.param("m", 5, combine=operator.mul)})
    middle.subgraph(inner)
    g = ost.Graph()
    g.subgraph(middle, params={"m": g.param("n")})
    g.subgraph(middle, params={"m": 7})
    with g.compile(machine) as program:
        program.replay(n=3)
        program.replay(n=4)
    assert log == [(10 + 5 * n,) if k % 2 == 0 else (10,) for n in (3, 7, 4, 7) for k in range(2)]


def test_fills_arrivals_and_barriers_inside_nested_graphs(machine):
    x, y = np.zeros(2), np.zeros(2)
    first, second = (ost.Barrier(2, reduce="max", initial=0) for _ in range(2))

    def of(array):
        inner = ost.Graph()
        inner.fill(array, inner.param("v"))
        inner.arrive(inner.param("b"), count=inner.param("n", 2), value=inner.param("v"))
        return inner

    g = ost.Graph()
    g.subgraph(of(x), params={"v": g.param("v"), "b": g.param("one")})
    g.subgraph(of(y), params={"v": 8, "b": second, "n": g.param("n", 2)})
    with g.compile(machine) as program:
        program.replay(v=3, one=first)
        third = ost.Barrier(2, reduce="max", initial=0)
        program.replay(v=4, one=third)
    assert (x[0], y[0]) == (4, 8)
    assert (first.result(0), third.result(0)) == (3, 4)
    assert [second.result(0), second.result(1)] == [8, 8]


def test_one_graph_many_times_with_different_parameters_in_runs_that_overlap(machine):
    n = 6
    x = np.zeros(n)
    g = ost.Graph()
    for k in range(n):
        inner = ost.Graph()
        inner.task(lambda x, a, b: x.__iadd__(a * b), x[k : k + 1], inner.param("a"), inner.param("b"),
                   access=(ost.ReadWrite, None, None))  # fmt: skip
        g.subgraph(inner, params={"a": k, "b": g.param("b")})
    with g.compile(machine) as program:
        runs = [program.submit(2, b=b) for b in range(20)]
        assert [run.result(60) for run in runs] == [2] * 20
    assert x.tolist() == [2 * k * sum(range(20)) for k in range(n)]


@pytest.mark.parametrize("bad", [{"z": 1}, {"a": 1, "z": 1}, {3: 1}])
def test_unknown_parameters_of_a_nested_graph_are_refused(bad):
    inner = ost.Graph()
    inner.task(note([]), inner.param("a", 0), access=(None,))
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.subgraph(inner, params=bad)
    assert len(g) == 0


def test_a_parameter_of_another_graph_is_refused_or_is_this_graphs_of_that_name(machine):
    """`ost.param` outside a capture, or a parameter of the inner graph given as the outer one's."""
    log = []
    inner = ost.Graph()
    a = inner.param("a")
    inner.task(note(log), a, access=(None,))
    g = ost.Graph()
    try:
        g.subgraph(inner, params={"a": a})
    except (TypeError, ValueError):
        return
    with g.compile(machine) as program:
        program.replay(a=3)
    assert log == [(3,)]


def test_param_inside_a_capture_is_the_graphs(machine):
    x = np.zeros(1)
    inner = ost.Graph()
    inner.fill(x, inner.param("v"))
    with ost.capture() as g:
        g.subgraph(inner, params={"v": ost.param("w")})
    with g.compile(machine) as program:
        program.replay(w=4)
    assert x[0] == 4
