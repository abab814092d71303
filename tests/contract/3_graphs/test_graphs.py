"""The contract's section "Graphs", sentence by sentence."""

from __future__ import annotations

import asyncio
import ctypes
import operator
import threading
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from native import load


@ost.task
def add(x: ost.ReadWrite, k):
    x += k


@ost.task
def copy(src: ost.Read, dst: ost.Write):
    dst[...] = src


@ost.task
def look(x: ost.Read): ...


@ost.task
def nothing(): ...


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2) as machine:
        yield machine


def run(graph, machine, steps=1, **params):
    with graph.compile(machine) as program:
        return program.replay(steps, **params)


def same_step(graph):
    return {(a, b) for a, b, distance in graph.edges if distance == 0}


# capture


def test_capture_records_in_program_order_mixed_with_the_graphs_own_methods(machine):
    x, y = np.zeros(2), np.zeros(2)
    with ost.capture() as g:
        assert isinstance(g, ost.Graph)
        a = add(x, 1)
        b = g.copy(x, y)
        c = add(y, 1)
        d = g.fill(x, 0)
        e = g.task(add, x, 7)
    assert list(g.ops) == [a, b, c, d, e]
    assert len(g) == 5
    run(g, machine)
    assert y.tolist() == [2, 2]
    assert x.tolist() == [7, 7]


def test_call_inside_a_capture_returns_an_op_and_does_not_run():
    x = np.zeros(1)
    with ost.capture():
        assert isinstance(add(x, 1), ost.Op)
        assert x[0] == 0
    assert x[0] == 0


def test_capture_is_of_this_thread():
    x = np.zeros(1)
    with ost.capture() as g:
        thread = threading.Thread(target=lambda: add(np.zeros(1), 1))
        thread.start()
        thread.join()
        assert len(g) == 0
        add(x, 1)
    assert x[0] == 0


def test_capture_is_of_this_asyncio_task():
    async def other(gate, out):
        await gate.wait()
        x = np.zeros(1)
        add(x, 5)
        out.append(x[0])

    async def main():
        gate, out = asyncio.Event(), []
        task = asyncio.create_task(other(gate, out))
        await asyncio.sleep(0)
        with ost.capture() as g:
            gate.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            add(np.zeros(1), 1)
        await task
        return len(g), out

    assert asyncio.run(main()) == (1, [5.0])


def test_captures_do_not_nest():
    with ost.capture() as g:
        with pytest.raises((ost.GraphError, RuntimeError)), ost.capture():
            pass
        add(np.zeros(1), 1)
    assert len(g) == 1


def test_exception_inside_leaves_nothing_half_recorded(machine):
    x = np.zeros(1)
    with pytest.raises(KeyError), ost.capture() as g:  # noqa: PT012
        add(x, 1)
        raise KeyError
    assert len(g) == 0
    x[0] = 3  # writable again
    add(x, 1)  # runs at once again
    assert x[0] == 4


def test_wrong_call_inside_records_nothing():
    x = np.zeros(2)
    with ost.capture() as g:
        for wrong in (
            lambda: add(x),
            lambda: g.copy(x, np.zeros(3)),
            lambda: g.copy(x, np.zeros(2, np.int8)),
            lambda: g.fill(x, [1, 2, 3]),
            lambda: g.fill(x, "no"),
            lambda: g.task(3, x),
            lambda: g.task(add, x, 1, after=[3]),
            lambda: g.copy(x, x, reduce="-"),
            lambda: g.task(add, x, 1, priority="high"),
            lambda: ost.until(np.zeros(2)),
            lambda: ost.until(np.zeros(1), every=0),
        ):
            with pytest.raises((TypeError, ValueError)):
                wrong()
        assert len(g) == 0
        add(x, 1)


def test_recorded_arrays_are_read_only_until_the_block_ends():
    x, y = np.zeros(4), np.zeros(4)
    with ost.capture():
        add(x[1:3], 1)
        copy(x, y)
        for array in (x, y):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
            with pytest.raises(ValueError, match="read-only"):
                array += 1
    x[0] = y[0] = 1


def test_statement_that_would_not_be_recorded_raises_saying_that_only_task_calls_are_recorded():
    x = np.zeros(4)
    with pytest.raises((ost.GraphError, ValueError), match="recorded"), ost.capture():  # noqa: PT012
        add(x, 1)
        x += 1
    x += 1


# Graph and its methods


def test_methods_return_an_op_with_name_and_call_site():
    g = ost.Graph()
    x, y = np.zeros(1), np.zeros(1)
    ops = [g.task(add, x, 1), g.copy(x, y), g.fill(x, 1), g.until(x)]
    for op in ops:
        assert isinstance(op, ost.Op)
        assert isinstance(op.name, str)
        assert "test_graphs.py" in str(op.call_site)
    assert len(set(ops)) == 4


def test_name_of_an_op_may_be_given():
    g = ost.Graph()
    x, y = np.zeros(1), np.zeros(1)
    assert g.task(add, x, 1, name="a").name == "a"
    assert g.copy(x, y, name="b").name == "b"
    assert g.fill(x, 1, name="c").name == "c"


def test_after_takes_an_op_or_an_iterable_of_them():
    g = ost.Graph(infer=False)
    a = g.task(nothing)
    b = g.task(nothing, after=a)
    c = g.task(nothing, after=[a, b])
    d = g.task(nothing, after=(op for op in (b, c)))
    e = g.task(nothing, after={a})
    f = g.task(nothing, after=())
    assert {(a, b), (b, c), (a, e)} <= same_step(g)
    assert (c, d) in same_step(g)
    assert not any(f in edge for edge in same_step(g))


def test_previous_means_that_op_in_the_step_before():
    g = ost.Graph(infer=False)
    a = g.task(nothing)
    b = g.task(nothing, after=[ost.previous(a)])
    c = g.task(nothing, after=ost.previous(b))
    assert (a, b, 1) in g.edges
    assert (b, c, 1) in g.edges
    assert not same_step(g)


@pytest.mark.parametrize("bad", [3, "a", [3], None, [[]], np.zeros(1)])
def test_after_of_something_else_raises(bad):
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.task(nothing, after=bad)
    assert len(g) == 0


def test_after_of_another_graphs_op_raises():
    g, h = ost.Graph(), ost.Graph()
    other = h.task(nothing)
    with pytest.raises((ost.GraphError, ValueError)):
        g.task(nothing, after=other)
    mine = g.task(nothing)
    with pytest.raises((ost.GraphError, ValueError)):
        g.edge(mine, other)


def test_previous_of_something_else_raises():
    with pytest.raises((TypeError, ValueError)):
        ost.previous(3)


def test_edge_adds_a_dependence_between_any_two_ops(machine):
    g = ost.Graph(infer=False)
    seen = []

    @ost.task
    def say(k):
        seen.append(k)

    a, b = g.task(say, "a"), g.task(say, "b")
    g.edge(b, a)  # against program order
    g.edge(a, b, distance=1)
    assert (b, a, 0) in g.edges
    assert (a, b, 1) in g.edges
    run(g, machine, 3)
    assert seen == ["b", "a"] * 3


@pytest.mark.parametrize("bad", [-1, 1.5, "1", None])
def test_edge_distance_is_checked(bad):
    g = ost.Graph()
    a, b = g.task(nothing), g.task(nothing)
    with pytest.raises((TypeError, ValueError)):
        g.edge(a, b, distance=bad)


@pytest.mark.parametrize("distance", [1, 2, 3, 40])
def test_edge_of_any_distance_holds(distance, machine):
    g = ost.Graph(infer=False)
    x = np.zeros(200)

    def first(x, s):
        x[s] = 1

    def second(x, s):
        assert s < distance or x[s - distance] == 1
        x[100 + s] = 1

    a = g.task(first, x, ost.step, access=(ost.ReadWrite, None))
    b = g.task(second, x, ost.step, access=(ost.ReadWrite, None))
    g.edge(a, b, distance=distance)
    run(g, machine, 100)
    assert x.all()


def test_op_after_itself_is_a_graph_error_naming_it():
    g = ost.Graph(infer=False)
    a = g.task(nothing, name="myself")
    with pytest.raises(ost.GraphError, match="myself"):  # noqa: PT012
        g.edge(a, a)
        g.compile()
    g = ost.Graph(infer=False)
    a = g.task(nothing)
    g.edge(a, a, distance=1)
    g.compile().close()


def test_cycle_is_a_graph_error_naming_the_ops_and_their_lines(machine):
    g = ost.Graph(infer=False)
    a, b, c = (g.task(nothing, name=name) for name in ("alpha", "beta", "gamma"))
    g.edge(a, b)
    g.edge(b, c)
    with pytest.raises(ost.GraphError, match="test_graphs") as error:  # noqa: PT012
        g.edge(c, a)
        g.compile(machine)
    assert all(name in str(error.value) for name in ("alpha", "beta", "gamma"))


def test_task_takes_any_callable_together_with_access(machine):
    g = ost.Graph()
    x = np.zeros(2)
    g.task(lambda x, k: x.__iadd__(k), x, 2, access=(ost.ReadWrite, float))
    g.task(np.add, x, 1, x, access=(ost.Read, None, ost.Write))
    run(g, machine)
    assert x.tolist() == [3, 3]


def test_task_of_a_plain_callable_without_access_raises():
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.task(lambda x: None, np.zeros(1))
    assert len(g) == 0


def test_access_of_wrong_length_raises():
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.task(lambda x: None, np.zeros(1), access=(ost.Read, ost.Read))
    assert len(g) == 0


def test_on_takes_a_processor_its_name_or_a_kind(machine):
    names = {}

    @ost.task(releases_gil=True)
    def note(k, t: ost.ReadWrite):
        names[k] = threading.get_ident()

    g = ost.Graph()
    for k in range(8):
        on = [machine.processor("cpu:1"), "cpu:1", "cpu:0", "cpu"][k % 4]
        g.task(note, k, [], on=on)
    run(g, machine)
    me = threading.get_ident()
    for k in range(8):
        if k % 4 < 2:
            assert names[k] != me
        if k % 4 == 2:
            assert names[k] == me  # the thread in replay stands in for cpu:0


@pytest.mark.parametrize("in_flight", [False, True])
def test_the_thread_in_replay_stands_in_for_cpu_0_whatever_its_worker_was_at(in_flight, machine):
    ran = []

    @ost.task(releases_gil=True)
    def note(replayed, t: ost.ReadWrite):
        if replayed:
            ran.append(threading.get_ident())

    g, h = ost.Graph(), ost.Graph()
    for graph in (g, h):
        graph.task(note, graph.param("replayed", 0), [], on="cpu:0")
    with g.compile(machine) as program, h.compile(machine) as other:
        for busy in (program, other):
            for _ in range(1500):
                run = busy.submit(2)
                if not in_flight:
                    run.result()
                program.replay(replayed=1)
    assert ran == [threading.get_ident()] * 3000


def test_named_processor_always_binds(machine):
    names = set()

    @ost.task
    def note(t: ost.ReadWrite):
        names.add(threading.get_ident())

    g = ost.Graph()
    token = []
    for _ in range(3):
        g.task(note, token, on="cpu:1")
    run(g, machine, 20)
    assert len(names) == 1
    assert threading.get_ident() not in names


def test_on_a_processor_that_the_machine_lacks_raises(machine):
    for on in ("cpu:17", "cuda:99"):
        with pytest.raises((ost.GraphError, ost.DeviceError, ValueError)):  # noqa: PT012
            g = ost.Graph()
            g.task(nothing, on=on)
            g.compile(machine)


@pytest.mark.parametrize("bad", [3, "", "cpu:x", object()])
def test_on_of_something_else_raises(bad, machine):
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):  # noqa: PT012
        g.task(nothing, on=bad)
        g.compile(machine)


# copies and fills


def test_copy_of_strided_arrays(machine):
    src, dst = np.arange(24.0).reshape(4, 6), np.zeros((3, 4))
    g = ost.Graph()
    g.copy(src[::-2, ::2], dst[::2, 3:0:-1])
    run(g, machine)
    expected = np.zeros((3, 4))
    expected[::2, 3:0:-1] = src[::-2, ::2]
    assert (dst == expected).all()


def test_overlapping_copy_is_as_if_the_source_had_been_copied_first(machine):
    rng = np.random.default_rng(1)
    for a, b in [(slice(0, 8), slice(2, 10)), (slice(2, 10), slice(0, 8)), (slice(None), slice(None, None, -1))]:
        for shape in [(10,), (10, 3)]:
            x = rng.random(shape)
            expected = x.copy()
            expected[b] = x[a].copy()
            g = ost.Graph()
            g.copy(x[a], x[b])
            run(g, machine)
            assert (x == expected).all()
    x = rng.random((5, 5))
    expected = x.T.copy()
    g = ost.Graph()
    g.copy(x.T, x)
    run(g, machine)
    assert (x == expected).all()


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("i4", "f8", True),
        ("f8", "f4", True),
        ("f8", "i8", False),
        ("c16", "f8", False),
        ("?", "i1", True),
        ("i8", "?", False),
        ("i8", "i2", True),
        (">f8", "<f8", True),
        ("f2", "f8", True),
        ("u8", "i8", True),
        ("S3", "S5", True),
        ("M8[s]", "M8[ns]", True),
    ],
)
def test_copy_dtype_castable_as_by_copyto(source, target, allowed, machine):
    x = np.arange(6).astype(source) if source[0] != "S" else np.array([b"a", b"bcd"], source)
    expected, y = (np.zeros(x.shape, target) for _ in range(2))
    if allowed:
        np.copyto(expected, x)
        g = ost.Graph()
        g.copy(x, y)
        run(g, machine)
        assert y.tobytes() == expected.tobytes()
    else:
        with pytest.raises(TypeError):
            np.copyto(expected, x)
        g = ost.Graph()
        with pytest.raises((TypeError, ValueError)):
            g.copy(x, y)
        assert len(g) == 0


@pytest.mark.parametrize("reduce", ["+", "*", "min", "max"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "c16", "?", "f2"])
def test_copy_reduce_combines_into_dst(reduce, dtype, machine):
    rng = np.random.default_rng(2)
    x, y = ((rng.random(20) * 200 - 50).astype(dtype) for _ in range(2))
    if dtype[0] == "f":
        x[3] = np.nan
    function = {"+": np.add, "*": np.multiply, "min": np.minimum, "max": np.maximum}[reduce]
    with np.errstate(all="ignore"):
        expected = function(y, x)
        g = ost.Graph()
        try:
            g.copy(x, y, reduce=reduce)
        except (TypeError, ValueError):
            assert dtype == "c16"
            return
        run(g, machine)
    assert y.tobytes() == expected.tobytes()


def test_copy_reduce_reads_what_dst_held_so_it_is_ordered_after_its_writer():
    g = ost.Graph()
    x, y = np.zeros(2), np.zeros(2)
    a = g.fill(y, 1)
    b = g.copy(x, y, reduce="+")
    assert (a, b) in same_step(g)


def test_indices_gather_along_the_first_axis(machine):
    src, dst = np.arange(12.0).reshape(6, 2), np.zeros((4, 2))
    for indices in (np.array([5, 0, 0, 3]), np.array([1, 2, 3, 4], np.uint8), np.arange(8, dtype=np.int32)[::2] // 2):
        g = ost.Graph()
        g.copy(src, dst, indices=indices)
        run(g, machine)
        assert (dst == src[indices]).all()


def test_scatter_along_the_first_axis(machine):
    src, dst = np.arange(8.0).reshape(4, 2), np.zeros((6, 2))
    scatter = np.array([5, 0, 3, 1])
    g = ost.Graph()
    g.copy(src, dst, scatter=scatter)
    run(g, machine)
    expected = np.zeros((6, 2))
    expected[scatter] = src
    assert (dst == expected).all()


def test_indices_and_scatter_and_reduce_together(machine):
    src, dst = np.arange(5.0), np.ones(4)
    indices, scatter = np.array([4, 4, 1]), np.array([2, 2, 0])
    g = ost.Graph()
    g.copy(src, dst, indices=indices, scatter=scatter, reduce="+")
    run(g, machine)
    expected = np.ones(4)
    np.add.at(expected, scatter, src[indices])
    assert (dst == expected).all()


def test_gather_of_overlapping_arrays_is_as_if_the_source_had_been_copied_first(machine):
    x = np.arange(6.0)
    indices = np.array([5, 4, 3, 2, 1, 0])
    expected = x[indices].copy()
    g = ost.Graph()
    g.copy(x, x, indices=indices)
    run(g, machine)
    assert (x == expected).all()


def test_index_arrays_are_read_in_every_step_as_read_arrays(machine):
    src, dst, index = np.arange(10.0), np.zeros(1), np.zeros(1, np.int64)
    total = np.zeros(1)
    g = ost.Graph()
    gather = g.copy(src, dst, indices=index)
    g.task(lambda d, t: t.__iadd__(d), dst, total, access=(ost.Read, ost.ReadWrite))
    move = g.task(lambda i: i.__iadd__(1), index, access=(ost.ReadWrite,))
    assert (gather, move) in same_step(g)
    run(g, machine, 10)
    assert total[0] == 45


@pytest.mark.parametrize("bad", [6, -7, 1 << 40])
@pytest.mark.parametrize("kind", ["indices", "scatter"])
def test_index_out_of_range_is_a_task_error(kind, bad, machine):
    src, dst, index = np.arange(6.0), np.zeros(6), np.array([0, 1, 2, 3, 4, bad])
    g = ost.Graph()
    op = g.copy(src, dst, **{kind: index})
    with pytest.raises(ost.TaskError) as error:
        run(g, machine)
    assert error.value.op is op
    assert error.value.step == 0


@pytest.mark.parametrize("bad", [np.zeros(4), np.zeros((2, 2), int), [0.5]])
def test_index_arrays_are_checked(bad):
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.copy(np.zeros(4), np.zeros(4), indices=bad)


@pytest.mark.parametrize("value", [1, 2.5, True, np.float32(3), [1, 2, 3], np.arange(6.0).reshape(2, 3), 1 << 40])
def test_fill_with_any_value_that_an_assignment_takes(value, machine):
    x, expected = np.zeros((2, 3)), np.zeros((2, 3))
    expected[...] = value
    g = ost.Graph()
    g.fill(x, value)
    run(g, machine)
    assert (x == expected).all()


def test_fill_of_strided_and_structured_and_string_arrays(machine):
    x = np.zeros((4, 4))
    s = np.zeros(3, [("a", "i4"), ("b", "f8")])
    u = np.zeros(3, "U5")
    d = np.zeros(2, "M8[s]")
    g = ost.Graph()
    g.fill(x[::2, ::-3], 1)
    g.fill(s, (1, 2.5))
    g.fill(u, "hello")
    g.fill(d, "2020-01-01")
    run(g, machine)
    assert x.sum() == 4
    assert s.tolist() == [(1, 2.5)] * 3
    assert u.tolist() == ["hello"] * 3
    assert (d == np.datetime64("2020-01-01")).all()


@pytest.mark.parametrize("value", ["x", [1, 2], None.__class__, 1j, object()])
def test_fill_with_a_value_that_an_assignment_does_not_take_raises(value):
    with pytest.raises((TypeError, ValueError)):
        np.zeros(3)[...] = value
    g = ost.Graph()
    with pytest.raises((TypeError, ValueError)):
        g.fill(np.zeros(3), value)
    assert len(g) == 0


def test_fill_value_too_big_raises_as_an_assignment_does():
    with pytest.raises(OverflowError):
        np.zeros(3, np.uint8)[...] = 300
    with pytest.raises((OverflowError, ValueError)):
        ost.Graph().fill(np.zeros(3, np.uint8), 300)


def test_param_as_value_of_fill(machine):
    x, y = np.zeros(3), np.zeros(3, np.int16)
    g = ost.Graph()
    g.fill(x, g.param("v", 2.0))
    g.fill(y, g.param("w"))
    with g.compile(machine) as program:
        program.replay(w=3)
        assert (x[0], y[0]) == (2, 3)
        program.replay(v=5, w=4)
        assert (x[0], y[0]) == (5, 4)
        for bad in ("x", 1j, [1, 2]):
            with pytest.raises((TypeError, ValueError)):
                program.replay(v=bad, w=1)
        with pytest.raises((TypeError, ValueError, OverflowError)):
            program.replay(v=1, w=1 << 20)
        assert (x[0], y[0]) == (5, 4)


def test_fill_of_a_ring_and_copy_between_rings(machine):
    a, b, c, d = (np.zeros(2) for _ in range(4))
    g = ost.Graph()
    r, s = g.ring(a, b), g.ring(c, d)
    g.fill(r[0], 1)
    g.copy(r[0], s[1])
    run(g, machine, 1)
    assert [v[0] for v in (a, b, c, d)] == [1, 0, 0, 1]


# param


def test_param_required_without_default(machine):
    x = np.zeros(1)
    with ost.capture() as g:
        add(x, ost.param("k"))
    with g.compile(machine) as program:
        with pytest.raises(TypeError, match="k"):
            program.replay()
        with pytest.raises(TypeError):
            program.submit()
        assert program.replay(2, k=2) == 2
    assert x[0] == 4


def test_all_mentions_of_a_name_are_one_parameter_and_one_may_carry_the_default(machine):
    x = np.zeros(1)
    with ost.capture() as g:
        add(x, ost.param("k"))
        add(x, ost.param("k", 5))
        add(x, g.param("k"))
    run(g, machine)
    assert x[0] == 15
    run(g, machine, k=1)
    assert x[0] == 18


def test_two_different_defaults_are_a_graph_error():
    g = ost.Graph()
    g.param("k", 1)
    g.param("k", 1)
    with pytest.raises(ost.GraphError, match="k"):
        g.param("k", 2)


def test_none_is_a_default(machine):
    seen = []
    with ost.capture() as g:
        ost.task(lambda k: seen.append(k))(ost.param("k", None))
    run(g, machine)
    assert seen == [None]


def test_defaults_that_are_arrays_or_nan_are_compared_sensibly(machine):
    g = ost.Graph()
    g.param("n", float("nan"))
    g.param("n", float("nan"))
    value = np.arange(3)
    g.param("a", value)
    g.param("a", value)
    with pytest.raises(ost.GraphError):
        g.param("a", np.arange(4))


def test_combine_gives_the_task_the_combination_of_default_and_given(machine):
    seen = []

    @ost.task
    def f(k):
        seen.append(k)

    with ost.capture() as g:
        f(ost.param("k", 10, combine=operator.sub))
    with g.compile(machine) as program:
        program.replay()
        program.replay(k=3)
    assert seen == [10, 7]


def test_combine_must_be_callable():
    with pytest.raises((TypeError, ValueError)):
        ost.Graph().param("k", 1, combine=3)


def test_combine_that_raises_raises_before_anything_runs(machine):
    x = np.zeros(1)
    with ost.capture() as g:
        add(x, ost.param("k", 1, combine=operator.add))
    with g.compile(machine) as program:
        with pytest.raises((TypeError, ValueError)):
            program.replay(k="a")
        assert x[0] == 0
        assert program.replay(k=1) == 1


def test_params_are_objects_too(machine):
    seen = []
    with ost.capture() as g:
        ost.task(lambda k: seen.append(k))(k=ost.param("o"))
    thing = object()
    run(g, machine, o=thing)
    assert seen == [thing]


def test_param_name_is_checked():
    for bad in (3, None, ""):
        with pytest.raises((TypeError, ValueError)):
            ost.Graph().param(bad)


def test_params_is_the_full_form_of_the_keyword_parameters(machine):
    x = np.zeros(1)
    with ost.capture() as g:
        add(x, ost.param("steps"))
        add(x, ost.param("not an identifier", 0))
    with g.compile(machine) as program:
        program.replay(1, params={"steps": 4, "not an identifier": 3})
        assert x[0] == 7
        program.submit(1, params={"steps": 1}).result()
        assert x[0] == 8
        with pytest.raises(TypeError):
            program.replay(1, params={"other": 4, "steps": 1})
        with pytest.raises((TypeError, ValueError)):
            program.replay(1, params=3)


def test_wrong_parameter_name_is_a_type_error_before_anything_runs(machine):
    x = np.zeros(1)
    with ost.capture() as g:
        add(x, ost.param("omega", 1))
    with g.compile(machine) as program:
        for call in (program.replay, program.submit, program.verify, program.trace):
            with pytest.raises(TypeError, match="omgea"):
                call(1, omgea=3)
    assert x[0] == 0


# rings


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_ring_takes_turns(n, machine):
    arrays = [np.zeros(4) for _ in range(n)]
    seen = []

    def note(a, b, c, s):
        for k, x in ((0, a), (1, b), (-1, c)):
            (which,) = [i for i, y in enumerate(arrays) if np.shares_memory(x, y)]
            seen.append((s, k, which))

    g = ost.Graph()
    r = g.ring(*arrays)
    g.task(note, r[0], r[1][1:3], r[-1][2:], ost.step, access=(ost.Read, ost.Read, ost.Read, None))
    with g.compile(machine) as program:
        program.replay(4)
        program.replay(3)
    assert seen == [(s, k, (s + k) % n) for s in range(7) for k in (0, 1, -1)]


def test_ring_slices_further_like_an_array(machine):
    arrays = [np.arange(24.0).reshape(4, 6) + 100 * k for k in range(3)]
    seen = []
    g = ost.Graph()
    r = g.ring(*arrays)
    cuts = [np.s_[2], np.s_[1:3, ::2], np.s_[::-1], np.s_[..., 1], np.s_[-1:, -2:]]
    turn = np.zeros(1)  # one after the other

    def note(x, _):
        seen.append(x.copy())

    for cut in cuts:
        g.task(note, r[0][cut], turn, access=(ost.Read, ost.ReadWrite))
    g.task(note, r[-4][1:][1:, 2], turn, access=(ost.Read, ost.ReadWrite))
    run(g, machine, 3)
    expected = []
    for s in range(3):
        expected += [arrays[s][cut] for cut in cuts] + [arrays[(s - 4) % 3][1:][1:, 2]]
    assert len(seen) == len(expected)
    assert all(np.array_equal(a, b) for a, b in zip(seen, expected, strict=True))


def test_ring_arrays_are_of_one_shape_and_dtype():
    for bad in ([np.zeros(2), np.zeros(3)], [np.zeros(2), np.zeros(2, int)], [], [3], [np.zeros(2), "x"]):
        with pytest.raises((TypeError, ValueError)):
            ost.ring(*bad)


def test_ring_itself_as_an_argument_raises():
    r = ost.ring(np.zeros(2), np.zeros(2))
    with pytest.raises((TypeError, ValueError)), ost.capture() as g:
        add(r, 1)
    assert len(g) == 0


@pytest.mark.parametrize("bad", [1.5, "a", None, slice(2)])
def test_ring_index_is_checked(bad):
    with pytest.raises((TypeError, IndexError, ValueError)):
        ost.ring(np.zeros(2), np.zeros(2))[bad]


def test_ring_equals_the_plain_loop(machine):
    a, b = np.random.default_rng(0).random((2, 32))
    x, y = a.copy(), b.copy()

    @ost.task
    def relax(src: ost.Read, dst: ost.Write):
        dst[...] = src[1:-1] + 0.1 * (src[2:] - 2 * src[1:-1] + src[:-2])

    u = ost.ring(a, b)
    with ost.capture() as g:
        for k in range(1, 31, 10):
            relax(u[0][k - 1 : k + 11], u[1][k : k + 10])
    run(g, machine, 101)
    for _ in range(101):
        for k in range(1, 31, 10):
            relax(x[k - 1 : k + 11], y[k : k + 10])
        x, y = y, x
    pair = (a, b) if 101 % 2 == 0 else (b, a)
    assert (x == pair[0]).all()
    assert (y == pair[1]).all()


# until


@pytest.mark.parametrize("dtype", ["f8", "?", "u1", "i4", "c8"])
def test_until_the_step_in_which_the_flag_is_nonzero_is_the_last(dtype, machine):
    flag, n, after = np.zeros(1, dtype), np.zeros(1), np.zeros(1)

    @ost.task
    def count(n: ost.ReadWrite, flag: ost.Write):
        n += 1
        flag[0] = n[0] >= 5

    with ost.capture() as g:
        count(n, flag)
        ost.until(flag)
        add(after, 1)
    with g.compile(machine) as program:
        assert program.replay(100) == 5
        assert (n[0], after[0]) == (5, 5)  # ops after the until belong to the last step
        assert program.replay(100) == 1
        assert program.replay(0) == 0


def test_until_every_reads_the_flag_in_every_so_manieth_step(machine):
    flag, n = np.zeros(1), np.zeros(1)
    g = ost.Graph()

    def count(n, flag):
        n += 1
        flag[0] = n[0] >= 5

    g.task(count, n, flag, access=(ost.ReadWrite, ost.Write))
    g.until(flag, every=4)
    assert run(g, machine, 100) == 8
    assert n[0] == 8


def test_no_op_of_a_later_step_starts_before_the_flag_is_known(machine):
    flag = np.zeros(1)
    free = np.zeros(1)
    n = np.zeros(1)

    def count(n, flag):
        n += 1
        flag[0] = n[0] == 7

    g = ost.Graph()
    g.task(lambda x: x.__iadd__(1), free, access=(ost.ReadWrite,))  # could run ahead
    g.task(count, n, flag, access=(ost.ReadWrite, ost.Write))
    g.until(flag)
    assert run(g, machine, 1000) == 7
    assert free[0] == n[0] == 7


def test_at_most_one_until_a_graph():
    g = ost.Graph()
    g.until(np.zeros(1))
    with pytest.raises((ost.GraphError, ValueError)):
        g.until(np.zeros(1))


def test_until_flag_is_a_one_element_array():
    for bad in (np.zeros(2), 3, [0], None, np.zeros(1, object)):
        with pytest.raises((TypeError, ValueError)):
            ost.Graph().until(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", None])
def test_until_every_is_checked(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.Graph().until(np.zeros(1), every=bad)


def test_until_flag_of_a_ring(machine):
    a, b = np.zeros(1), np.zeros(1)

    def count(flag, s):
        flag[0] = s == 3

    g = ost.Graph()
    r = g.ring(a, b)
    g.task(count, r[1], ost.step, access=(ost.Write, None))
    g.until(r[1])
    assert run(g, machine, 50) == 4


def test_outside_a_capture_until_raises():
    with pytest.raises((ost.GraphError, RuntimeError)):
        ost.until(np.zeros(1))


# edges


def test_inferred_edges_follow_overlapping_boxes_of_one_base():
    x = np.zeros((10, 10))
    g = ost.Graph()
    a = g.task(add, x[:5, :5], 1)
    b = g.task(add, x[5:, 5:], 1)
    c = g.task(add, x[4:6, 4:6], 1)
    d = g.task(look, x[:, 9])
    e = g.task(add, x[::2, 0:1], 1)
    edges = same_step(g)
    assert {(a, c), (b, c), (b, d), (a, e)} <= edges
    assert (a, b) not in edges
    assert (c, d) not in edges


def test_reads_are_not_ordered_among_themselves():
    x = np.zeros(2)
    g = ost.Graph()
    a, b = g.task(look, x), g.task(look, x)
    assert not g.edges
    assert len({a, b}) == 2


def test_inferred_edges_from_one_step_to_later_ones_an_op_and_itself_included():
    x = np.zeros(2)
    g = ost.Graph()
    a = g.task(add, x, 1)
    assert (a, a, 1) in g.edges
    g = ost.Graph()
    b, c = g.task(look, x), g.task(add, x, 1)
    assert (b, c) in same_step(g)
    assert (c, b, 1) in g.edges


def test_where_boxes_are_impossible_the_whole_allocation_counts(machine):
    raw = np.zeros(64, np.uint8)
    a = np.frombuffer(raw, np.float64)[2:4]
    b = np.lib.stride_tricks.as_strided(raw.view(np.float64), (3, 2), (8, 8))
    g = ost.Graph()
    first, second = g.task(add, a, 1), g.task(look, b)
    assert (first, second) in same_step(g)


def test_edges_are_triples():
    x = np.zeros(2)
    g = ost.Graph()
    g.task(add, x, 1)
    g.task(add, x, 1)
    for a, b, distance in g.edges:
        assert isinstance(a, ost.Op)
        assert isinstance(b, ost.Op)
        assert isinstance(distance, int)


def test_infer_false_infers_nothing():
    x = np.zeros(2)
    g = ost.Graph(infer=False)
    g.task(add, x, 1)
    g.task(add, x, 1)
    assert not same_step(g)


def test_infer_false_without_edges_of_distance_a_step_begins_when_the_one_before_has_ended(machine):
    live, most, lock = set(), [], threading.Lock()

    @ost.task(releases_gil=True)
    def note(s, k):
        with lock:
            live.add((s, k))
            most.append(s)
            assert most == sorted(most)

    g = ost.Graph(infer=False)
    for k in range(4):
        g.task(note, ost.step, k)
    run(g, machine, 100)
    assert len(live) == 400


def test_infer_false_with_an_edge_of_distance_steps_overlap_as_far_as_given_edges_allow(machine):
    # cpu:1's op of step 0 waits for cpu:0's op of step 2: only overlapping steps can end this.
    gate = threading.Event()

    @ost.task(releases_gil=True)
    def ahead(s):
        if s == 2:
            gate.set()

    @ost.task(releases_gil=True)
    def behind(s):
        assert gate.wait(20)

    g = ost.Graph(infer=False)
    a, b = g.task(ahead, ost.step, on="cpu:0"), g.task(behind, ost.step, on="cpu:1")
    g.edge(a, a, distance=1)
    g.edge(b, b, distance=1)
    assert run(g, machine, 5) == 5


def test_param_and_ring_and_step_mix_with_native(machine):
    lib = load(str(Path(__file__).parents[1] / "tasks.c"))
    f = ost.native(ctypes.cast(lib.add, ctypes.c_void_p).value, (ost.ReadWrite, int))
    a, b, c = np.zeros(1), np.zeros(1), np.zeros(1)
    g = ost.Graph()
    r = g.ring(a, b, c)
    g.task(f, r[0], g.param("k", 1))
    g.task(f, r[-1], ost.step)
    with g.compile(machine) as program:
        program.replay(4)
        program.replay(2, k=10)
    expected = [0, 0, 0]
    for s in range(6):
        expected[s % 3] += 1 if s < 4 else 10
        expected[(s - 1) % 3] += s
    assert [a[0], b[0], c[0]] == expected


# compile


def test_compile_of_a_graph_still_being_captured_raises():
    with pytest.raises((ost.GraphError, RuntimeError)), ost.capture() as g:
        g.compile()


def test_compile_with_no_machine_uses_the_processs_default_machine():
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, 1)
    with g.compile() as p, g.compile() as q:
        p.replay(2)
        q.replay(1)
    assert x[0] == 3


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_lanes_at_most_so_many_threads_worth(lanes, machine):
    x = np.zeros(16)
    g = ost.Graph()
    for k in range(16):
        g.task(add, x[k : k + 1], 1)
    with g.compile(machine, lanes=lanes) as program:
        program.replay(10)
    assert (x == 10).all()


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2"])
def test_lanes_is_checked(bad, machine):
    g = ost.Graph()
    g.task(nothing)
    with pytest.raises((TypeError, ValueError)):
        g.compile(machine, lanes=bad)


@pytest.mark.parametrize("bad", ["parallel", None, 3])
def test_runs_is_checked(bad, machine):
    g = ost.Graph()
    g.task(nothing)
    with pytest.raises((TypeError, ValueError)):
        g.compile(machine, runs=bad)


def test_compile_for_something_that_is_no_machine_raises():
    g = ost.Graph()
    g.task(nothing)
    for bad in (3, "cpu", object()):
        with pytest.raises(TypeError):
            g.compile(bad)


def test_costs_is_a_mapping_from_op_or_task_to_seconds(machine):
    x, y = np.zeros(1), np.zeros(1)
    g = ost.Graph()
    a, _ = g.task(add, x, 1), g.task(add, y, 1)
    for costs in ({a: 1e-3}, {add: 1e-6}, {a: 1e-3, add: 5e-4}, {}):
        with g.compile(machine, costs=costs) as program:
            program.replay(2)
            program.explain()
    assert x[0] == y[0] == 8


@pytest.mark.parametrize("bad", [{3: 1.0}, {add: -1.0}, {add: "x"}, {add: float("nan")}, 3])
def test_costs_is_checked(bad, machine):
    g = ost.Graph()
    g.task(add, np.zeros(1), 1)
    with pytest.raises((TypeError, ValueError)):
        g.compile(machine, costs=bad)


def test_graph_may_be_compiled_many_times_and_grow_between(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, 1)
    p = g.compile(machine)
    g.task(add, x, 10)
    q = g.compile(machine)
    p.replay()
    assert x[0] == 1
    q.replay()
    assert x[0] == 12
    p.close()
    q.close()


def test_empty_graph_compiles_and_runs(machine):
    g = ost.Graph()
    assert len(g) == 0
    assert run(g, machine, 5) == 5


def test_arrays_stay_alive_and_un_resizable_while_a_program_refers_to_them(machine):
    x = np.zeros(4)
    g = ost.Graph()
    g.task(add, x, 1)
    with g.compile(machine) as program:
        with pytest.raises(ValueError, match="resize"):
            x.resize(100)
        buffer = bytearray(8)
        h = ost.Graph()
        h.fill(np.frombuffer(buffer, np.uint8), 3)
        h.task(add, buffer, 0)
        with pytest.raises(BufferError):
            buffer.extend(b"more")
        program.replay()


@pytest.mark.parametrize("on", ["cpu:0", "cpu:1"])
def test_what_a_running_task_calls_runs_at_once_even_if_the_replay_is_inside_a_capture(on, machine):
    x = np.zeros(1)
    inner = ost.Graph()
    inner.task(lambda x: add(x, 1), x, access=(ost.ReadWrite,), on=on)
    with inner.compile(machine) as program, ost.capture() as g:
        program.replay(3)
        program.submit(2).result()
        op = add(np.zeros(1), 1)
    assert list(g.ops) == [op]
    assert x[0] == 5


def test_a_running_task_may_capture_and_submit(machine):
    x, runs = np.zeros(1), []

    def work():
        with ost.capture() as g:
            add(x, 1)
        runs.append(g.compile(machine).submit(3))

    outer = ost.Graph()
    outer.task(work, access=())
    run(outer, machine)
    assert runs[0].result(60) == 3
    assert x[0] == 3


def test_arrays_of_no_or_one_element_and_of_no_dimension(machine):
    for shape in [(0,), (0, 3), (), (1,), (1, 1)]:
        x, y = np.ones(shape), np.zeros(shape)
        g = ost.Graph()
        g.copy(x, y)
        g.copy(x, y, reduce="+")
        g.task(add, y, 1)
        g.fill(x, 5)
        with g.compile(machine) as program:
            program.verify(2)
            program.replay(2)
        assert (y == 11).all()
