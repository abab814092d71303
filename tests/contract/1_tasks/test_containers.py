"""The contract's section "Tasks": containers of arrays, tokens and plain parameters."""

from __future__ import annotations

import collections
import enum
import types
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import ostinato as ost


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


@ost.task
def total(xs: ost.Read, y: ost.Write):
    y[...] = sum(each.sum() for each in _arrays(xs))


@ost.task
def add(xs: ost.ReadWrite, k):
    for each in _arrays(xs):
        each += k


@ost.task
def use(x: ost.ReadWrite): ...


@ost.task
def plain(x: ost.ReadWrite, options): ...


def _arrays(xs):
    """The arrays in a container, at any depth."""
    if isinstance(xs, np.ndarray):
        return [xs]
    if isinstance(xs, dict):
        xs = xs.values()
    elif not isinstance(xs, list | tuple):
        xs = [getattr(xs, each.name) for each in fields(xs)] if is_dataclass(xs) else ()
    return [array for each in xs for array in _arrays(each)]


def edges(graph, distance=0):
    return [(a.index, b.index) for a, b, d in graph.edges if d == distance]


def received(value, machine, **params):
    """What a task that is replayed and one that is called at once get for a value."""
    found = []

    @ost.task
    def keep(x: ost.Read):
        found.append(x)

    keep(value)
    with ost.capture() as graph:
        keep(value)
    with graph.compile(machine) as program:
        program.replay(params=params)
    return found


class Pair(NamedTuple):
    a: Any
    b: Any


OldPair = namedtuple("OldPair", "a b")


@dataclass
class State:
    u: Any
    v: Any = 3
    history: list = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    u: Any
    n: int = 0


class MyList(list):
    pass


class MyDict(dict):
    def __setitem__(self, key, value):
        raise AssertionError("containers are made without calling the user's methods")


class MyTuple(tuple):
    pass


class Series:
    """Like a pandas Series: it becomes an array, but does not show its memory."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return self._values


class Frame:
    def __dataframe__(self): ...


def counted(a, b):
    found = defaultdict(list)
    found["a"], found["b"] = a, b
    return found


CONTAINERS = {
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
    "dict": lambda a, b: {"a": a, 2: b},
    "named tuple": Pair,
    "namedtuple": OldPair,
    "dataclass": lambda a, b: State(a, b),
    "frozen dataclass with slots": lambda a, b: [Frozen(a), Frozen(b)],
    "OrderedDict": lambda a, b: OrderedDict(z=a, y=b),
    "defaultdict": counted,
    "list subclass": lambda a, b: MyList([a, b]),
    "dict subclass": lambda a, b: MyDict(a=a, b=b),
    "tuple subclass": lambda a, b: MyTuple((a, b)),
    "nested": lambda a, b: {"deep": [(a, None), State({"x": [b]}, "text")]},
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_the_access_holds_for_each_array_in_a_container(make, machine):
    a, b, y = np.ones(3), np.ones(3), np.zeros(1)
    with ost.capture() as graph:
        add(a, 1.0)  # 0
        add(b, 1.0)  # 1
        total(make(a, b), y)  # 2
        add(make(b, a), 1.0)  # 3
    assert {(0, 2), (1, 2), (2, 3)} <= {*edges(graph)} <= {(0, 2), (1, 2), (2, 3), (0, 3), (1, 3)}
    with graph.compile(machine) as program:
        program.replay(2)
        assert y == [24]
        assert a.tolist() == b.tolist() == [5.0] * 3
        program.verify(2)


def same(x, y):
    """Whether two containers have one structure, and equal arrays."""
    if isinstance(x, np.ndarray):
        return type(y) is np.ndarray and np.array_equal(x, y)
    if type(x) is not type(y):
        return False
    if isinstance(x, dict):
        return list(x) == list(y) and all(map(same, x.values(), y.values()))
    if isinstance(x, list | tuple):
        return len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, State):
        return all(same(getattr(x, name), getattr(y, name)) for name in ("u", "v", "history"))
    if isinstance(x, Frozen):
        return same(x.u, y.u) and x.n == y.n
    return x == y


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_the_task_receives_the_same_structure(make, machine):
    value = make(np.arange(3.0), np.arange(4.0))
    for got in received(value, machine):
        assert same(value, got)
        assert got is not value
        for array, original in zip(_arrays(got), _arrays(value), strict=True):
            assert not array.flags.writeable
            assert np.shares_memory(array, original)


def test_a_list_of_arrays():  # the row of the table of mistakes
    a, b, y = np.zeros(2), np.zeros(2), np.zeros(1)
    with ost.capture() as graph:
        total([a, b], y)
        add(b, 1.0)
    assert edges(graph) == [(0, 1)]
    assert edges(graph, 1) != []


def test_a_dict_of_arrays():
    a, b, y = np.zeros(2), np.zeros(2), np.zeros(1)
    with ost.capture() as graph:
        add({"a": a, "b": b}, 1.0)
        total(b, y)
    assert edges(graph) == [(0, 1)]


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: [s], lambda s: {"s": (s,)}], ids=["alone", "list", "dict"])
def test_a_pandas_series_beside_its_array(wrap):
    values, y = np.ones(3), np.zeros(1)
    series = wrap(Series(values))
    with ost.capture() as graph:
        with pytest.raises(TypeError, match=r"parameter 'xs' of total\(\).*pass s\.to_numpy\(\)"):
            total(series, y)
        with pytest.raises(TypeError, match=r"pass s\.to_numpy\(\)"):
            graph.task(print, series, access=(ost.Read,))
        add(values, 1.0)
    with pytest.raises(TypeError, match=r"pass s\.to_numpy\(\)"):
        total(series, y)


def test_a_dataframe_is_refused():
    with ost.capture() as graph:
        with pytest.raises(TypeError, match=r"got a Frame.*pass s\.to_numpy\(\)"):
            use(Frame())
        use(np.zeros(1))
    assert len(graph) == 1


@pytest.mark.parametrize("value", [1, 2.5, 1j, True, np.float64(3), np.int8(1), "text", None], ids=repr)
def test_values_are_refused(value):
    with ost.capture() as graph:
        with pytest.raises(TypeError, match=r"parameter 'x' of use\(\) must be an array, got"):
            use(value)
        with pytest.raises(TypeError, match=r"argument 1 of print\(\) must be an array, got"):
            graph.task(print, value, access=(ost.Read,))
        use(np.zeros(1))
    with pytest.raises(TypeError, match="must be an array"):
        use(value)


def test_a_default_that_is_no_array_stays_one(machine):
    found = []

    @ost.task
    def blend(x: ost.ReadWrite, mask: ost.Read = None, *, other: ost.Write = None):
        found.append((mask, other))

    x, y = np.zeros(2), np.zeros(2)
    with ost.capture() as graph:
        blend(x)
        blend(y)
        blend(y, None, other=None)
        with pytest.raises(TypeError, match="must be an array, got the int 0"):
            blend(x, 0)
    assert edges(graph) == [(1, 2)]
    with graph.compile(machine) as program:
        program.replay()
        program.verify()
    blend(x)
    assert found == [(None, None)] * len(found)
    assert len(found) > 3


# tokens


def test_a_container_without_arrays_is_a_token(machine):
    for token in ([], {}, [1, "a"], {"a": 1}, State(1), (), [[], {}]):
        if token == ():
            continue  # there is one empty tuple
        with ost.capture() as graph:
            use(token)
            use(token)
            use(type(token)(1) if isinstance(token, State) else type(token)(token))
        assert edges(graph) == [(0, 1)]
        for got in received(token, machine):
            assert got is token


def test_token_makes_anything_a_token(machine):
    values = np.ones(2)
    for thing in (Series(values), 7, "text", None, values, [values], np.ma.masked_array([1])):
        with ost.capture() as graph:
            use(ost.token(thing))
            use(ost.token(thing))
            use(np.zeros(1))
        assert edges(graph) == [(0, 1)]
        for got in received(ost.token(thing), machine):
            assert got is thing
        with graph.compile(machine) as program:
            program.verify()
            program.replay()


def test_a_token_in_a_container(machine):
    series, a = Series(np.ones(2)), np.zeros(2)
    with ost.capture() as graph:
        use({"a": a, "s": ost.token(series)})
        use(ost.token(series))
        use([a])
    assert edges(graph) == [(0, 1), (0, 2)]
    for got in received([ost.token(series), a], machine):
        assert got[0] is series


def test_objects_beside_arrays_pass_unchanged_and_are_tokens(machine):
    shared, a, b = [], np.zeros(2), np.ones(2)

    @ost.task
    def note(x: ost.ReadWrite):
        x["found"].append(float(x["u"][0]))

    with ost.capture() as graph:
        note({"u": a, "found": shared, "n": 3})
        note({"u": b, "found": shared, "n": 3})
    assert edges(graph) == [(0, 1)]
    with graph.compile(machine) as program:
        program.replay(2)
    assert shared == [0, 1, 0, 1]


def test_values_beside_arrays_order_nothing():
    class Color(enum.Enum):
        RED = 1

    beside = (1, 2.0, "x", None, Color.RED, np.float32(1), int, len, np.dtype("f4"), slice(3))
    with ost.capture() as graph:
        use([np.zeros(1), *beside])
        use([np.zeros(1), *beside])
    assert edges(graph) == []


def test_a_token_that_holds_arrays_later_is_refused():
    out = []
    with ost.capture() as graph:
        use(out)
        out.append(np.zeros(1))
        with pytest.raises(ost.GraphError, match=r"recorded as a token, and holds arrays now.*ost\.token"):
            use(out)
        with pytest.raises(ost.GraphError, match=r"at \[1\], is a list that was recorded as a token"):
            use([np.zeros(1), out])
        use(ost.token(out))
    assert edges(graph) == [(0, 1)]


def test_results_that_go_to_a_list(machine):
    @ost.task
    def collect(x: ost.Read, out: ost.ReadWrite):
        out.append(x.copy())

    x, out = np.zeros(1), []
    with ost.capture() as graph:
        collect(x, out)
        add(x, 1.0)
    with graph.compile(machine) as program:
        program.replay(3)
    assert np.concatenate(out).tolist() == [0, 1, 2]
    collect(x, out)  # also where it holds arrays by now
    assert len(out) == 4


# plain parameters


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2),
        np.array(0.5),
        [np.zeros(2)],
        {"a": {"b": (np.zeros(2),)}},
        State(np.zeros(2)),
        {ost.ring(np.zeros(1))[0]},
        ost.ring(np.zeros(1)),
        [ost.ring(np.zeros(1))[0]],
        {"v": np.zeros(1)}.values(),
        collections.deque([np.zeros(1)]),
        memoryview(bytearray(3)),
        ost.token(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plain_parameter_takes_no_array(value):
    with ost.capture() as graph:
        with pytest.raises(TypeError, match=r"parameter 'options' of plain\(\).*declare the parameter ost\.Read"):
            plain(np.zeros(1), value)
        with pytest.raises(TypeError, match=r"declare the parameter"):
            graph.task(print, np.zeros(1), value, access=(ost.Read, None))
        use(np.zeros(1))
    assert len(graph) == 1


def test_a_plain_parameter_takes_everything_else(machine):
    thing = types.SimpleNamespace(x=1)
    loop = [1]
    loop.append(loop)
    for value in ([1, "a"], {"a": [1]}, State(1), {1, 2}, thing, loop):
        with ost.capture() as graph:
            op = plain(np.zeros(1), value)
        assert op.body.args[1] is value
    graph.compile(machine).close()


def test_a_parameter_in_a_plain_container_is_refused():
    with ost.capture() as graph:
        with pytest.raises(TypeError, match=r"holds <Param 'p'"):
            plain(np.zeros(1), [ost.param("p", 1)])
        use(np.zeros(1))
    assert len(graph) == 1


# what cannot be


def test_a_container_that_contains_itself():
    a = np.zeros(1)
    loop = [a]
    loop.append({"again": loop})
    state = State(a)
    state.v = (state,)
    with ost.capture() as graph:
        with pytest.raises(ValueError, match=r"at \[1\]\['again'\], is a container that contains itself"):
            use(loop)
        with pytest.raises(ValueError, match="contains itself"):
            use(state)
        use(a)
    assert len(graph) == 1
    with pytest.raises(ValueError, match="contains itself"):
        total(loop, np.zeros(1))


def test_deep_containers(machine):
    a = np.ones(1)
    value = a
    for _ in range(60):
        value = [{"x": value}]
    for got in received(value, machine):
        while not isinstance(got, np.ndarray):
            got = got[0]["x"]
        assert got[0] == 1
    for _ in range(5000):
        value = [value]
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        use(value)


def test_containers_that_cannot_be_made_again():
    class Slotted(list):
        __slots__ = ("more",)

    @dataclass
    class Made(Exception):
        x: Any

    a = np.zeros(1)
    with ost.capture() as graph:
        for value in (Slotted([a]), Made(a)):
            with pytest.raises(TypeError, match=rf"is a {type(value).__name__}, of which .*ost\.token"):
                use(value)
        for value in ({"a": a}.values(), {"a": a}.items(), collections.deque([[a]]), types.SimpleNamespace(x=a)):
            with pytest.raises(TypeError, match=r"of arrays: pass a list, tuple or dict of them, or ost\.token"):
                use(value)
        use(a)
    assert len(graph) == 1


def test_a_ring_in_a_container_is_refused():
    with ost.capture() as graph:
        with pytest.raises(ost.GraphError, match=r"at \['u'\], must be an array, .* pass an element of it"):
            use({"u": ost.ring(np.zeros(1))})
        with pytest.raises(TypeError, match="has no value"):
            use([np.zeros(1), use(np.zeros(1))])
    assert len(graph) == 1
    with pytest.raises(TypeError, match="has no value"):
        use([ost.ring(np.zeros(1))[0]])


def test_native_tasks_and_kernels_take_no_containers():
    pytest.importorskip("numba")

    @ost.kernel
    def double(x: ost.ReadWrite):
        x[0] *= 2

    a = np.zeros(1)
    for wrong in ([a], ost.token(a)):
        with pytest.raises(TypeError):
            double(wrong)
        with ost.capture() as graph:
            with pytest.raises(TypeError):
                double(wrong)
            use(a)
        assert len(graph) == 1


def test_a_read_only_array_in_a_container_is_not_written():
    a = np.zeros(2)
    a.flags.writeable = False
    with ost.capture() as graph:
        with pytest.raises(ost.GraphError, match=r"at \[0\], is written, but the array passed is read-only"):
            add([a], 1.0)
        total([a], np.zeros(1))
    assert len(graph) == 1


# the structure is that of the recording


def test_the_structure_is_fixed_when_recorded(machine):
    a, b, y = np.ones(2), np.ones(2), np.zeros(1)
    xs = [a, b]
    with ost.capture() as graph:
        total(xs, y)
    xs.clear()
    xs.append(np.full(2, 100.0))
    with graph.compile(machine) as program:
        program.replay()
    assert y == [4]


def test_every_call_gets_a_new_container(machine):
    @ost.task
    def grow(xs: ost.ReadWrite):
        xs.append(xs[0])

    a = np.zeros(1)
    with ost.capture() as graph:
        grow([a])
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError, match=r"grow\(\) changed a list that holds arrays.*would be lost") as caught:
            program.replay()
        assert isinstance(caught.value.__cause__, ost.ContractError)
        with pytest.raises(ost.TaskError, match="would be lost"):
            program.verify()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(v=d["u"]),
        lambda d: d.update(u=d["u"].copy()),
        lambda d: d.update(w=d.pop("u")),
        lambda d: d["inner"].append(1),
        lambda d: setattr(d["state"], "u", 3),
    ],
)
def test_a_change_to_a_container_is_found(change, machine):
    @ost.task
    def wrong(d: ost.ReadWrite):
        change(d)

    a = np.zeros(1)
    with ost.capture() as graph:
        wrong({"u": a, "inner": [a], "state": State(a)})
    with graph.compile(machine) as program, pytest.raises(ost.TaskError, match="would be lost"):
        program.replay()


# everywhere


def test_ring_elements_take_turns_in_containers(machine):
    u = ost.ring(np.zeros(2), np.zeros(2), np.zeros(2))

    @ost.task
    def step(d: ost.Read, out: ost.Write):
        out["next"][...] = d["now"] + d["more"][0] + 1

    more = np.ones(2)
    with ost.capture() as graph:
        step({"now": u[0], "more": (more,)}, {"next": u[1][:]})
    with graph.compile(machine) as program:
        program.replay(5)
        assert [array.tolist() for array in u.arrays] == [[6, 6], [8, 8], [10, 10]]
        program.verify(4)


def test_steps_and_parameters_in_containers(machine):
    found = []

    @ost.task
    def note(d: ost.ReadWrite):
        d["x"] += d["by"]
        found.append((d["step"], d["by"]))

    x = np.zeros(1)
    with ost.capture() as graph:
        note({"x": x, "step": ost.step, "by": ost.param("by", 1)})
    with graph.compile(machine) as program:
        program.replay(2)
        program.replay(1, by=5)
        assert x == [7]
        assert found == [(0, 1), (1, 1), (2, 5)]
        program.verify(2, by=3)
    outer = ost.Graph()
    outer.subgraph(graph, params={"by": 10})
    with outer.compile(machine) as program:
        program.replay()
    assert x == [17]


def test_a_container_of_parameters_only_is_refused():
    with ost.capture() as graph:
        with pytest.raises(TypeError, match="must hold an array, got a list of parameters only"):
            use([ost.param("p", 1), ost.step])
        use(np.zeros(1))
    assert len(graph) == 1


def test_rebind(machine):
    base, y = np.ones(4), np.zeros(1)
    with ost.capture() as graph:
        add({"all": [base[:2], base[2:]]}, 1.0)
        total((base,), y)
    with graph.compile(machine) as program:
        program.replay()
        assert (y == [8]).all()
        new = np.full(4, 10.0)
        program.rebind([(base, new)])
        program.replay()
        assert y == [44]
        assert new.tolist() == [11.0] * 4
        program.verify(2)


def test_keywords_defaults_and_star_args(machine):
    @ost.task
    def gather(*xs: ost.Read, out: ost.Write, scale=2.0, **more: ost.Read):
        out["y"][...] = scale * (total_of(xs) + total_of(more))

    def total_of(xs):
        return sum(each.sum() for each in _arrays(xs))

    a, b, y = np.ones(2), np.full(2, 3.0), np.zeros(1)
    gather([a], b, out={"y": y}, extra={"b": b})
    assert y == [2 * 14]
    y[...] = 0
    with ost.capture() as graph:
        add([b], 0.0)
        op = gather([a], b, out={"y": y}, extra={"b": b})
        add([y], 0.0)
    assert edges(graph) == [(0, 1), (1, 2)]
    assert len(op.operands) == 4
    with graph.compile(machine) as program:
        program.replay(2)
        assert y == [28]
        program.verify()


def test_spawn(machine):
    a, b, y = np.ones(2), np.ones(2), np.zeros(1)
    machine.spawn(total, [a, {"b": b}], y).result(60)
    assert y == [4]
    with pytest.raises(TypeError, match="must be an array"):
        machine.spawn(total, 3, y)
    with pytest.raises(TypeError, match="has no value"):
        machine.spawn(total, [ost.ring(a)[0]], y)


@pytest.mark.parametrize("options", [{"releases_gil": True}, {"blocking": True}], ids=str)
def test_tasks_of_other_kinds(options, machine):
    @ost.task(**options)
    def double(xs: ost.ReadWrite):
        for each in xs:
            each *= 2

    a, b = np.ones(2), np.ones(2)
    with ost.capture() as graph:
        double([a, b])
        double((b,))
    assert edges(graph) == [(0, 1)]
    with graph.compile(machine) as program:
        program.replay(3)
        assert (a[0], b[0]) == (8, 64)
        program.verify()


def test_graph_task_with_access(machine):
    a, y = np.ones(2), np.zeros(1)
    graph = ost.Graph()
    graph.task(lambda xs, y, k: y.fill(k * xs["a"][0].sum()), {"a": [a]}, y, 3.0, access=(ost.Read, ost.Write, None))
    graph.task(lambda y: np.negative(y[0], out=y[0]), [y], access=(ost.ReadWrite,))
    assert edges(graph) == [(0, 1)]
    with graph.compile(machine) as program:
        program.replay()
        assert y == [-6]
        program.verify()


def test_a_write_beyond_the_declared_is_found_in_containers(machine):
    @ost.task
    def leave(xs: ost.Write):
        xs["a"][0] = 1

    with ost.capture() as graph:
        leave({"a": np.zeros(3)})
    with graph.compile(machine) as program, pytest.raises(ost.ContractError, match=r"argument 1 'xs', at \['a'\],"):
        program.verify()


def test_a_variant_takes_containers(machine, tmp_path):
    @ost.task
    def slow(xs: ost.Read, y: ost.Write):
        y[...] = 0
        for x in xs["list"]:
            for i in range(len(x)):
                y += x[i] * xs["scale"]

    @slow.variant
    def fast(xs: ost.Read, y: ost.Write):
        y[...] = sum(x.sum() for x in xs["list"]) * xs["scale"]

    @slow.variant
    def wrong(xs: ost.Read, y: ost.Write):
        y[...] = 17

    a, b, y = np.ones(2000), np.ones(2000), np.zeros(1)
    with ost.capture() as graph:
        slow({"list": [a, b], "scale": 2.0}, y)
        slow({"list": [a], "scale": 2.0}, y)
        slow({"list": (a,), "scale": 2.0}, y)
    store = tmp_path / "tune.db"
    reports = graph.tune(machine, store=store, progress=False)
    assert len(reports) == 3  # a list is not a tuple
    for report in reports.values():
        status = {result.candidate.config["variant"]: result.status for result in report.results}
        assert status["wrong"] == "wrong_result"
        assert status["slow"] in ("ok", "raced", "contended")  # contended on a loaded machine
    with graph.compile(machine, costs=store) as program:
        program.replay(2)
        assert y == [4000]
        program.verify()


def test_tracers_in_containers(machine):
    def step(u, state, r):
        add({"now": u[0], "state": state.u}, 1.0)
        total([u[0], (state.u, r[0][1:])], state.v)
        add((r[1],), 2.0)

    def wrong(u):
        plain(u[0], {"later": [u[1]]})

    u, state = np.zeros((2, 3)), State(np.zeros(3), np.zeros(1))
    r = ost.ring(np.zeros(3), np.zeros(3))
    with ost.compile(step, u, state, r, machine=machine) as program:
        program.replay(4)
        assert state.v == [4 * 3 + 4 * 3 + 2 * 2 * 2]  # in step 3, r[0] is the array that steps 0 and 2 added to
        program.verify(3)
    with pytest.raises(TypeError, match=r"parameter 'options' of plain\(\).*declare the parameter"):
        ost.compile(wrong, u, machine=machine)


def test_explain_and_repr_know_containers(machine):
    with ost.capture() as graph:
        op = total([np.zeros(2)], np.zeros(1))
    assert op.name in repr(op)
    with graph.compile(machine) as program:
        assert "1 op 'total'" in program.explain()
