"""The contract on nested graphs."""

from __future__ import annotations

import random

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@ost.task
def move(src: ost.Read, dst: ost.ReadWrite):
    dst += src


def reach(graph):
    """Return the pairs of ops of which one comes after the other in one step."""
    after = {op: set() for op in graph.ops}
    for a, b, distance in graph.edges:
        if distance == 0:
            after[a].add(b)
    for _ in graph.ops:
        for found in after.values():
            found |= {c for b in list(found) for c in after[b]}
    return {(a, b) for a, found in after.items() for b in found}


def inner_of(x, name="inner"):
    """A graph with a precondition "go" and a postcondition "done" of one task, beside a task that has neither."""
    g = ost.Graph()
    gated = g.task(add, x[0:1], after=g.precondition("go"), name=name)
    g.task(add, x[1:2], 10)
    g.postcondition("done", after=gated)
    return g


# What is recorded


def test_subgraph_returns_one_op():
    inner = inner_of(np.zeros(2))
    g = ost.Graph()
    op = g.subgraph(inner, preconditions={"go": ()})
    assert isinstance(op, ost.Op)
    assert op in g.ops
    assert len({op, g.subgraph(inner, preconditions={"go": []})}) == 2
    assert len(inner) == len(inner.ops)


def test_every_precondition_must_be_given_and_no_other():
    inner = inner_of(np.zeros(2))
    g = ost.Graph()
    for wrong in ({}, {"other": ()}, {"go": (), "other": ()}, {None: ()}):
        with pytest.raises((TypeError, ValueError)):
            g.subgraph(inner, preconditions=wrong)
    with pytest.raises((TypeError, ValueError)):
        g.subgraph(inner)
    with pytest.raises((TypeError, ValueError)):
        g.subgraph(inner, preconditions={"go": [3]})
    assert len(g) == 0


def test_posts_by_name_stand_in_after():
    inner = inner_of(np.zeros(2))
    g = ost.Graph()
    op = g.subgraph(inner, preconditions={"go": iter(())})
    with pytest.raises(KeyError):
        op.posts["go"]
    a = g.task(add, np.zeros(1), after=op.posts["done"])
    b = g.task(add, np.zeros(1), after=[a, op.posts["done"], op])
    assert (op, b) in reach(g)
    g.postcondition("out", after=op.posts["done"])


@pytest.mark.parametrize("bad", [None, 3, "graph", [ost.Graph()]])
def test_what_is_no_graph_is_refused(bad):
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.subgraph(bad)
    assert len(g) == 0


def test_a_graph_does_not_contain_itself():
    g, h = ost.Graph(), ost.Graph()
    with pytest.raises(ost.GraphError):
        g.subgraph(g)
    g.subgraph(h)
    with pytest.raises(ost.GraphError):
        h.subgraph(g)
    assert (len(g), len(h)) == (1, 0)


def test_edges_of_what_the_nested_graph_accesses():
    x, y = np.zeros(2), np.zeros(1)
    inner = ost.Graph()
    inner.task(add, x[1:])
    g = ost.Graph()
    before, other, free = g.task(add, x), g.task(add, x[:1]), g.task(add, y)
    op = g.subgraph(inner)
    after, beside = g.task(move, x, np.zeros(2)), g.task(move, x[:1], np.zeros(1))
    found = reach(g)
    assert {(before, op), (op, after)} <= found
    assert not {(other, op), (free, op), (op, beside), (op, other)} & found
    assert any(a == op and b == before and distance >= 1 for a, b, distance in g.edges)


# What it does


@pytest.mark.parametrize("infer", [True, False])
def test_all_of_it_comes_after_after_and_before_what_comes_after_it(infer, machine):
    log = []
    inner = ost.Graph(infer=False)
    for k in range(3):
        inner.task(log.append, k, access=(None,))
    g = ost.Graph(infer=infer)
    first = g.task(log.append, "first", access=(None,))
    op = g.subgraph(inner, after=first)
    g.task(log.append, "last", access=(None,), after=[op])
    with g.compile(machine) as program:
        program.replay(4)
    for step in range(4):
        part = log[5 * step : 5 * step + 5]
        assert (part[0], set(part[1:4]), part[4]) == ("first", {0, 1, 2}, "last")


def test_previous_and_edge_of_a_nested_graph(machine):
    log = []
    inner = ost.Graph(infer=False)
    inner.task(lambda s: log.append(("in", s)), ost.step, access=(None,))
    g = ost.Graph(infer=False)
    op = g.subgraph(inner)
    a = g.task(lambda s: log.append(("a", s)), ost.step, access=(None,), after=ost.previous(op))
    b = g.task(lambda s: log.append(("b", s)), ost.step, access=(None,))
    g.edge(op, b, distance=2)
    g.edge(a, op, distance=1)
    with g.compile(machine) as program:
        program.replay(8)
    for s in range(7):
        assert log.index(("in", s)) < log.index(("a", s + 1))
        assert log.index(("a", s)) < log.index(("in", s + 1))
    for s in range(6):
        assert log.index(("in", s)) < log.index(("b", s + 2))
    assert len(log) == 24


def test_preconditions_gate_only_what_they_point_at(machine):
    x, start = np.zeros(2), ost.UserEvent()
    g = ost.Graph()
    op = g.subgraph(inner_of(x), preconditions={"go": [g.precondition("start")]})
    g.postcondition("done", after=op.posts["done"])
    free = ost.Graph()
    free.postcondition("free", after=free.task(add, np.zeros(1)))
    other = g.subgraph(free)
    g.postcondition("free", after=other.posts["free"])
    with g.compile(machine) as program:
        run = program.submit(3, after={"start": start})
        with pytest.raises(TimeoutError):
            run.posts["done"].wait(0.01)
        assert x[0] == 0
        start.trigger()
        run.posts["done"].wait(60)
        assert x[0] == 3
        assert run.result(60) == 3
    assert x.tolist() == [3, 30]


def test_ports_lead_through_any_depth(machine, eventually):
    """The gated task of the innermost graph waits, the free ones do not; its end is seen outside before the rest's."""
    x, y, start, late = np.zeros(2), np.zeros(1), ost.UserEvent(), ost.UserEvent()
    g = inner_of(x)
    for _ in range(4):
        outer = ost.Graph()
        op = outer.subgraph(g, preconditions={"go": outer.precondition("go")})
        outer.postcondition("done", after=op.posts["done"])
        g = outer
    top = ost.Graph()
    op = top.subgraph(g, preconditions={"go": [top.precondition("start")]})
    top.task(add, y, after=[op.posts["done"], top.precondition("late")])
    top.postcondition("done", after=op.posts["done"])
    with top.compile(machine) as program:
        run = program.submit(after={"start": start, "late": late})
        eventually(lambda: x[1] == 10)
        assert x[0] == 0
        assert not run.posts["done"].done
        start.trigger()
        run.posts["done"].wait(60)
        assert (x[0], y[0]) == (1, 0)
        assert not run.done()
        late.trigger()
        assert run.result(60) == 1
    assert y[0] == 1


def test_an_op_after_a_port_does_not_wait_for_the_rest(machine):
    x, late = np.zeros(1), ost.UserEvent()
    inner = ost.Graph()
    early = inner.task(add, np.zeros(1))
    inner.task(add, np.zeros(1), after=inner.precondition("late"))
    inner.postcondition("early", after=early)
    g = ost.Graph()
    op = g.subgraph(inner, preconditions={"late": g.precondition("late")})
    g.postcondition("x", after=g.task(add, x, after=op.posts["early"]))
    with g.compile(machine) as program:
        run = program.submit(after={"late": late})
        run.posts["x"].wait(60)
        assert x[0] == 1
        assert not run.done()
        late.trigger()
        assert run.result(60) == 1


def test_an_inner_precondition_given_ops_of_the_outer_graph_holds_in_every_step(machine):
    log = []
    inner = ost.Graph(infer=False)
    inner.task(lambda s: log.append(("in", s)), ost.step, access=(None,), after=inner.precondition("go"))
    g = ost.Graph(infer=False)
    first = g.task(lambda s: log.append(("first", s)), ost.step, access=(None,))
    g.subgraph(inner, preconditions={"go": first})
    with g.compile(machine) as program:
        program.replay(5)
    assert log == [(who, s) for s in range(5) for who in ("first", "in")]


def test_the_same_graph_twice_doubled_eight_times(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x)
    for _ in range(8):
        outer = ost.Graph()
        outer.subgraph(g)
        outer.subgraph(g)
        g = outer
    with g.compile(machine) as program:
        assert program.replay(3) == 3
    assert x[0] == 3 * 256


def test_a_deep_nest(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x)
    for _ in range(100):
        outer = ost.Graph()
        outer.subgraph(g)
        g = outer
    with g.compile(machine) as program:
        program.replay(2)
    assert x[0] == 2


def test_one_graph_in_several_programs_and_by_itself(machine):
    x = np.zeros(1)
    inner = ost.Graph()
    inner.task(add, x)
    first, second = ost.Graph(), ost.Graph()
    first.subgraph(inner)
    second.subgraph(inner)
    second.task(add, x, 10)
    with inner.compile(machine) as p, first.compile(machine) as q, second.compile(machine) as r:
        for program in (p, q, r, q):
            program.replay(2)
    assert x[0] == 2 * 14


def test_empty_graphs_nest(machine):
    x = np.zeros(1)
    g = ost.Graph()
    a = g.task(add, x)
    op = g.subgraph(ost.Graph(), after=a)
    b = g.task(add, np.zeros(1), after=op)
    assert (a, b) in reach(g)
    with g.compile(machine) as program:
        assert program.replay(3) == 3


def test_tasks_without_arrays_keep_program_order_nested_graphs_included(machine):
    log = []

    def noting(*values):
        g = ost.Graph()
        for value in values:
            g.task(log.append, value, access=(None,))
        return g

    g = noting("a")
    g.subgraph(noting("b", "c"))
    g.task(log.append, "d", access=(None,))
    g.subgraph(noting("e"))
    with g.compile(machine) as program:
        program.replay(5)
    assert "".join(log) == "abcde" * 5


def test_rings_steps_copies_and_synchronisation_inside(machine):
    a, b, out = np.zeros(1), np.zeros(1), np.zeros(1)
    barrier, reservation, seen = ost.Barrier(1), ost.Reservation(), []
    inner = ost.Graph()
    ring = inner.ring(a, b)
    inner.task(lambda src, dst, s: dst.fill(src[0] + s), ring[0], ring[1], ost.step,
               access=(ost.Read, ost.Write, None))  # fmt: skip
    inner.copy(ring[1], out, reduce="+")
    task = inner.task(seen.append, ost.step, access=(None,), after=inner.acquire(reservation))
    inner.release(reservation, after=inner.wait(barrier, after=inner.arrive(barrier, after=task)))
    g = ost.Graph()
    g.subgraph(inner)
    with g.compile(machine) as program:
        program.replay(5)
    value, total = 0, 0
    for s in range(5):
        value += s
        total += value
    assert out[0] == total
    assert seen == list(range(5))
    assert barrier.phase == 5
    reservation.acquire().wait(60)


def test_inside_a_capture(machine):
    x = np.zeros(1)
    with ost.capture() as inner:
        add(x, 2)
    with ost.capture() as g:
        add(x, 1)
        op = g.subgraph(inner)
        with pytest.raises(TypeError):
            bool(op)
    with g.compile(machine) as program:
        program.replay(2)
    assert x[0] == 6


def test_failure_inside_names_the_inner_op_and_where_it_was_recorded(machine):
    inner = ost.Graph()
    op = inner.task(lambda: {}["original"], access=(), name="innermost")
    middle = ost.Graph()
    middle.subgraph(inner)
    g = ost.Graph()
    g.subgraph(middle)
    with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay()
    assert error.value.op.name == "innermost"
    assert isinstance(error.value.__cause__, KeyError)
    line = str(op.call_site).rsplit(":", 1)[-1].split()[0]
    assert "test_nested.py" in str(error.value)
    assert line in str(error.value)


@pytest.mark.parametrize("seed", range(12))
def test_nested_at_random_equals_the_flat_graph(seed, machine):
    """The same calls, some of them grouped into nested graphs, do the same."""
    chance = random.Random(seed)
    x, y = np.zeros(6), np.zeros(6)

    def build(array):
        rng = random.Random(seed + 1)

        def some(graph, depth, nest):
            for _ in range(rng.randint(1, 5)):
                if depth < 3 and rng.random() < 0.4:
                    inner = ost.Graph() if nest else graph
                    some(inner, depth + 1, nest)
                    if nest:
                        graph.subgraph(inner)
                else:
                    i, j, k = rng.randrange(6), rng.randrange(6), rng.randrange(5)
                    if i == j:
                        graph.task(add, array[i : i + 1], k)
                    else:
                        graph.task(lambda a, b, k: b.fill((3 * b[0] + a[0] + k) % 1009), array[i : i + 1],
                                   array[j : j + 1], k, access=(ost.Read, ost.ReadWrite, None))  # fmt: skip

        return some

    flat, nested = ost.Graph(), ost.Graph()
    build(x)(flat, 0, False)
    build(y)(nested, 0, True)
    steps = chance.randint(1, 5)
    with flat.compile(machine) as one, nested.compile(machine) as other:
        one.replay(steps)
        other.replay(steps)
    assert x.tolist() == y.tolist()
