"""No run or call ends while the device works, also where the driver cannot say when it is done; on the fake device."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import host_add
from support import fake_device as fake

SLOW = 0.003  # seconds that a piece of work takes
STEPS = 3


@ost.task
def grow(stream: ost.Stream, x: ost.ReadWrite):
    fake.launch(stream, lambda a: np.add(a, 1, out=a), x, delay=SLOW)


@ost.task(launch_only=True)
def grow_captured(stream: ost.Stream, x: ost.ReadWrite):
    fake.launch(stream, lambda a: np.add(a, 1, out=a), x, delay=SLOW)


@pytest.fixture
def device():
    with fake.install() as (device,):
        device.core.set_delays(copy=SLOW, fill=SLOW)
        yield device


@pytest.fixture
def machine(device):
    with ost.Machine(cpus=2) as machine:
        yield machine


def on_the_device_alone(task, x, there, host):
    task(there)
    task(there)


def looked_at_by_the_host(task, x, there, host):
    task(there)
    host_add(host, there)
    task(there)


def copied_back(task, x, there, host):
    task(x)


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("traced", [False, True], ids=["", "traced"])
@pytest.mark.parametrize("task", [grow, grow_captured], ids=["plain", "captured"])
@pytest.mark.parametrize("step", [on_the_device_alone, looked_at_by_the_host, copied_back])
def test_a_run_is_done_when_the_device_is(device, machine, step, task, traced, nth):
    x, host, there = np.zeros(2), np.zeros(2), empty(device, 2)
    there.set(0.0)
    with ost.capture() as graph:
        step(task, x, there, host)
    with graph.compile(machine) as program:
        program.replay(2)
        device.core.fail("record", nth)
        failure = program.submit(STEPS, profile=traced).exception(60)
        assert device.core.in_flight == 0
        assert failure is None or (isinstance(failure.__cause__, ost.DeviceError) and failure.__cause__.usable)
        device.core.fail("record", 0)
        x[...] = 0
        there.set(0.0)
        program.replay(1)
        assert x[0] + there.get()[0] == sum(op.name == task.name for op in graph.ops)


def test_a_failed_wait_for_another_stream_still_orders_what_comes_later(device, machine):
    """On the stream of the copies, the second one relies on the wait of the first."""
    a, b = (empty(device, 2) for _ in range(2))
    first, second = np.zeros(2), np.zeros(2)

    @ost.task
    def make(stream: ost.Stream, a: ost.Write, b: ost.Write):
        def kernel(a, b):
            a[...] = b[...] = 7

        fake.launch(stream, kernel, a, b, delay=5 * SLOW)

    with ost.capture() as graph:
        make(a, b)
        graph.copy(a, first)
        graph.copy(b, second)
    a.set(0.0)
    b.set(0.0)
    with graph.compile(machine) as program:
        device.core.fail("wait", 1)
        with pytest.raises(ost.TaskError) as raised:
            program.replay(on_error="continue")
        assert raised.value.op is graph.ops[1]
        assert (first == 0).all()
        assert (second == 7).all()


def test_a_device_that_cannot_even_be_waited_for_is_not_used_any_more(device, machine):
    x = empty(device, 2)
    x.set(0.0)
    with ost.capture() as graph:
        grow(x)
    with graph.compile(machine) as program:
        device.core.fail("record", 1)
        device.core.fail("finish", 1)
        with pytest.raises(ost.TaskError, match="may still be writing to arrays") as raised:
            program.replay()
        cause = raised.value.__cause__
        assert isinstance(cause, ost.DeviceError)
        assert (cause.device, cause.usable) == ("fake:0", False)
        assert not machine.processor("fake:0").usable
        with pytest.raises(ost.DeviceError, match="fake:0"):
            graph.compile(machine)
    device.finish()


@pytest.mark.parametrize("method", ["copy", "record"])
def test_copies_outside_of_programs_are_waited_for(device, method):
    x = empty(device, 2)
    x.set(1.0)
    device.core.fail(method, 1)
    with pytest.raises(ost.DeviceError, match="fake:0"):
        x.get()
    assert device.core.in_flight == 0
    assert (x.get() == 1).all()


def test_calls_outside_of_programs_are_waited_for(device):
    x = empty(device, 2)
    x.set(1.0)
    device.core.fail("record", 1)
    with pytest.raises(ost.DeviceError, match="fake:0"):
        grow(x)
    assert device.core.in_flight == 0
    assert (x.get() == 2).all()
