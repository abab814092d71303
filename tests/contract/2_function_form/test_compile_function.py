"""The contract's section "The function form"."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import threading
from typing import NamedTuple

import numpy as np
import pytest

import ostinato as ost


@ost.task
def put(src: ost.Read, dst: ost.Write):
    dst[...] = src


@ost.task
def add(src: ost.Read, dst: ost.ReadWrite, factor=1.0):
    dst += factor * src


def compiled(fn, *args, **kwargs):
    """Compile a function of which it is clear that nothing needs a graph's own thread."""
    return ost.compile(fn, *args, lanes=2, **kwargs)


def test_a_step_is_a_function():
    @ost.task
    def relax(src: ost.Read, dst: ost.Write, rate):
        assert type(src) is type(dst) is np.ndarray
        dst[...] = src[1:-1] + rate * (src[2:] - 2 * src[1:-1] + src[:-2])

    def step(u, tiles, rate):
        for low, high in tiles:
            relax(u[0][low - 1 : high + 1], u[1][low:high], rate)

    start = np.random.default_rng(1).random(32)
    u = ost.ring(start.copy(), start.copy())
    tiles = [(1, 10), (10, 31)]
    with compiled(step, u, tiles, ost.param("rate", 0.25)) as program:
        assert program.replay(7, rate=0.2) == 7
        assert program.replay(4) == 4
    old, new = start.copy(), start.copy()
    for rate in [0.2] * 7 + [0.25] * 4:
        for low, high in tiles:
            relax(old[low - 1 : high + 1], new[low:high], rate)
        old, new = new, old
    assert (u.values[1] == old).all()
    assert (u.values[0] == new).all()


def test_it_is_called_once_and_its_graph_is_kept():
    calls = []

    def step(x, y, *, factor):
        calls.append((x.shape, factor))
        return add(x, y, factor)

    x, y = np.ones(3), np.zeros(3)
    with compiled(step, x, y, factor=2.0) as program:
        assert program.replay(5) == 5
        assert [op.name for op in program.graph.ops] == ["add"]
    assert calls == [((3,), 2.0)]
    assert y.tolist() == [10.0] * 3


def test_options_are_those_of_graph_compile(machine):
    x = np.zeros(2)
    program = ost.compile(lambda: ost.fill(x, 1.0), machine=machine, runs="once", lanes=1, costs={})
    assert program.machine is machine
    program.replay()
    with pytest.raises(RuntimeError):
        program.submit()
    with pytest.raises(ValueError, match="runs"):
        ost.compile(lambda: ost.fill(x, 1.0), machine=machine, runs="never")
    with pytest.raises(TypeError, match="must be a function"):
        ost.compile(x)


def test_the_graph_of_a_program_of_graph_compile():
    x = np.zeros(2)
    graph = ost.Graph()
    graph.fill(x, 1.0)
    with graph.compile() as program:
        assert program.graph is graph


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class State:
    x: object
    more: dict
    name: str = "state"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: object


def test_containers_of_arrays_are_replaced_at_any_depth():
    arrays = [np.full(2, float(value)) for value in range(6)]
    seen = []

    def step(pair, state, frozen, mixed):
        for each in (pair.left, pair.right[0], state.x, state.more["y"], frozen.x, mixed[1]["z"][0]):
            seen.append(type(each))
            ost.fill(each, ost.param("value"))
        seen.append((type(pair), type(state), type(frozen), type(mixed), state.name, mixed[0]))

    pair, state = Pair(arrays[0], [arrays[1]]), State(arrays[2], {"y": arrays[3]})
    with compiled(step, pair, state, Frozen(arrays[4]), (3, {"z": [arrays[5]]})) as program:
        program.replay(value=7.0)
    assert np.ndarray not in seen[:6]
    assert seen[6] == (Pair, State, Frozen, tuple, "state", 3)
    assert all((array == 7.0).all() for array in arrays)
    assert pair.left is arrays[0]  # as it was
    assert state.x is arrays[2]


def swap(state):
    add(state.x, state.more["y"])
    state.x, state.more["y"] = state.more["y"], state.x


def count(state):
    add(state.x, state.more["y"])
    state.more["n"] = state.more.get("n", 0) + 1


def swap_twice(state):
    for _ in range(2):
        swap(state)


def test_a_change_of_a_container_of_arrays_would_be_lost():
    state = State(np.zeros(2), {"y": np.zeros(2)})
    for step in (swap, count):
        with pytest.raises(
            ost.GraphError, match=rf"{step.__name__}\(\) changed a .* that holds arrays.*ostinato\.ring"
        ):
            ost.compile(step, state)
    with pytest.raises(ost.GraphError, match=r"changed a list"):
        ost.compile(lambda pair: (add(*pair), pair.reverse()), [np.zeros(2), np.zeros(2)])
    seen = []
    ost.compile(lambda x, ops: ops.append(ost.fill(x, 1)), state.x, seen).close()  # without arrays: passed as it is
    assert len(seen) == 1
    with ost.compile(swap_twice, state) as program:  # which leaves the container as it was
        assert program.verify(2)


def test_what_holds_no_arrays_is_passed_as_it_is():
    log, table = [], {"a": (1, "b")}

    @ost.task
    def note(log: ost.ReadWrite, step, table):
        log.append((step, table["a"]))

    def step(given_log, given_table):
        assert given_log is log
        assert given_table is table
        note(given_log, ost.step, given_table)

    with compiled(step, log, table) as program:
        program.replay(2)
    assert log == [(0, (1, "b")), (1, (1, "b"))]


def test_an_array_passed_twice_is_one_tracer():
    def step(x, xs):
        assert x is xs[0]
        add(x, xs[1])

    x = np.ones(2)
    with compiled(step, x, [x, y := np.zeros(2)]) as program:
        program.replay(3)
    assert y.tolist() == [3.0, 3.0]


VIEWS = {
    "element": (lambda x: x[1, 2, 0], (2, 3, 4)),
    "row": (lambda x: x[1], (2, 3, 4)),
    "negative": (lambda x: x[-1, ::-2, 1:3], (2, 3, 4)),
    "new axis": (lambda x: x[None, ..., 0], (2, 3, 4)),
    "numpy integer": (lambda x: x[np.int64(1)], (2, 3, 4)),
    "T": (lambda x: x.T, (2, 3, 4)),
    "reshape": (lambda x: x.reshape(6, -1), (2, 3, 4)),
    "reshape of a tuple": (lambda x: x.reshape((4, 6)), (2, 3, 4)),
    "reshape in Fortran's order": (lambda x: x.T.reshape(12, 2, order="F"), (2, 3, 4)),
    "transpose": (lambda x: x.transpose(1, 0, 2), (2, 3, 4)),
    "transpose without axes": (lambda x: x.transpose(), (2, 3, 4)),
    "swapaxes": (lambda x: x.swapaxes(0, 2), (2, 3, 4)),
    "squeeze": (lambda x: x.squeeze(), (1, 3, 1)),
    "squeeze one": (lambda x: x.squeeze(axis=0), (1, 3, 1)),
    "view": (lambda x: x.view("i8"), (2, 3, 4)),
    "view of the same": (lambda x: x.view(), (2, 3, 4)),
    "iteration": (lambda x: list(x)[1], (2, 3, 4)),
    "reversed": (lambda x: next(reversed(x)), (2, 3, 4)),
    "unpacking": (lambda x: (lambda a, b: b)(*x), (2, 3, 4)),
    "slice of a view of a slice": (lambda x: x[1:].T[2, 1:].reshape(-1)[:1], (2, 3, 4)),
}


@pytest.mark.parametrize("passed", ["array", "ring", "list"])
@pytest.mark.parametrize(("take", "shape"), VIEWS.values(), ids=VIEWS)
def test_views(take, shape, passed):
    """Each has the shape, dtype and strides of NumPy's, and tasks write to the same elements."""
    x = np.arange(float(np.prod(shape))).reshape(shape)
    expected = x.copy()
    view = take(expected)
    looks = []

    @ost.task
    def change(view: ost.ReadWrite):
        assert type(view) is np.ndarray
        view[...] = 9

    def step(given):
        found = take(given[0] if passed != "array" else given)
        looks.append((found.shape, found.dtype, found.ndim, found.size, found.nbytes, found.itemsize))
        looks.append(found.strides)
        if found.ndim:
            assert len(found) == found.shape[0]
        change(found)

    given = {"array": x, "ring": ost.ring(x), "list": [x]}[passed]
    with compiled(step, given) as program:
        program.replay()
    assert looks == [(view.shape, view.dtype, view.ndim, view.size, view.nbytes, view.itemsize), view.strides]
    if view.ndim:
        view[...] = 9
    else:
        expected[1, 2, 0] = 9
    assert (x == expected).all()


def test_a_field_of_a_record_is_a_view():
    records = np.zeros(3, [("a", "f8"), ("b", "i4")])
    with compiled(lambda r: ost.fill(r["b"][1:], 4), records) as program:
        program.replay()
    assert records["b"].tolist() == [0, 4, 4]


def test_numpys_own_errors_stay():
    x = np.zeros((2, 3))
    for use, error in [
        (lambda x: x[2], IndexError),
        (lambda x: x[0, 0, 0], IndexError),
        (lambda x: x.reshape(4), ValueError),
        (lambda x: x.transpose(0, 0), ValueError),
        (lambda x: x.squeeze(axis=0), ValueError),
        (lambda x: x["a"], IndexError),
    ]:
        with pytest.raises(error) as found:
            compiled(use, x)
        assert not isinstance(found.value, ost.TracerError)


def test_a_reshape_that_would_copy_is_an_error():
    for use in (lambda x: x.T.reshape(6), lambda x: x[:, :2].reshape(-1)):
        with pytest.raises(ost.TracerError, match=r"reshape.*copy"):
            compiled(use, np.zeros((2, 3)))


def assigned(x, index=0):
    x[index] = 1.0


def deleted(x):
    del x[0]


def in_place(x):
    x += 1


def in_place_of_a_view(x):
    x[1:] *= 2


def unpacked_into_a_format(x):
    return "%d" % x[0]  # noqa: UP031


NEEDS = {
    "if": lambda x: 1 if x[0] > 0 else 2,
    "bool": lambda x: bool(x),
    "not": lambda x: not x,
    "and": lambda x: x and 1,
    "while": lambda x: [1 for _ in iter(lambda: bool(x[0]), True)],
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "complex": lambda x: complex(x[0]),
    "index": lambda x: [1, 2][x[0]],
    "range": lambda x: range(x[0]),
    "slice": lambda x: np.zeros(3)[: x[0]],
    "round": lambda x: round(x[0]),
    "floor": lambda x: math.floor(x[0]),
    "math": lambda x: math.sqrt(x[0]),
    "add": lambda x: x + 1,
    "radd": lambda x: 1 + x,
    "sub": lambda x: 2 - x,
    "mul": lambda x: put(x * 10, x),
    "array mul": lambda x: np.ones(4) * x,
    "scalar mul": lambda x: np.float64(2) * x,
    "pow": lambda x: x**2,
    "matmul": lambda x: x @ x,
    "neg": lambda x: -x,
    "abs": lambda x: abs(x),
    "invert": lambda x: ~x,
    "divmod": lambda x: divmod(x, 2),
    "eq": lambda x: x == 1,
    "ne": lambda x: x != 1,
    "lt": lambda x: x < 1,
    "array lt": lambda x: np.ones(4) < x,
    "ufunc": lambda x: np.sqrt(x),
    "ufunc out": lambda x: np.add(1, 2, out=x),
    "ufunc reduce": lambda x: np.add.reduce(x),
    "numpy function": lambda x: np.sum(x),
    "numpy where": lambda x: np.where(x),
    "numpy concatenate": lambda x: np.concatenate([x, x]),
    "numpy linalg": lambda x: np.linalg.norm(x),
    "numpy copyto": lambda x: np.copyto(x, 1.0),
    "numpy reshape": lambda x: np.reshape(x, (2, 2)),
    "asarray": lambda x: np.asarray(x),
    "array": lambda x: np.array([x, x]),
    "array of an element": lambda x: np.array([x[0], 1.0]),
    "memoryview": lambda x: memoryview(x),
    "dlpack": lambda x: np.from_dlpack(x),
    "assignment": assigned,
    "assignment to a slice": lambda x: assigned(x, slice(1, 2)),
    "del": deleted,
    "in place": in_place,
    "in place of a view": in_place_of_a_view,
    "in": lambda x: 1.0 in x,
    "max": lambda x: max(x),
    "sorted": lambda x: sorted(x),
    "sum": lambda x: sum(x),
    "method": lambda x: x.sum(),
    "method that writes": lambda x: x.fill(0),
    "method copy": lambda x: x.copy(),
    "method astype": lambda x: x.astype("f4"),
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[0].item(),
    "flat": lambda x: x.flat,
    "ravel": lambda x: x.ravel(),
    "fancy": lambda x: put(x[[0, 2]], x[:2]),
    "fancy array": lambda x: x[np.array([0, 2])],
    "fancy mask": lambda x: x[np.ones(4, bool)],
    "fancy bool": lambda x: x[True],
    "fancy by itself": lambda x: x[x],
    "format": lambda x: f"{x}",
    "format of an element": lambda x: f"{x[0]:.2f}",
    "percent": unpacked_into_a_format,
    "bytes": lambda x: bytes(x),
    "copy": lambda x: copy.copy(x),
    "deepcopy": lambda x: copy.deepcopy(x),
    "plain argument": lambda x: add(x[1:], x[1:], x[0]),
}


@pytest.mark.parametrize("passed", ["array", "ring", "in a list"])
@pytest.mark.parametrize("use", NEEDS.values(), ids=NEEDS)
def test_what_needs_a_value_raises(use, passed):
    given = {"array": np.arange(4.0), "ring": ost.ring(np.arange(4.0)), "in a list": [np.arange(4.0)]}[passed]

    def step(u):
        use(u if passed == "array" else u[0])

    if use is NEEDS["plain argument"]:
        with pytest.raises((TypeError, ost.GraphError), match="factor"):
            ost.compile(step, given)
        return
    with pytest.raises(ost.TracerError) as found:
        ost.compile(step, given)
    message = str(found.value)
    assert "test_compile_function.py" in message
    assert "task" in message or "ost.copy" in message
    with pytest.raises(TypeError):
        raise found.value
    with pytest.raises(ost.GraphError):
        raise found.value


@pytest.mark.parametrize("use", NEEDS.values(), ids=NEEDS)
def test_elements_of_a_ring_that_is_closed_over_behave_alike(use):
    u = ost.ring(np.arange(4.0), np.zeros(4))
    if use in (NEEDS["memoryview"], NEEDS["plain argument"], NEEDS["percent"]):
        with pytest.raises((TypeError, ost.GraphError)):
            ost.compile(lambda: use(u[0]))
    else:
        with pytest.raises(ost.TracerError, match=r"test_compile_function\.py"):
            ost.compile(lambda: use(u[0]))


def test_errors_name_the_line_the_argument_and_the_way_out():
    def step(u, limits):
        if u[1][2:5, None] > limits["low"]:  # this line
            add(u[0], u[1])

    line = step.__code__.co_firstlineno + 1
    with pytest.raises(ost.TracerError) as found:
        ost.compile(step, ost.ring(np.zeros(9), np.zeros(9)), {"low": 1.0})
    for part in (f"test_compile_function.py:{line}", "u[1][2:5, None]", "step()", "@ostinato.task"):
        assert part in str(found.value)
    for use, hint in [
        (lambda x: x[[0, 1]], "graph.copy(indices=...)"),
        (lambda x: float(x[0]), "ost.param"),
        (lambda x: assigned(x), "ost.fill"),
        (lambda x: bool(x[0]), "ost.until"),
    ]:
        with pytest.raises(ost.TracerError) as found:
            ost.compile(use, np.zeros(3))
        assert hint in str(found.value)


def test_names_of_arguments_in_containers_and_of_varargs():
    def step(*xs, **named):
        float(xs[1]["a"].T[0])

    with pytest.raises(ost.TracerError, match=r"xs\[1\]\['a'\]\.T\[0\]"):
        ost.compile(step, 1, {"a": np.zeros(2)})
    with pytest.raises(ost.TracerError, match=r"named_array\[0\]"):
        ost.compile(lambda **named: float(named["named_array"][0]), named_array=np.zeros(2))


def test_a_tracer_has_a_harmless_repr_and_hash():
    seen = []

    def step(x, u):
        seen.extend([repr(x[1:]), repr(u), str(u[1]), {x: 1}[x], hash(x) == hash(x), x is not u[0]])
        add(x, u[0])

    ost.compile(step, np.zeros(3), ost.ring(np.zeros(3), np.zeros(3))).close()
    assert "x[1:]" in seen[0]
    assert all("\n" not in text for text in seen[:3])
    assert seen[3:] == [1, True, True]


def test_a_tracer_that_escapes_says_so():
    escaped = []

    @ost.task
    def use_escaped(x: ost.ReadWrite):
        x += float(escaped[0][0])

    def step(x, u):
        escaped[:] = [x, u]
        use_escaped(x)

    x = np.zeros(3)
    program = ost.compile(step, x, ost.ring(np.zeros(3)))
    tracer, ring = escaped
    assert tracer.shape == (3,)
    for use in (lambda: put(tracer, x), lambda: put(x, tracer), lambda: put(ring[0], x), lambda: ost.copy(tracer, x)):
        with pytest.raises(ost.TracerError, match="tracer"):
            use()
    for use in (lambda: tracer[0], lambda: tracer + 1, lambda: np.asarray(tracer), lambda: ost.Graph().fill(tracer, 1)):
        with pytest.raises(ost.TracerError, match="recorded"):
            use()
    with pytest.raises(ost.GraphError, match="recorded"), ost.capture():
        put(tracer, x)
    with pytest.raises(TypeError, match="tracer"):
        program.machine.spawn(put, tracer, x)
    with pytest.raises(ost.TaskError) as found:  # inside a running task
        program.replay()
    assert isinstance(found.value.__cause__, ost.TracerError)
    program.close()


def test_a_tracer_in_another_thread_has_no_value_either():
    errors = []

    def step(x):
        def other():
            for use in (lambda: put(x, x), lambda: np.asarray(x), lambda: ost.fill(x, 1.0)):
                try:
                    use()
                except ost.TracerError as error:
                    errors.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        ost.fill(x, 2.0)

    ost.compile(step, np.zeros(3)).close()
    assert len(errors) == 3


def test_arrays_of_the_arguments_cannot_be_written_meanwhile():
    x, y = np.zeros(3), np.zeros(3)

    def step(given, other):
        put(other, given)
        x[0] = 1.0  # the array itself, through the closure

    with pytest.raises(ost.GraphError, match="read-only"):
        ost.compile(step, x, y)
    x[0] = 2.0  # writable again
    assert x.tolist() == [2.0, 0.0, 0.0]

    def early(given, other):
        x[0] += 1.0
        put(other, given)

    with pytest.raises(ost.GraphError, match=r"early\(\).*read-only"):
        ost.compile(early, x, y)
    assert x[0] == 2.0


def test_arrays_that_are_closed_over_are_recorded_as_in_captures():
    x, y = np.ones(3), np.zeros(3)

    def step(rate):
        add(x, y, rate)

    with compiled(step, 3.0) as program:
        program.replay(2)
    assert y.tolist() == [6.0] * 3

    def late():
        add(x, y)
        y[0] = 1

    with pytest.raises(ost.GraphError, match="read-only"):
        ost.compile(late)


def test_nested_graphs():
    x, y = np.ones(2), np.zeros(2)

    def step(x, y):
        inner = ost.Graph()
        inner.task(add, x, y)
        inner.copy(y, x)
        graph = ost.current_graph()
        graph.subgraph(inner)
        graph.subgraph(inner)

    with compiled(step, x, y) as program:
        program.replay()
    assert (x.tolist(), y.tolist()) == ([2.0, 2.0], [2.0, 2.0])


def test_methods_of_the_graph_and_functions_of_the_module():
    x, out, flag, steps = np.arange(4.0), np.zeros(2), np.zeros(1), np.zeros(1)
    barrier = ost.Barrier(1)

    @ost.task
    def count(steps: ost.ReadWrite, flag: ost.Write):
        steps += 1
        flag[0] = steps[0] >= 3

    def step(x, out, flag, steps, indices):
        graph = ost.current_graph()
        first = ost.fill(x[:1], 8.0)
        second = ost.copy(x, out, indices=indices, after=first)
        third = graph.copy(out, x[2:], reduce="+")
        graph.edge(second, third)
        counted = graph.task(count, steps, flag, after=third, priority=1, name="counted")
        graph.arrive(barrier, after=counted)
        ost.until(flag)

    with compiled(step, x, out, flag, steps, np.array([3, 0])) as program:
        assert program.replay(100) == 3
        assert "counted" in {op.name for op in program.graph.ops}
    assert (barrier.phase, steps[0]) == (3, 3.0)
    expected, gathered = np.arange(4.0), np.zeros(2)
    for _ in range(3):
        expected[0] = 8
        gathered[:] = expected[[3, 0]]
        expected[2:] += gathered
    assert x.tolist() == expected.tolist()


def test_rings_can_be_made_of_tracers():
    x, y = np.zeros(2), np.zeros(2)

    def step(x, y):
        u = ost.ring(x, y)
        add(u[0], u[1])
        ost.fill(u[0], 1.0)

    with compiled(step, x, y) as program:
        program.replay(2)
    assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [1.0, 1.0])


def test_a_function_that_records_nothing():
    @ost.task
    def unused(x: ost.Read): ...

    for fn in (lambda x: None, lambda x: x.shape):
        with pytest.raises(ost.GraphError, match="recorded nothing"):
            ost.compile(fn, np.zeros(2))


def test_an_exception_of_the_function_is_raised_as_it_is():
    x = np.zeros(2)

    def step(given):
        put(given, given)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        ost.compile(step, x)
    x[0] = 1.0
    with pytest.raises(RuntimeError, match="no graph is being recorded"):
        ost.current_graph()


def test_it_does_not_nest():
    x = np.zeros(2)
    with pytest.raises(ost.GraphError, match="nest"):
        ost.compile(lambda x: ost.compile(lambda x: ost.fill(x, 1.0), x), x)


def test_copy_and_fill_run_at_once_elsewhere():
    x, y = np.arange(4.0), np.zeros(4, "f4")
    assert ost.copy(x, y) is None
    assert y.tolist() == [0, 1, 2, 3]
    ost.copy(x[:-1], x[1:])  # as if the source had been copied first
    assert x.tolist() == [0, 0, 1, 2]
    ost.copy(np.ones(3), x, reduce="+", scatter=np.array([3, 3, 0]))
    assert x.tolist() == [1, 0, 1, 4]
    ost.copy(x, y[:2], indices=np.array([3, 0]))
    assert y.tolist() == [4, 1, 2, 3]
    ost.fill(y[1:3], np.array([7, 8]))
    assert y.tolist() == [4, 7, 8, 3]
    ost.fill(y, 1)
    assert y.tolist() == [1] * 4
    for wrong in (lambda: ost.copy(x, y[:2]), lambda: ost.fill(y, np.ones(3)), lambda: ost.copy(x, [0.0] * 4)):
        with pytest.raises((ost.GraphError, TypeError)):
            wrong()
    with pytest.raises(IndexError):
        ost.copy(x, y, indices=np.array([0, 1, 2, 9]))
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(ost.GraphError, match="read-only"):
        ost.fill(frozen, 1)
    with pytest.raises(TypeError, match="runs at once"):
        ost.fill(ost.ring(x)[0], 1)


def test_copy_and_fill_are_recorded_in_captures():
    x, y = np.ones(2), np.zeros(2)
    with ost.capture() as graph:
        first = ost.fill(x, 2.0)
        second = ost.copy(x, y, after=first, name="moved")
        assert ost.current_graph() is graph
    assert graph.ops == (first, second)
    assert second.name == "moved"
    assert "test_compile_function" in first.call_site.filename
    assert (x.tolist(), y.tolist()) == ([1, 1], [0, 0])


def test_foreign_arrays_are_traced():
    memory = bytearray(4)

    @ost.task
    def mark(bytes_: ost.Write):
        bytes_[:] = b"\x07" * len(bytes_)

    with compiled(lambda m: mark(m), memory) as program:
        program.replay()
    assert memory == b"\x07" * 4
    with pytest.raises(ost.TracerError, match="bytearray"):
        ost.compile(lambda m: mark(m[1:]), memory)
    with compiled(lambda m: mark(m[1:]), memoryview(memory).cast("B")) as program:
        program.replay()
    with pytest.raises(ost.TracerError):
        ost.compile(lambda m: mark(m) if m[0] else None, memory)


def test_a_rebound_program_lets_its_graph_and_arguments_go():
    import gc
    import weakref

    class Owned(np.ndarray):
        pass

    x, y = np.zeros(2).view(Owned), np.zeros(2)
    gone = weakref.ref(x)
    with compiled(lambda x: ost.fill(x, 1.0), x) as program:
        program.rebind([(x, y)])
        del x
        gc.collect()
        assert gone() is None
        program.replay()
        with pytest.raises(RuntimeError, match="released"):
            _ = program.graph
    assert y.tolist() == [1.0, 1.0]


def test_a_param_made_outside_is_one_of_each_graph_that_it_is_used_in():
    x, y = np.zeros(2), np.zeros(2)
    value = ost.param("value", 3.0)
    with ost.capture() as first:
        ost.fill(x, value)
    with ost.capture() as second:
        ost.fill(y, ost.param("value"))
        add(x, y, value)
    assert list(first.params) == list(second.params) == ["value"]
    with first.compile() as program:
        program.replay()
        assert x.tolist() == [3.0, 3.0]
        program.replay(value=4.0)
        assert x.tolist() == [4.0, 4.0]
    with second.compile() as program:
        program.replay()  # the default is of both mentions
        assert y.tolist() == [15.0, 15.0]

    def two_defaults():
        ost.fill(x, ost.param("value", 1.0))
        ost.fill(y, value)

    with pytest.raises(ost.GraphError, match="two defaults"):
        ost.compile(two_defaults)
    with ost.capture() as third:
        ost.fill(x, ost.param("value"))
        ost.fill(y, ost.param("value", 2.0))
    assert third.params["value"].default == 2.0
    assert value.default == 3.0


def test_a_param_made_outside_may_stand_wherever_one_may():
    x, seen = np.zeros(1), []

    @ost.task
    def note(value, *, name):
        seen.append((value, name))

    combined = ost.param("combined", 10, combine=lambda a, b: a + b)

    def step(x, value, name):
        inner = ost.Graph()
        inner.fill(x, inner.param("inner"))
        ost.current_graph().subgraph(inner, {"inner": value})
        ost.current_graph().arrive(ost.param("barrier"), count=ost.param("count"))
        note(combined, name=name)

    barrier = ost.Barrier(2)
    with compiled(step, x, ost.param("value"), name=ost.param("name", "none")) as program:
        program.replay(2, value=5.0, combined=1, barrier=barrier, count=2)
        with pytest.raises(TypeError, match="no default"):
            program.replay()
    assert x[0] == 5.0
    assert barrier.phase == 2
    assert seen == [(11, "none")] * 2
    for wrong in ((3,), ("",), ("a", 1, 2)):
        with pytest.raises((TypeError, ValueError)):
            ost.param(*wrong)
    with pytest.raises(TypeError, match="value"):
        ost.param("a") + 1


def test_containers_are_passed_on_to_tasks():
    @ost.task
    def advance(state: ost.ReadWrite, other: ost.Read, limits=None):
        assert type(state) is State
        state.x[...] += other[0] + (limits or {"by": 0.0})["by"]
        state.more["y"][...] = state.x[::-1]

    def step(state, others, limits):
        advance(state, others, limits=limits)
        inner = ost.Graph()
        inner.task(advance, State(state.more["y"], {"y": state.x}), (others[0],), {"by": 1.0})
        ost.current_graph().subgraph(inner)
        advance(state, [others[0][::-1]])

    x, y, other = np.arange(3.0), np.zeros(3), np.arange(3.0)
    with compiled(step, State(x, {"y": y}), [other], {"by": 2.0}) as program:
        program.replay(2)
    state = State(np.arange(3.0), {"y": np.zeros(3)})
    for _ in range(2):
        advance(state, [other], limits={"by": 2.0})
        advance(State(state.more["y"], {"y": state.x}), (other,), limits={"by": 1.0})
        advance(state, [other[::-1]])
    assert (x == state.x).all()
    assert (y == state.more["y"]).all()


def test_a_capture_that_records_nothing_raises():
    def undecorated(x):
        x += 1

    x = np.zeros(2)
    with pytest.raises(ost.GraphError, match=r"capture\(\) recorded nothing.*@ostinato\.task"), ost.capture():
        undecorated(x)
    with pytest.raises(ost.GraphError, match="recorded nothing"), ost.capture() as graph:
        graph.param("a")
    with pytest.raises(LookupError), ost.capture():
        raise LookupError
    graph = ost.Graph()  # which may be empty
    with graph.compile() as program:
        assert program.replay(3) == 3


def test_a_write_before_the_first_recorded_call_is_found():
    x, y = np.ones(4), np.zeros(4)

    def early():
        with ost.capture():
            np.add(x, 1, out=x)
            add(x, y)

    with pytest.raises(ost.GraphError, match=r"'x' is not what it was when capture\(\) began"):
        early()
    with ost.capture():
        z = np.zeros(4)
        z += 1  # made in the block: an input
        add(z, y)
    with ost.capture():
        x += 1  # not used by any call
        add(z, y)
    view = x[:]

    def step(given, other):
        view[0] = 5.0  # a view from before, which the guard does not reach
        add(given, other)

    with pytest.raises(ost.GraphError, match="is not what it was"):
        ost.compile(step, x, y)


def test_a_write_through_a_view_from_before_that_is_recorded_is_found():
    grid = [np.zeros(8)]  # no variable names the whole
    tile, y = grid[0][:4], np.zeros(4)
    fill = ost.task(lambda whole: None, access={"whole": ost.ReadWrite})

    def early():
        with ost.capture():
            fill(grid[0])
            tile[:] = 1
            add(tile, y)

    with pytest.raises(ost.GraphError, match="'tile' is not what it was"):
        early()


def test_what_a_run_writes_meanwhile_is_no_mistake():
    x, y = np.zeros(4), np.zeros(4)
    go = ost.UserEvent()
    with ost.capture() as graph:
        graph.fill(x, 3.0)
    with graph.compile() as program:
        run = program.submit(after=go)
        with ost.capture() as other:
            go.trigger()
            run.result()
            add(x, y)
        assert len(other) == 1
        x[:] = 0
        with ost.capture() as other:
            program.submit().result()
            add(x, y)
        assert len(other) == 1


def test_a_task_that_is_the_step_is_placed_at_the_line_that_compiles_it():
    line = inspect.currentframe().f_lineno + 1
    with ost.compile(put, np.ones(2), np.zeros(2)) as program:
        (op,) = program.graph.ops
    assert str(op.call_site) == f"test_compile_function.py:{line} in {inspect.currentframe().f_code.co_name}"
