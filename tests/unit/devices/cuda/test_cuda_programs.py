"""Programs on devices of CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.cuda.driver import Kernels, kernels
from devices.cuda.faked import Controls
from ostinato.devices import device as discovery
from ostinato.devices.cuda import CudaDevice
from ostinato.errors import DeviceError


@pytest.fixture
def machine(place: Any) -> Iterator[ost.Machine]:
    """A machine with one thread, and the devices of the place."""
    with discovery.using(place.devices), ost.Machine(cpus=1) as made:
        yield made


class Tasks:
    """Stream tasks over the kernels."""

    def __init__(self, cuda: Kernels) -> None:
        @ost.task
        def axpb(stream: ost.Stream, x: ost.ReadWrite, a: Any, b: Any) -> None:
            cuda.axpb(stream.handle, x, a, b)

        @ost.task(launch_only=True)
        def launched(stream: ost.Stream, x: ost.ReadWrite, a: Any, b: Any) -> None:
            cuda.axpb(stream.handle, x, a, b)

        @ost.task(launch_only=True)
        def add(stream: ost.Stream, total: ost.Write, a: ost.Read, b: ost.Read) -> None:
            cuda.add(stream.handle, total, a, b)

        @ost.task
        def fault(stream: ost.Stream, x: ost.ReadWrite) -> None:
            cuda.launch("fault", stream.handle)

        self.axpb, self.launched, self.add, self.fault = axpb, launched, add, fault


@pytest.fixture
def tasks(cuda: Kernels) -> Tasks:
    return Tasks(cuda)


def test_host_arrays_are_copied_there_and_back(machine: ost.Machine, tasks: Tasks) -> None:
    x = np.arange(1000.0)
    with ost.capture() as graph:
        tasks.axpb(x, 2.0, 1.0)
        tasks.axpb(x, 1.0, -1.0)
    with graph.compile(machine) as program:
        program.replay(3)
        np.testing.assert_array_equal(x, np.arange(1000.0) * 8)
        x[...] = 1.0  # seen by the next run
        program.replay(2)
        assert (x == 4.0).all()


def test_host_and_device_take_turns(machine: ost.Machine, tasks: Tasks) -> None:
    x, y = np.zeros(64), np.zeros(64)

    @ost.task
    def produce(out: ost.Write, step: int) -> None:
        out[...] = step

    seen = []

    @ost.task
    def consume(values: ost.Read) -> None:
        seen.append(values[0])

    with ost.capture() as graph:
        produce(x, ost.step)
        tasks.axpb(x, 10.0, 1.0)
        tasks.add(y, x, x)
        consume(y)
    with graph.compile(machine) as program:
        program.replay(5)
    assert seen == [2.0 * (10.0 * step + 1.0) for step in range(5)]


def test_launch_only_tasks_copies_and_fills_are_one_graph(
    machine: ost.Machine, tasks: Tasks, controls: Controls, device: CudaDevice
) -> None:
    memory = machine.processor("cuda:0").memory
    x, y, total = (memory.empty(100, float) for _ in range(3))
    x.set(1.0)
    with ost.capture() as graph:
        tasks.launched(x, 2.0, 0.0)
        graph.copy(x, y)
        graph.fill(y[:50], 1.0)
        tasks.add(total, x, y)
    with graph.compile(machine) as program:
        program.replay(2)
        counted = "cuGraphLaunch", "cuLaunchKernel", "cuMemcpyAsync", "cuMemsetD2D32Async"
        before = [controls.calls(name) for name in counted]
        program.replay(4)
        assert [controls.calls(name) for name in counted] == [before[0] + 4, *before[1:]]
    assert total.get().tolist() == [65.0] * 50 + [128.0] * 50


def test_parameters_patch_the_executable_graph(machine: ost.Machine, tasks: Tasks, controls: Controls) -> None:
    x = machine.processor("cuda:0").memory.empty(100, float)
    x.set(0.0)
    with ost.capture() as graph:
        tasks.launched(x, 1.0, ost.param("b", default=1.0))
    with graph.compile(machine) as program:
        program.replay(2)
        program.replay(1, b=10.0)
        made = controls.calls("cuGraphInstantiateWithFlags")
        for value in (100.0, 1000.0, 10_000.0):
            program.replay(1, b=value)
        assert controls.calls("cuGraphInstantiateWithFlags") <= made + 1
    assert (x.get() == 11_112.0).all()


def test_kernels_of_a_step_that_run_side_by_side(machine: ost.Machine, tasks: Tasks) -> None:
    """A stencil, wider than captures have branches."""
    width, memory = 20, machine.processor("cuda:0").memory
    values = [np.arange(1000.0) * at for at in range(width)]
    now, then = ([memory.empty(1000, float) for _ in range(width)] for _ in range(2))
    for array, value in zip(now, values, strict=True):
        array.set(value)
    with ost.capture() as graph:
        for source, target in ((now, then), (then, now)):
            for at in range(width):
                tasks.add(target[at], source[at - 1], source[(at + 1) % width])
                tasks.launched(target[at], 0.5, 1.0)
    with graph.compile(machine) as program:
        program.replay(10)
    for _ in range(20):
        values = [(values[at - 1] + values[(at + 1) % width]) * 0.5 + 1.0 for at in range(width)]
    for array, value in zip(now, values, strict=True):
        np.testing.assert_array_equal(array.get(), value)


def test_rings_of_device_arrays(machine: ost.Machine, tasks: Tasks) -> None:
    memory = machine.processor("cuda:0").memory
    arrays = [memory.empty(10, float) for _ in range(3)]
    for number, array in enumerate(arrays):
        array.set(float(number))
    ring = ost.ring(*arrays)
    with ost.capture() as graph:
        tasks.add(ring[0], ring[-1], ring[-2])
    with graph.compile(machine) as program:
        program.replay(7)
    expected = [0.0, 1.0, 2.0]
    for step in range(7):
        expected[step % 3] = expected[(step - 1) % 3] + expected[(step - 2) % 3]
    assert [array.get()[0] for array in arrays] == expected


def test_two_devices_share_a_step(place: Any, machine: ost.Machine, cuda: Kernels, other: CudaDevice) -> None:
    both = {"cuda:0": cuda, "cuda:1": kernels(place.library, other)}

    @ost.task
    def axpb(stream: ost.Stream, x: ost.ReadWrite, a: float, b: float) -> None:
        both[stream.device.name].axpb(stream.handle, x, a, b)

    x, y = np.ones(32), np.ones(32)
    graph = ost.Graph()
    graph.task(axpb, x, 2.0, 0.0, on="cuda:0")
    graph.task(axpb, y, 3.0, 0.0, on="cuda:1")
    graph.task(axpb, x, 1.0, 1.0, on="cuda:1")
    with graph.compile(machine) as program:
        program.replay(3)
    assert x[0] == 15.0
    assert y[0] == 27.0


def test_foreign_arrays_are_used_where_they_are(machine: ost.Machine, controls: Controls) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.kept = array

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return self.kept.__cuda_array_interface__

    array = machine.processor("cuda:1").memory.empty(16, float)
    array.set(1.0)
    seen: list[object] = []

    @ost.task
    def look(stream: ost.Stream, x: ost.ReadWrite) -> None:
        seen.append(x)

    foreign = Foreign(array)
    with ost.capture() as graph:
        look(foreign)
    with graph.compile(machine) as program:
        before = controls.calls("cuMemcpyAsync")
        program.replay(2)
        assert controls.calls("cuMemcpyAsync") == before
    assert seen == [foreign] * 2


def test_a_failing_kernel_is_its_operations_failure(machine: ost.Machine, tasks: Tasks, controls: Controls) -> None:
    """The last one's here: CUDA tells of a failure by the next call, whichever that is."""
    x = machine.processor("cuda:0").memory.empty(8, float)
    with ost.capture() as graph:
        bad = tasks.fault(x)
    program = graph.compile(machine)
    with pytest.raises(ost.TaskError, match="fault") as raised:
        program.replay(1)
    assert raised.value.op is bad
    assert isinstance(raised.value.__cause__, DeviceError)
    assert "ILLEGAL_ADDRESS" in str(raised.value.__cause__)
    assert not raised.value.__cause__.usable
    with pytest.raises(DeviceError, match="cuda:0"):
        graph.compile(machine)
    controls.heal()
    program.close()


def test_a_copy_that_fails_leaves_the_device_usable(machine: ost.Machine, tasks: Tasks, controls: Controls) -> None:
    x = np.zeros(100)
    with ost.capture() as graph:
        tasks.axpb(x, 1.0, 1.0)
    with graph.compile(machine) as program:
        program.replay(1)
        controls.fail("cuMemcpyAsync=2")
        with pytest.raises(ost.TaskError, match="OUT_OF_MEMORY") as raised:
            program.replay(1)
        assert isinstance(raised.value.__cause__, DeviceError)
        assert raised.value.__cause__.usable
        program.replay(1)
