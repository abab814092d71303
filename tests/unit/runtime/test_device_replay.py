"""Graphs with work on devices give what sequential Python gives; on the fake device."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import add, host_add, host_put, host_scale, put, scale
from support import fake_device as fake

DEADLINE = 60


@pytest.fixture
def device():
    with fake.install() as (device,):
        yield device


@pytest.fixture(params=[1, 2], ids=lambda cpus: f"{cpus}cpus")
def machine(request, device):
    with ost.Machine(cpus=request.param) as machine:
        yield machine


def on(device, values):
    array = empty(device, np.shape(values), np.asarray(values).dtype)
    array.set(values)
    return array


def test_a_chain_on_the_device(device, machine):
    a, b, c = on(device, np.arange(5.0)), on(device, np.zeros(5)), on(device, np.zeros(5))
    with ost.capture() as graph:
        scale(a, b, 2.0)
        add(c, b)
    with graph.compile(machine) as program:
        assert program.replay(10) == 10
        assert (c.get() == 20 * np.arange(5.0)).all()
        assert program.replay(1000) == 1000
        assert (c.get() == 2020 * np.arange(5.0)).all()


def test_host_arrays_get_their_copies(machine):
    a, b, c = np.arange(5.0), np.zeros(5), np.zeros(5)
    with ost.capture() as graph:
        scale(a, b, 3.0)
        host_add(c, b)
    with graph.compile(machine) as program:
        program.replay(4)
        assert (b == 3 * np.arange(5.0)).all()
        assert (c == 12 * np.arange(5.0)).all()


def test_changes_to_host_arrays_between_runs_are_seen(machine):
    a, b = np.arange(5.0), np.zeros(5)
    with ost.capture() as graph:
        scale(a, b, 2.0)
    with graph.compile(machine) as program:
        for start in range(5):
            a[:] = start
            program.replay(2)
            assert (b == 2.0 * start).all()
            b[:] = -1  # to be overwritten


def test_what_the_device_wrote_is_at_home_when_the_run_is_done(machine):
    x = np.zeros(5)
    with ost.capture() as graph:
        add(x, np.ones(5))
    with graph.compile(machine) as program:
        assert program.submit(7).result(DEADLINE) == 7
        assert (x == 7).all()
        x += 1
        program.replay(3)
        assert (x == 11).all()


def test_host_device_host_and_back(machine):
    x, y = np.zeros(5), np.zeros(5)
    with ost.capture() as graph:
        host_put(x, ost.step)
        scale(x, y, 2.0)
        host_add(x, y)
        add(y, x)
    with graph.compile(machine) as program:
        program.replay(9)
        assert (x == 8 * 3).all()
        assert (y == 8 * 5).all()


def test_rings_of_host_arrays(machine):
    ring = ost.ring(*(np.full(3, float(k)) for k in range(3)))
    sums = np.zeros(3)
    with ost.capture() as graph:
        scale(ring[0], ring[1], 2.0)
        host_add(sums, ring[1])
        host_put(ring[-1][:1], 1.0)
    expected = [array.copy() for array in ring.arrays]
    total = np.zeros(3)
    for step in range(11):
        expected[(step + 1) % 3][:] = expected[step % 3] * 2
        total += expected[(step + 1) % 3]
        expected[(step - 1) % 3][:1] = 1.0
    with graph.compile(machine) as program:
        for steps in (4, 1, 6):
            program.replay(steps)
    assert (sums == total).all()
    assert all((a == b).all() for a, b in zip(ring.arrays, expected, strict=True))


def test_rings_of_device_arrays(device, machine):
    ring = ost.ring(*(on(device, np.full(3, float(k))) for k in range(3)))
    total = on(device, np.zeros(3))
    with ost.capture() as graph:
        scale(ring[0], ring[1], 2.0)
        add(total, ring[1])
    with graph.compile(machine) as program:
        program.replay(2)
        program.replay(5)
    expected = [np.full(3, float(k)) for k in range(3)]
    wanted = np.zeros(3)
    for step in range(7):
        expected[(step + 1) % 3][:] = expected[step % 3] * 2
        wanted += expected[(step + 1) % 3]
    assert (total.get() == wanted).all()


def test_parameters_and_steps_reach_device_tasks(machine):
    x, y = np.zeros(3), np.zeros(3)
    with ost.capture() as graph:
        put(x, ost.step)
        put(y, ost.param("value", 5.0))
    with graph.compile(machine) as program:
        program.replay(3)
        assert (x == 2).all()
        assert (y == 5).all()
        program.replay(2, value=7.0)
        assert (x == 4).all()
        assert (y == 7).all()


def test_copies_and_fills_of_device_arrays(device, machine):
    host, there, other = np.zeros((4, 3)), on(device, np.zeros((4, 3))), on(device, np.zeros((4, 3)))
    graph = ost.Graph()
    graph.fill(there, 2.0)
    graph.copy(there[1:3], other[:2])
    graph.copy(there, host)
    graph.copy(host[:, ::2], other[:, ::2])
    with graph.compile(machine) as program:
        program.replay(3)
    wanted = np.zeros((4, 3))
    wanted[:2] = 2
    wanted[:, ::2] = 2
    assert (host == 2).all()
    assert (other.get() == wanted).all()


def test_casts_between_memories(device, machine):
    floats, ints = on(device, np.arange(4.0)), on(device, np.zeros(4, np.int64))
    graph = ost.Graph()
    graph.copy(floats, np.zeros(4, np.float32))
    target = np.zeros(4, np.complex128)
    graph.copy(ints, target)
    graph.copy(np.arange(4), ints)
    with graph.compile(machine) as program:
        program.replay(2)
    assert (ints.get() == np.arange(4)).all()
    assert (target == np.arange(4)).all()


def test_until_looks_at_a_flag_on_the_device(device, machine):
    count, flag = np.zeros(1), on(device, np.zeros(1))

    @ost.task
    def check(stream: ost.Stream, x: ost.Read, out: ost.Write):
        fake.launch(stream, lambda a, b: np.copyto(b, a >= 5), x, out)

    with ost.capture() as graph:
        add(count, np.ones(1))
        check(count, flag)
        ost.until(flag)
    with graph.compile(machine) as program:
        assert program.replay(100) == 5
        assert count[0] == 5
        assert program.replay(100) == 1


def test_plain_tasks_get_device_arrays_as_host_copies(device, machine):
    there = on(device, np.arange(4.0))
    out = np.zeros(4)
    with ost.capture() as graph:
        host_scale(there, out, 2.0)
        host_add(there, out)
    with graph.compile(machine) as program:
        program.replay(3)
    assert (there.get() == 27 * np.arange(4.0)).all()
    assert (out == 18 * np.arange(4.0)).all()


def test_a_task_without_a_stream_bound_to_a_device_is_done_when_the_device_is(device, machine):
    there, out = on(device, np.ones(4)), np.zeros(4)
    own = device.stream(device.core.open())

    @ost.task
    def elsewhere(x: ost.ReadWrite):
        fake.launch(own, lambda a: np.add(a, 1, out=a), x, delay=0.001)

    graph = ost.Graph()
    graph.task(elsewhere, there, on="fake:0")
    graph.task(host_scale, there, out, 1.0)
    with graph.compile(machine) as program:
        program.replay(5)
    assert (out == 6).all()


def test_what_a_task_without_a_stream_wrote_on_the_device_is_copied_home(device, machine):
    x = np.zeros(2)

    @ost.task
    def grow(x: ost.ReadWrite):
        device.contents(x)[...] += 1

    graph = ost.Graph()
    graph.task(grow, x, on="fake:0")
    with graph.compile(machine) as program:
        program.replay(3)
        assert x.tolist() == [3.0, 3.0]


def test_nested_graphs_run_on_devices(device, machine):
    x, y = np.ones(3), np.zeros(3)
    with ost.capture() as inner:
        add(x, x)
        host_add(y, x)
    outer = ost.Graph()
    outer.subgraph(inner)
    outer.subgraph(inner)
    with outer.compile(machine) as program:
        program.replay(2)
    assert (x == 16).all()
    assert (y == 2 + 4 + 8 + 16).all()


def test_without_inference_each_step_begins_when_the_one_before_has_ended(device, machine):
    x, y = on(device, np.ones(3)), np.zeros(3)
    graph = ost.Graph(infer=False)
    first = graph.task(add, x, x)
    second = graph.task(host_add, y, x, after=first)
    graph.task(add, x, x, after=second)
    with graph.compile(machine) as program:
        program.replay(3)
    assert (x.get() == 64).all()
    assert (y == 2 + 8 + 32).all()


def test_rebind_host_arrays(machine):
    a, b, c = np.ones(3), np.zeros(3), np.full(3, 5.0)
    with ost.capture() as graph:
        scale(a, b, 2.0)
    with graph.compile(machine) as program:
        program.replay()
        program.rebind([(a, c)])
        program.replay()
        assert (b == 10).all()
        other = np.zeros(3)
        program.rebind([(b, other)])
        program.replay()
        assert (other == 10).all()


def test_rebind_device_arrays(device, machine):
    a, b = on(device, np.ones(3)), on(device, np.zeros(3))
    other = on(device, np.full(3, 4.0))
    with ost.capture() as graph:
        add(b, a)
    with graph.compile(machine) as program:
        program.replay(2)
        program.rebind([(a, other)])
        program.replay(2)
        assert (b.get() == 10).all()
        with pytest.raises(ost.GraphError, match="memory of"):
            program.rebind([(b, np.zeros(3))])


def test_verify(device, machine):
    a, b, c = np.arange(4.0), on(device, np.zeros(4)), np.zeros(4)
    with ost.capture() as graph:
        scale(a, b, 2.0)
        host_add(c, b)
    with graph.compile(machine) as program:
        program.verify(3)
        assert (b.get() == 0).all()
        assert (c == 0).all()


def test_verify_finds_what_was_not_declared(device, machine):
    a, b = on(device, np.ones(4)), np.zeros(4)

    @ost.task
    def sneaky(stream: ost.Stream, x: ost.Read):
        fake.launch(stream, lambda: np.add(device.contents(a), 1, out=device.contents(a)))

    with ost.capture() as graph:
        sneaky(a)
        host_scale(a, b, 1.0)
    with graph.compile(machine) as program:
        with pytest.raises(ost.ContractError, match=r"'sneaky' wrote to argument 2 'x' .*, not through an argument"):
            program.verify(2)
        assert (a.get() == 1).all()


def test_tokens_are_used_again_over_many_replays(device, machine):
    x, y = on(device, np.zeros(2)), np.zeros(2)
    one = on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, one)
        host_scale(x, y, 1.0)
    with graph.compile(machine) as program:
        for steps in (1, 33, 2000):
            program.replay(steps)
        for _ in range(200):
            program.replay()
        assert (y == 2234).all()


def test_runs_of_all_kinds(device, machine):
    x, one = np.zeros(2), np.ones(2)
    for runs in ("pipelined", "serial", "once"):
        x[:] = 0
        with ost.capture() as graph:
            add(x, one)
        with graph.compile(machine, runs=runs) as program:
            last = [program.submit(3) for _ in range(1 if runs == "once" else 4)][-1]
            assert last.result(DEADLINE) == 3
        assert (x == (3 if runs == "once" else 12)).all()


def test_profiles_tell_copies_from_the_ops_that_they_are_for(device, machine):
    x, y = np.ones(2), np.zeros(2)
    with ost.capture() as graph:
        op = scale(x, y, 2.0)
    with graph.compile(machine) as program:
        for _ in range(2):
            run = program.submit(1, profile=True)
            run.result(DEADLINE)
            copy, work = run.profile
            assert copy.op is not op
            assert copy.op.original is work.op is op
            program.rebind([(x, np.ones(2))])


def test_profiles_name_the_device(device, machine):
    x = on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, x)
    with graph.compile(machine) as program:
        run = program.submit(2, profile=True)
        run.result(DEADLINE)
        assert "fake:0" in {record.processor.name for record in run.profile}


def test_retuning_goes_on(device, machine):
    x, y, one = np.zeros(2), np.zeros(2), np.ones(2)
    with ost.capture() as graph:
        add(x, one)
        host_add(y, x)
    with graph.compile(machine) as program:
        program.retune(300)
        program.replay(2)
    assert (x == 302).all()
    assert program.machine is machine


def test_concurrent_runs_have_streams_and_mirrors_of_their_own(device, machine):
    x, there, done = np.full(2, 3.0), on(device, np.full(2, 4.0)), []

    @ost.task
    def note(a: ost.Read, b: ost.Read, log):
        log.append((float(a[0]), float(b[0])))

    with ost.capture() as graph:
        scale(x, first := np.zeros(2), 2.0)
        scale(there, second := np.zeros(2), 2.0)
        note(first, second, done)
    with graph.compile(machine, runs="concurrent") as program:
        runs = [program.submit(3) for _ in range(12)]
        assert [run.result(DEADLINE) for run in runs] == [3] * 12
        assert done == [(6.0, 8.0)] * 36
        program.rebind([(x, np.full(2, 5.0))])
        program.replay(2)
        assert done[36:] == [(10.0, 8.0)] * 2


def test_statistics_count_by_device(device, machine):
    x, y = np.zeros(4), np.zeros(4)
    with ost.capture() as graph:
        add(x, np.ones(4))
        host_add(y, x)
    for runs in ("pipelined", "concurrent"):
        with graph.compile(machine, runs=runs) as program:
            program.replay(10)
            (found,) = program.statistics().devices
            assert (found.name, found.calls) == ("fake:0", 10)
            assert found.copies >= 12  # in once each, and back in every step
            assert found.copied_bytes == 32 * found.copies
            program.rebind([(y, np.zeros(4))])
            program.replay(5)
            assert program.statistics().devices[0].calls == 15
        assert program.statistics().devices[0].calls == 15


def test_arrays_without_elements_are_arrays_of_the_device_too(device, machine):
    found = []

    @ost.task
    def look(stream: ost.Stream, x: ost.Read, y: ost.Write):
        found.append((type(x).__name__, x.shape, type(y).__name__, y.shape))

    with ost.capture() as graph:
        look(np.zeros((0, 3)), np.zeros(2))
        look(empty(device, 0), empty(device, 2)[2:])
    with graph.compile(machine) as program:
        program.replay()
    assert sorted(found) == [("DeviceArray", (0,), "DeviceArray", (0,)), ("DeviceArray", (0, 3), "DeviceArray", (2,))]
