"""Single tasks on devices."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import add, fail, host_add, scale
from support import fake_device as fake

DEADLINE = 60


@pytest.fixture
def devices():
    with fake.install(count=2) as devices:
        yield devices


@pytest.fixture
def machine(devices):
    with ost.Machine(cpus=1) as machine:
        yield machine


def test_a_task_with_a_stream(machine):
    x, y = np.arange(3.0), np.zeros(3)
    assert machine.spawn(scale, x, y, 3.0).result(DEADLINE) is None
    assert (y == 3 * x).all()


@pytest.mark.parametrize("name", ["fake:0", "fake:1"])
def test_it_runs_where_it_is_bound_to(devices, machine, name):
    x, y = np.ones(3), np.zeros(3)
    before = [device.core.counters["call"] for device in devices]
    machine.spawn(scale, x, y, 3.0, on=name).result(DEADLINE)
    machine.spawn(scale, x, y, 3.0, on=machine.processor(name)).result(DEADLINE)
    calls = [device.core.counters["call"] - first for device, first in zip(devices, before, strict=True)]
    assert calls == [2 * (device.name == name) for device in devices]
    assert (y == 3).all()


def test_a_kind_is_any_device_of_it(machine):
    x = np.ones(3)
    machine.spawn(add, x, x, on="fake").result(DEADLINE)
    assert (x == 2).all()


def test_a_task_without_a_stream_waits_for_the_device(devices, machine):
    device = devices[1]
    array = empty(device, 3)
    array.set(1.0)
    own = device.stream(device.core.open())

    @ost.task
    def elsewhere(x):
        fake.launch(own, lambda a: np.add(a, 1, out=a), x, delay=0.002)
        return "started"

    assert machine.spawn(elsewhere, array, on="fake:1").result(DEADLINE) == "started"
    assert device.core.in_flight == 0
    assert (array.get() == 2).all()


def test_failures_are_told(machine):
    with pytest.raises(ost.TaskError, match="no such number") as raised:
        machine.spawn(fail, np.ones(2)).result(DEADLINE)
    assert isinstance(raised.value.__cause__, ost.DeviceError)


def test_where_it_cannot_run(machine):
    with pytest.raises(ValueError, match="takes the stream of a device"):
        machine.spawn(add, np.ones(2), np.ones(2), on="cpu:0")
    with pytest.raises(ValueError, match="fake:7"):
        machine.spawn(add, np.ones(2), np.ones(2), on="fake:7")


def test_tasks_on_lanes_may_spawn_them(machine):
    x = np.ones(2)

    @ost.task
    def outer():
        return machine.spawn(add, x, x)

    machine.spawn(outer).result(DEADLINE).result(DEADLINE)
    machine.spawn(host_add, x, x).result(DEADLINE)
    assert (x == 4).all()
