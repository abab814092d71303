"""The contract on data: where arrays live, who sees what when, copies and fills between memories, rebind and verify."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import ostinato as ost
from beds import host_add, host_put, host_scale, host_shift, ints, made, ones, zeros
from support.interpreter import collect

PATIENCE = 60


@pytest.fixture(params=["fake", "opencl"])
def bed(request):
    with made(request.param) as bed:
        yield bed


def contents(array):
    return array if isinstance(array, np.ndarray) else array.get()


def there(bed, values):
    """An array of any dtype and shape on the device."""
    values = np.asarray(values)
    array = bed.memory.empty(values.shape, values.dtype)
    array.set(values)
    return array


# Memories


@pytest.mark.parametrize("shape", [0, 3, (2, 3), (4, 0), ()])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, complex, "M8[s]", [("a", "i2"), ("b", "f8")], ">i4"])
def test_empty_arrays(shape, dtype, bed):
    array = bed.memory.empty(shape, dtype)
    like = np.zeros(shape, dtype)
    assert (array.shape, array.dtype) == (like.shape, like.dtype)
    if like.size:
        assert array.strides == like.strides
    assert (array.ndim, array.size, array.nbytes) == (like.ndim, like.size, like.nbytes)
    array.set(like)
    assert array.get().tobytes() == like.tobytes()
    on_host = bed.machine.memories[0].empty(shape, dtype)
    assert isinstance(on_host, np.ndarray)
    assert (on_host.shape, on_host.dtype) == (like.shape, like.dtype)


def test_empty_arrays_that_cannot_be(bed):
    for arguments in [(-1,), ((2, -3),)]:
        with pytest.raises(ValueError, match="negative"):
            bed.memory.empty(*arguments)
    for arguments in [("x",), (2.5,), (3, object), (3, "no such type"), (None,)]:
        with pytest.raises(TypeError):
            bed.memory.empty(*arguments)
    with pytest.raises(ost.DeviceError, match=bed.name):
        bed.memory.empty(1 << 50, np.uint8)
    assert bed.memory.empty(3).dtype == np.float64  # and it goes on


def test_processors_and_memories(bed):
    machine = bed.machine
    cpu, device = machine.processors
    assert (cpu.name, cpu.kind, cpu.memory.name) == ("cpu:0", "cpu", "host")
    assert device.name == f"{bed.kind}:0"
    assert device.kind == bed.kind
    assert device.memory.name == device.name
    assert [each.name for each in machine.memories] == ["host", device.name]
    assert machine.processor(device.name) == device
    with pytest.raises((ValueError, KeyError)):
        machine.processor(f"{bed.kind}:7")


def test_how_many_devices_machines_have(bed):
    with ost.Machine(cpus=1, gpus=0) as machine:
        assert [each.kind for each in machine.processors] == ["cpu"]
        with ost.capture() as g:
            bed.shift(zeros(), 1)
        with pytest.raises(ost.GraphError, match="cpu:0"):
            g.compile(machine)
    with ost.Machine(cpus=1, gpus=1) as machine:
        assert [each.kind for each in machine.processors] == ["cpu", bed.kind]
    with pytest.raises(ost.DeviceError, match=bed.name):
        ost.Machine(cpus=1, gpus=100)
    with pytest.raises(ValueError, match="-1"):
        ost.Machine(cpus=1, gpus=-1)
    for wrong in ("all", 1.5, [0]):
        with pytest.raises(TypeError):
            ost.Machine(cpus=1, gpus=wrong)


@pytest.mark.parametrize("by", ["name", "kind", "processor"])
def test_where_operations_run(by, bed):
    on = {"name": bed.name, "kind": bed.kind, "processor": bed.processor}[by]
    x, g = zeros(), ost.Graph()
    g.task(bed.shift, x, 2, on=on)
    g.task(host_shift, x, 1, on="cpu:0")
    g.task(host_shift, x, 1, on="cpu")
    with g.compile(bed.machine) as program:
        run = program.submit(2, profile=True)
        run.result(PATIENCE)
        where = {record.op.name: record.processor.name for record in run.profile if record.op in g.ops}
    assert where["shift"] == bed.name
    assert where["host_shift"] == "cpu:0"
    assert x.tolist() == [8] * 4


@pytest.mark.parametrize("on", ["opencl:9", "cuda:0", "abacus", "cpu:0", "cpu"])
def test_where_they_cannot_run(on, bed):
    g = ost.Graph()
    with pytest.raises((ost.GraphError, ValueError)):  # noqa: PT012
        g.task(bed.shift, zeros(), 2, on=on)
        g.compile(bed.machine)


# The home of data


def test_changes_between_runs_are_seen_and_what_was_written_is_home(bed):
    x, y, z = zeros(), zeros(), zeros()
    with ost.capture() as g:
        bed.scale(x, y, 3)
        bed.add(z, y, 1)
    with g.compile(bed.machine) as program:
        total = 0
        for k in range(6):
            x[:] = k
            steps = program.replay(1 + k % 3)
            assert y.tolist() == [3 * k] * 4
            total += 3 * k * steps
            assert z.tolist() == [total] * 4
            z[:] += 1
            total += 1


def test_data_is_home_when_anything_says_done(bed):
    x = zeros()
    with ost.capture() as g:
        bed.shift(x, 1)
    with g.compile(bed.machine) as program:
        seen, called = [], threading.Event()
        run = program.submit(3)
        run.add_done_callback(lambda _: (seen.append(x.tolist()), called.set()))
        run.event.wait(PATIENCE)
        assert x.tolist() == [3] * 4
        run.result()
        assert called.wait(PATIENCE)
    assert seen == [[3] * 4]


def test_parts_that_only_the_host_writes_stay(bed):
    """The device writes half of an array, the host the other, in the same step and between runs."""
    x = zeros(8)
    with ost.capture() as g:
        bed.shift(x[::2], 1)
        host_shift(x[1::2], 10)
        bed.shift(x[:4], 100)
    with g.compile(bed.machine) as program:
        program.replay(2)
        assert x.tolist() == [202, 220, 202, 220, 2, 20, 2, 20]
        x[:] = 0
        program.replay(1)
        assert x.tolist() == [101, 110, 101, 110, 1, 10, 1, 10]


def test_write_overwrites_and_needs_nothing_from_home(bed):
    x = ints(9, 9, 9, 9)
    with ost.capture() as g:
        bed.put(x[1:3], 5)
    with g.compile(bed.machine) as program:
        program.replay(2)
        assert x.tolist() == [9, 5, 5, 9]
        x[:] = 1
        program.replay()
        assert x.tolist() == [1, 5, 5, 1]


def test_no_copy_is_made_twice(bed):
    x, y, z = ones(), zeros(), zeros()
    with ost.capture() as g:
        bed.scale(x, y, 2)
        bed.scale(x, z, 3)  # x is there
        bed.add(y, z, 1)  # y, z are there
    with g.compile(bed.machine) as program:
        program.replay(50)
        assert y.tolist() == [5] * 4
        text = program.explain()
    assert text.count(f"copy to {bed.name}") <= 1 or "x" in text
    assert "bytes" in text


def test_device_arrays_are_read_by_cpus(bed):
    x, y = bed.array([1, 2, 3]), zeros(3)
    with ost.capture() as g:
        host_scale(x, y, 2)
        host_shift(x, 5)
        host_put(x[:1], 0)
    with g.compile(bed.machine) as program:
        program.replay(2)
    assert x.get().tolist() == [0, 12, 13]
    assert y.tolist() == [0, 14, 16]


def test_rings_turn_in_both_memories(bed):
    host = [ints(k, k) for k in range(4)]
    device = [bed.array([k, k]) for k in range(3)]
    a, b = ost.ring(*host), ost.ring(*device)
    with ost.capture() as g:
        bed.add(b[0], a[0], 1)
        host_shift(a[1], 1)
        bed.add(a[-1], b[1], 1)
        host_add(a[2][:1], b[-1][:1])
    wanted_a, wanted_b = [ints(k, k) for k in range(4)], [ints(k, k) for k in range(3)]
    with g.compile(bed.machine) as program:
        step = 0
        for steps in (1, 5, 3, 8):
            program.replay(steps)
            for _ in range(steps):
                ra, rb = (lambda k, s=step: wanted_a[(s + k) % 4]), (lambda k, s=step: wanted_b[(s + k) % 3])
                rb(0)[:] += ra(0)
                ra(1)[:] += 1
                ra(-1)[:] += rb(1)
                ra(2)[:1] += rb(-1)[:1]
                step += 1
            assert [each.tolist() for each in host] == [each.tolist() for each in wanted_a]
            assert [each.get().tolist() for each in device] == [each.tolist() for each in wanted_b]


def test_rings_of_mixed_memories_are_refused_or_right(bed):
    x, y = ints(0), bed.array([0])
    try:
        ring = ost.ring(x, y)
    except (TypeError, ValueError, ost.GraphError):
        return
    with ost.capture() as g:
        bed.shift(ring[0], 1)
    with g.compile(bed.machine) as program:
        program.replay(5)
    assert (x[0], y.get()[0]) == (3, 2)


# Copies and fills


def test_copies_from_transposed_arrays_of_the_host(bed):
    x, y = np.arange(12).reshape(3, 4), there(bed, np.zeros((4, 3), int))
    back, g = np.zeros((3, 4), int), ost.Graph()
    g.copy(x.T, y)
    g.copy(y, back.T)
    with g.compile(bed.machine) as program:
        program.replay(2)
    assert y.get().tolist() == x.T.tolist()
    assert back.tolist() == x.tolist()


LAYOUTS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, ::2],
    "backwards": lambda a: a[::-1],
    "nothing": lambda a: a[2:2],
    "one": lambda a: a[1, 2:3],
}
DTYPES = ["i4", "f8", "f2", "?", "c16", "i1", ">f4", "M8[ms]", "S5", np.dtype([("a", "i1"), ("b", "f8")])]


def some(dtype, shape=(4, 6)):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(3).integers(0, 2, (*shape, dtype.itemsize), np.uint8)
    return raw.view(dtype)[..., 0].copy()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_between_all_memories(layout, dtype, bed):
    view, values = LAYOUTS[layout], some(dtype)
    g, arrays, wanted = ost.Graph(), [], []
    for source, target in ["hd", "dh", "dd"]:
        a = values.copy() if source == "h" else there(bed, values)
        b = np.zeros_like(values) if target == "h" else there(bed, np.zeros_like(values))
        x, y = view(a), view(b)
        expected = np.zeros_like(values)
        view(expected)[...] = view(values)
        g.copy(x, y)
        arrays.append(b)
        wanted.append(expected)
    with g.compile(bed.machine) as program:
        program.replay(2)
    for got, want in zip(arrays, wanted, strict=True):
        assert contents(got).tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fills(dtype, bed):
    values, g = some(dtype), ost.Graph()
    value = values[0, 0]
    x, y = there(bed, np.zeros_like(values)), np.zeros_like(values)
    g.fill(x, value)
    g.fill(x[1:3, ::2], np.zeros((), values.dtype)[()])
    g.fill(y, value)
    with g.compile(bed.machine) as program:
        program.replay(2)
    wanted = np.zeros_like(values)
    wanted[...] = value
    assert y.tobytes() == wanted.tobytes()
    wanted[1:3, ::2] = np.zeros((), values.dtype)
    assert x.get().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tasks_get_arrays_as_they_are(layout, dtype):
    """Shape, dtype and strides; the values, and what the task makes of them."""
    with made("fake") as bed:
        values, view = some(dtype), LAYOUTS[layout]
        x, seen = values.copy(), []

        @ost.task
        def turn(a: ost.ReadWrite, stream: ost.Stream):
            seen.append((a.shape, a.dtype, a.strides))
            bed.launch(stream, lambda m: np.copyto(m, m[::-1].copy()), a)

        with ost.capture() as g:
            turn(view(x))
        with g.compile(bed.machine) as program:
            program.replay(3)
            program.verify()
        like = view(values)
        if like.size:
            assert seen[0] == (like.shape, like.dtype, like.strides)
        assert seen[0][:2] == (like.shape, like.dtype)
        like[...] = like[::-1].copy()
        assert x.tobytes() == values.tobytes()


def test_fills_take_what_assignment_takes(bed):
    x, g = there(bed, np.zeros((2, 3))), ost.Graph()
    g.fill(x, [1, 2, 3])
    g.fill(x[0], g.param("value", 7))
    with g.compile(bed.machine) as program:
        program.replay()
        assert x.get().tolist() == [[7, 7, 7], [1, 2, 3]]
        program.replay(2, value=-1.5)
        assert x.get().tolist() == [[-1.5] * 3, [1, 2, 3]]


@pytest.mark.parametrize("shift", [1, 2, -1])
def test_copies_that_overlap(shift, bed):
    """As if the source had been copied first."""
    values, g = np.arange(10, dtype=np.int32), ost.Graph()
    x, y = bed.array(values), values.copy()
    for array in (x, y):
        a, b = (array[:-shift], array[shift:]) if shift > 0 else (array[-shift:], array[:shift])
        g.copy(a, b)
    g.copy(x[::-1], x)
    with g.compile(bed.machine) as program:
        program.replay(3)
    for _ in range(3):
        a, b = (values[:-shift], values[shift:]) if shift > 0 else (values[-shift:], values[:shift])
        b[...] = a.copy()
        values[...] = values[::-1].copy()
    plain = np.arange(10, dtype=np.int32)
    for _ in range(3):
        a, b = (plain[:-shift], plain[shift:]) if shift > 0 else (plain[-shift:], plain[:shift])
        b[...] = a.copy()
    assert x.get().tolist() == values.tolist()
    assert y.tolist() == plain.tolist()


def test_casts_reductions_gathers_and_scatters(bed):
    x, g = bed.array([3, 1, 2]), ost.Graph()
    doubles, total = there(bed, np.zeros(3)), np.zeros(3)
    picked, put = bed.array([0, 0]), bed.array([0, 0, 0, 0])
    index = np.array([2, 0])
    g.copy(x, doubles)  # a cast
    g.copy(doubles, total, reduce="+")
    g.copy(total, doubles, reduce="max")
    g.copy(x, picked, indices=index)
    g.copy(picked, put, scatter=there(bed, np.array([3, 1])))
    with g.compile(bed.machine) as program:
        program.replay(3)
        assert total.tolist() == [9, 3, 6]
        assert doubles.get().tolist() == [9, 3, 6]
        assert picked.get().tolist() == [2, 3]
        assert put.get().tolist() == [0, 3, 0, 2]
        index[:] = 1
        program.replay()
        assert picked.get().tolist() == [1, 1]
        index[0] = 7
        with pytest.raises(ost.TaskError):
            program.replay()


def test_copies_that_cannot_be(bed):
    x, g = there(bed, np.zeros((2, 3))), ost.Graph()
    for source, target in [(x, np.zeros((3, 2))), (np.zeros(4), x), (there(bed, np.zeros((2, 3), complex)), x)]:
        with pytest.raises((ost.GraphError, TypeError, ValueError)):
            g.copy(source, target)
    with pytest.raises((ost.GraphError, TypeError, ValueError)):
        g.fill(x, "text")
    with pytest.raises((ost.GraphError, TypeError, ValueError)):
        g.fill(x, [1, 2])
    assert len(g) == 0


def test_many_copies_in_flight(bed):
    hosts, g = [np.full(1000, k, np.int32) for k in range(8)], ost.Graph()
    arrays, back = [bed.array(np.zeros(1000)) for _ in hosts], [np.zeros(1000, np.int32) for _ in hosts]
    for host, array, out in zip(hosts, arrays, back, strict=True):
        g.copy(host, array)
        g.task(bed.shift, array, 1)
        g.copy(array, out)
        g.task(host_shift, host, 1)
    with g.compile(bed.machine) as program:
        program.replay(20)
    for k, out in enumerate(back):
        assert out.tolist() == [k + 20] * 1000


# until, params, steps, nested graphs, spawn, calls


@pytest.mark.parametrize("home", ["host", "device"])
@pytest.mark.parametrize("every", [1, 3])
def test_until_on_data_of_the_device(home, every, bed):
    x = bed.array([0])
    flag = zeros(1) if home == "host" else bed.array([0])
    with ost.capture() as g:
        bed.shift(x, 1)
        bed.divides(x, flag, 4)
        ost.until(flag, every=every)
        bed.shift(x, 0)
    steps, count = [], 0
    with g.compile(bed.machine) as program:
        for _ in range(3):
            steps.append(program.replay(100))
            count += steps[-1]
            assert x.get()[0] == count
        assert program.submit(2).result(PATIENCE) in (1, 2)
    assert steps[0] == (4 if every == 1 else 12 if every == 3 else 0) or steps[0] % 4 == 0


def test_params_and_steps(bed):
    x, y = zeros(1), bed.array([0])
    g = ost.Graph()
    g.task(bed.put, x, ost.step)
    g.task(bed.shift, y, g.param("by", 2, combine=lambda default, given: default * given))
    with g.compile(bed.machine) as program:
        program.replay(3)
        assert (x[0], y.get()[0]) == (2, 6)
        program.replay(2, by=5)
        assert (x[0], y.get()[0]) == (4, 26)
        program.replay(1, params={"by": 0})
        assert (x[0], y.get()[0]) == (5, 26)
        with pytest.raises((TypeError, ValueError)):
            program.replay(1, other=3)


@pytest.mark.parametrize("values", [np.zeros(2), np.zeros(1, "i4, i4")[0]], ids=["array", "element with fields"])
@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_parameters_changed_in_place_are_seen_by_what_was_captured(kind, values):
    with made(kind, launch_only=True) as bed:

        @ost.task(launch_only=True)
        def put(x: ost.Write, values, stream: ost.Stream):
            bed.enqueue("put", stream, (x,), int(values[0]))

        x = zeros()
        g = ost.Graph()
        g.task(put, x, g.param("values", values))
        with g.compile(bed.machine) as program:
            for value in range(5):
                values[0] = value
                program.replay(3, **({"values": values} if value % 2 else {}))
                assert (x == value).all()


def test_nested_graphs(bed):
    x, y = zeros(2), bed.array([0, 0])
    inner = ost.Graph()
    ready = inner.precondition("ready")
    first = inner.task(bed.shift, y, inner.param("by"), after=ready)
    inner.postcondition("done", after=first)
    inner.task(host_add, x, y)
    outer = ost.Graph()
    before = outer.task(host_shift, x, 100)
    a = outer.subgraph(inner, params={"by": 1}, preconditions={"ready": before})
    outer.subgraph(inner, params={"by": outer.param("late", 2)}, preconditions={"ready": a.posts["done"]})
    with outer.compile(bed.machine) as program:
        program.replay()
        assert y.get().tolist() == [3, 3]
        assert x.tolist() == [104, 104]
        program.replay(late=10)
        assert y.get().tolist() == [14, 14]
        assert x.tolist() == [104 + 100 + 4 + 14] * 2


def test_spawn_and_calls(bed):
    x, y = ints(1, 2), bed.array([0, 0])
    assert bed.machine.spawn(bed.scale, x, y, 3).result(PATIENCE) is None
    assert y.get().tolist() == [3, 6]
    event = ost.UserEvent()
    run = bed.machine.spawn(bed.shift, y, 1, on=bed.kind, after=event, priority=3)
    assert not run.done()
    event.trigger()
    run.result(PATIENCE)
    assert y.get().tolist() == [4, 7]

    @ost.task
    def answers(x: ost.Read, stream: ost.Stream, by=1):
        return stream.handle, by

    handle, by = bed.machine.spawn(answers, y, 5).result(PATIENCE)
    assert isinstance(handle, int)
    assert by == 5
    if bed.kind == "fake":
        assert answers(y)[1] == 1
        bed.shift(x, 1)
        assert x.tolist() == [2, 3]


def test_calls_from_running_tasks(bed):
    x, y = bed.array([1]), zeros(1)

    @ost.task
    def outer(y: ost.ReadWrite):
        bed.shift(y, 2)
        y += 1

    with ost.capture() as g:
        bed.shift(x, 1)
        outer(y)
    with g.compile(bed.machine) as program:
        program.replay(3)
    assert (x.get()[0], y[0]) == (4, 9)


def test_stream_tasks_with_tokens_and_keywords(bed):
    x, log = bed.array([0]), []

    @ost.task
    def noted(stream: ost.Stream, x: ost.ReadWrite, log: ost.ReadWrite, *, by=1):
        bed.enqueue("shift", stream, (x,), by)
        log.append(by)

    @ost.task
    def read(log: ost.Read, out: ost.ReadWrite):
        out[0] = len(log)

    out = zeros(1)
    with ost.capture() as g:
        noted(x, log)
        noted(x=x, log=log, by=2)
        read(log, out)
    with g.compile(bed.machine) as program:
        program.replay(5)
    assert log == [1, 2] * 5
    assert out[0] == 10
    assert x.get()[0] == 15


def test_arrays_that_are_read_are_passed_read_only(bed):
    x, y, seen = bed.array([0]), zeros(1), []

    @ost.task
    def looks(a: ost.Read, b: ost.ReadWrite, stream: ost.Stream):
        for each in (a, b):
            seen.append(getattr(each, "proxy", each).flags.writeable)

    with ost.capture() as g:
        looks(x, y)
        looks(y, x)
    with g.compile(bed.machine) as program:
        program.replay()
    assert seen == [False, True] * 2


def test_the_same_array_twice(bed):
    x, y = zeros(2), bed.array([1, 1])
    with ost.capture() as g:
        bed.add(x, x, 1)
        bed.add(y, y, 1)
        bed.shift(x, 1)
    with g.compile(bed.machine) as program:
        program.replay(4)
    assert x.tolist() == [15, 15]
    assert y.get().tolist() == [16, 16]


# rebind, verify


def test_rebind(bed):
    a, b, c, d = ints(1, 2), bed.array([10, 20]), ints(5, 5), bed.array([0, 0])
    out = zeros(2)
    with ost.capture() as g:
        bed.add(b, a, 1)
        host_scale(b[::-1], out, 1)
    with g.compile(bed.machine) as program:
        program.replay()
        late = program.submit(3)
        program.rebind([(a, c), (b, d)])
        late.result(PATIENCE)
        assert b.get().tolist() == [14, 28]
        assert program.replay(2) == 2
        assert d.get().tolist() == [10, 10]
        assert out.tolist() == [10, 10]
        for wrong in [zeros(3), zeros(2).astype(float), zeros(4)[::2], bed.array([0, 0])]:
            with pytest.raises((ost.GraphError, TypeError)):
                program.rebind([(c, wrong)])
        with pytest.raises(ost.GraphError):
            program.rebind([(d, zeros(2))])
        program.replay()
        assert d.get().tolist() == [15, 15]


def test_what_is_rebound_is_released(bed):
    a, c = ints(1, 2), ints(5, 5)
    b = bed.array([0, 0])
    with ost.capture() as g:
        bed.add(b, a, 1)
    with g.compile(bed.machine) as program:
        program.replay()
        program.rebind([(a, c)])
        program.replay()
        del g
        a.resize(4, refcheck=False)  # nobody looks at it any more
        program.replay()
    assert b.get().tolist() == [11, 12]


def test_verify(bed):
    x, y, z = ints(1, 2, 3), bed.array([4, 5, 6]), zeros(3)
    with ost.capture() as g:
        bed.add(y, x, 2)
        bed.scale(y, z, 3)
        host_shift(x, 1)
    with g.compile(bed.machine) as program:
        program.verify(3)
        assert x.tolist() == [1, 2, 3]
        assert y.get().tolist() == [4, 5, 6]
        assert z.tolist() == [0] * 3
        program.replay()
        assert y.get().tolist() == [6, 9, 12]


def test_verify_after_a_rebind(bed):
    """Copies between memories may be of more than the views that operations use."""
    x, y, z = bed.array(range(7)), bed.array(range(7)), zeros(7)
    with ost.capture() as g:
        host_shift(x[::-1], 1)
        host_add(z[:5:3], y[1::3])
        host_shift(y[:1], 1)
        host_shift(y[::-1], 2)
    other = bed.array(range(7))
    g.copy(y[1::3], z[:5:3], scatter=np.arange(2))
    with g.compile(bed.machine) as program:
        program.rebind([(x, other)])
        program.verify(2)
        program.replay()
    assert other.get().tolist() == list(range(1, 8))
    assert y.get().tolist() == [3, *range(3, 9)]


@pytest.mark.parametrize("home", ["host", "device"])
@pytest.mark.parametrize("fault", ["writes what it reads", "leaves out what it writes", "differs"])
def test_verify_finds(home, fault, bed):
    x, y = ints(1, 2, 3), ints(4, 5, 6)
    if home == "device":
        x, y = bed.array(x), bed.array(y)
    calls = []

    @ost.task
    def wrong(x: ost.Read, y: ost.Write, stream: ost.Stream):
        calls.append(1)
        if fault == "writes what it reads":
            if bed.kind == "fake":
                x = bed.device.contents(x)
                x.flags.writeable = True
                from support import fake_device as fake

                fake.launch(stream, lambda: np.add(x, 1, out=x))
            else:
                bed.enqueue("shift", stream, (x,), 1)
            bed.enqueue("put", stream, (y,), 7)
        elif fault == "leaves out what it writes":
            bed.enqueue("put", stream, (y[:2],), 7)
        else:
            bed.enqueue("put", stream, (y,), len(calls))

    z = zeros(3) if home == "host" else bed.array(zeros(3))
    with ost.capture() as g:
        wrong(x, y)
        bed.add(z, x, 1)
    with g.compile(bed.machine) as program:
        with pytest.raises(ost.ContractError, match="wrong"):
            program.verify(2)
        assert contents(x).tolist() == [1, 2, 3]
        assert contents(y).tolist() == [4, 5, 6]


@pytest.mark.parametrize("home", ["host", "device"])
@pytest.mark.parametrize("where", ["in its body", "on the device"])
def test_verify_names_who_writes_an_array_itself_and_which(home, where, bed):
    x, other = ints(1, 2, 3), ints(4, 5, 6)
    if home == "device":
        other = bed.array(other)
    elif where == "on the device":
        return  # a kernel reaches no array of the host

    @ost.task
    def sneaks(x: ost.ReadWrite, stream: ost.Stream):
        bed.enqueue("shift", stream, (x,), 1)
        if where == "on the device":
            bed.enqueue("shift", stream, (other,), 1)
        elif home == "device":
            other.set(contents(other) + 1)
        else:
            other[:] += 1

    with ost.capture() as g:
        bed.shift(x, 1)
        sneaks(x)
        bed.shift(other, 1)
    says = r"'sneaks'.* wrote to .*argument 1 'x' .*of 'shift'.*array itself"
    with g.compile(bed.machine) as program, pytest.raises(ost.ContractError, match=says):
        program.verify()
    assert x.tolist() == [1, 2, 3]
    assert contents(other).tolist() == [4, 5, 6]


# Lifetimes


def test_arrays_and_their_users_are_freed(bed):
    x, y = bed.array([1]), zeros(1)
    with ost.capture() as g:
        bed.shift(x, 1)
        bed.shift(y, 1)
    program = g.compile(bed.machine)
    program.replay(2)
    program.close()
    gone = [weakref.ref(x.allocation), weakref.ref(program)]
    del x, g, program
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_arrays_that_nobody_else_holds_live_as_long_as_the_program(bed):
    out = zeros(1)
    with ost.capture() as g:
        x = bed.array([0])
        y = np.zeros(1, np.int32)
        bed.shift(x, 1)
        bed.shift(y, 2)
        bed.add(x, y, 1)
        host_scale(x, out, 1)
        del x, y
    program = g.compile(bed.machine)
    del g
    gc.collect()
    with program:
        program.replay(3)
    assert out[0] == 3 + 2 + 4 + 6


def test_device_memory_is_given_back():
    with made("fake") as bed:
        before = bed.device.core.allocated
        for _ in range(3):
            x, y = bed.array(np.zeros(100)), np.zeros(100, np.int32)
            with ost.capture() as g:
                bed.shift(x, 1)
                bed.add(y, x, 1)
            with g.compile(bed.machine, runs="concurrent") as program:
                program.replay()
            del x, g, program
            collect()
        assert bed.device.core.allocated == before
        assert bed.device.pinned == []
