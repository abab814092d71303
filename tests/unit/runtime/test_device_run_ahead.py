"""The host runs ahead of devices, and waits for them where it must: without the GIL, and only there."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from itertools import pairwise

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import add, host_add, host_put, host_scale, put, scale
from support import fake_device as fake

DEADLINE = 60


def on(device, values):
    array = empty(device, np.shape(values), np.asarray(values).dtype)
    array.set(values)
    return array


@pytest.fixture
def device():
    """A device that does nothing until it is told to."""
    with fake.install() as (device,):
        yield device
        device.core.set_manual(False)


@pytest.fixture(params=[1, 2], ids=lambda cpus: f"{cpus}cpus")
def machine(request, device):
    with ost.Machine(cpus=request.param) as machine:
        yield machine


def until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def done(device, run):
    """Let the device work until a run has ended."""
    device.core.set_manual(False)
    return run.result(DEADLINE)


def test_a_chain_is_issued_while_the_device_is_held(device, machine):
    arrays = [on(device, np.ones(2)) for _ in range(13)]
    with ost.capture() as graph:
        for src, dst in pairwise(arrays):
            scale(src, dst, 2.0)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit()
        until(lambda: device.core.in_flight >= 12)
        assert not run.done()
        assert done(device, run) == 1
        assert (arrays[-1].get() == 4096).all()


def test_steps_are_issued_ahead(device, machine):
    x, one = on(device, np.zeros(2)), on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, one)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit(8)
        until(lambda: device.core.in_flight >= 8)
        assert not run.done()
        assert done(device, run) == 8
        assert (x.get() == 8).all()


def test_no_more_steps_are_issued_than_the_window_allows(device, machine):
    x, one = on(device, np.zeros(2)), on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, one)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit(1000)
        until(lambda: device.core.in_flight >= 16)
        time.sleep(0.02)
        assert device.core.in_flight < 200
        assert done(device, run) == 1000
        assert (x.get() == 1000).all()


def test_host_tasks_wait_until_the_device_is_done(device, machine):
    x, y = on(device, np.ones(2)), np.zeros(2)
    with ost.capture() as graph:
        add(x, x)
        host_scale(x, y, 1.0)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit()
        until(lambda: device.core.in_flight > 0)
        time.sleep(0.02)
        assert (y == 0).all()
        assert "fake:0 to finish" in run.stuck()
        done(device, run)
        assert (y == 2).all()


def test_host_work_that_does_not_need_the_device_goes_on(device, machine):
    x, y = on(device, np.ones(2)), np.zeros(2)
    with ost.capture() as graph:
        add(x, x)
        host_put(y, 3.0)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit()
        until(lambda: (y == 3).all())
        assert not run.done()
        done(device, run)


def test_a_replay_that_waits_for_a_device_does_not_hold_the_gil(device, machine):
    x = on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, x)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        ended = []
        thread = threading.Thread(target=lambda: ended.append(program.replay(3)))
        thread.start()
        until(lambda: device.core.in_flight > 0)
        for _ in range(1000):  # this thread would stand still
            sum(range(100))
        assert not ended
        device.core.set_manual(False)
        thread.join(DEADLINE)
        assert ended == [3]


def test_a_cancelled_run_ends_when_the_device_is_done(device, machine):
    x, one = on(device, np.zeros(2)), on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, one)
    with graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit(10**6)
        until(lambda: device.core.in_flight > 0)
        assert run.cancel()
        time.sleep(0.25)
        assert not run.done()
        device.core.set_manual(False)
        with pytest.raises(CancelledError):
            run.result(DEADLINE)
        assert device.core.in_flight == 0
        assert (x.get() == run.steps_done).all()


def test_closing_waits_for_the_device(device, machine):
    x = on(device, np.ones(2))
    with ost.capture() as graph:
        add(x, x)
    program = graph.compile(machine)
    device.core.set_manual(True)
    program.submit(2)
    until(lambda: device.core.in_flight > 0)
    timer = threading.Timer(0.05, lambda: device.core.set_manual(False))
    timer.start()
    program.close()
    assert device.core.in_flight == 0
    assert (x.get() == 4).all()
    timer.join()


def test_two_programs_share_a_device(device, machine):
    arrays = [on(device, np.zeros(2)) for _ in range(2)]
    one = on(device, np.ones(2))
    host = [np.zeros(2), np.zeros(2)]
    programs = []
    for x, y in zip(arrays, host, strict=True):
        with ost.capture() as graph:
            add(x, one)
            host_add(y, x)
        programs.append(graph.compile(machine))
    runs = [program.submit(50) for program in programs for _ in range(4)]
    assert [run.result(DEADLINE) for run in runs] == [50] * 8
    assert all((array.get() == 200).all() for array in arrays)
    assert all((each == 200 * 201 / 2).all() for each in host)
    for program in programs:
        program.close()


def test_device_work_waits_for_all_preconditions(device, machine):
    x, y = on(device, np.ones(2)), on(device, np.ones(2))
    graph = ost.Graph()
    gate = graph.precondition("gate")
    graph.task(add, x, x, after=gate)
    graph.task(add, y, y)  # needs it not
    event = ost.UserEvent()
    with graph.compile(machine) as program:
        run = program.submit(after={"gate": event})
        time.sleep(0.02)
        assert device.core.counters["call"] == 0
        event.trigger()
        assert run.result(DEADLINE) == 1
    assert (y.get() == 2).all()


def test_but_not_what_a_postcondition_depends_on(device, machine):
    x, y = on(device, np.ones(2)), on(device, np.ones(2))
    graph = ost.Graph()
    gate = graph.precondition("gate")
    graph.task(add, x, x, after=gate)
    told = graph.task(add, y, y)
    graph.postcondition("told", after=told)
    event = ost.UserEvent()
    with graph.compile(machine) as program:
        run = program.submit(after={"gate": event})
        run.posts["told"].wait(DEADLINE)
        assert (y.get() == 2).all()
        assert (x.get() == 1).all()
        event.trigger()
        assert run.result(DEADLINE) == 1
    assert (x.get() == 2).all()


def test_two_programs_that_wait_for_each_other_s_device_work(device, machine):
    graphs = []
    for _ in range(2):
        graph = ost.Graph()
        gate = graph.precondition("other")
        told = graph.task(put, on(device, np.zeros(2)), 1.0)
        graph.postcondition("told", after=told)
        graph.task(put, on(device, np.zeros(2)), 2.0, after=gate)
        graphs.append(graph)
    first, second = (graph.compile(machine) for graph in graphs)
    events = [ost.UserEvent(), ost.UserEvent()]
    a = first.submit(after={"other": events[0]})
    b = second.submit(after={"other": events[1]})
    a.posts["told"].add_done_callback(lambda _: events[1].trigger())
    b.posts["told"].add_done_callback(lambda _: events[0].trigger())
    assert a.result(DEADLINE) == b.result(DEADLINE) == 1
    first.close()
    second.close()


def test_decode_device_encode_on_one_thread(device):
    """The host works on further images while the device has earlier ones."""
    n = 4
    raw, filtered = (ost.ring(*(np.zeros(2) for _ in range(n))) for _ in range(2))
    out = []

    @ost.task
    def decode(x: ost.Write, step):
        x[...] = step

    @ost.task
    def encode(x: ost.Read, log: ost.ReadWrite):
        log.append(float(x[0]))

    with ost.capture() as graph:
        decode(raw[0], ost.step)
        scale(raw[0], filtered[0], 2.0)
        encode(filtered[0], out)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        device.core.set_manual(True)
        run = program.submit(20)
        until(lambda: device.core.in_flight >= 2)
        assert done(device, run) == 20
    assert out == [2.0 * step for step in range(20)]
