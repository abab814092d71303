"""Programs on an OpenCL device: pyopencl's code in their tasks, as it is."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.kinds import opencl

cl: Any = pytest.importorskip("pyopencl")

SOURCE = """
__kernel void scale(__global const float *x, __global float *y, float by) {
    y[get_global_id(0)] = by * x[get_global_id(0)];
}
__kernel void add(__global float *x, float by) { x[get_global_id(0)] += by; }
"""


class Bed:
    """A machine with an OpenCL device, and kernels for it."""

    def __init__(self, machine: ost.Machine) -> None:
        self.machine = machine
        processor: Any = machine.processor("opencl:0")
        self.device, self.memory = processor.device, processor.memory
        program = cl.Program(self.device.context, SOURCE).build()
        self.scale, self.add = cl.Kernel(program, "scale"), cl.Kernel(program, "add")
        self.called = 0

    def array(self, values: Any) -> Any:
        values = np.asarray(values, np.float32)
        array = self.memory.empty(values.shape, np.float32)
        array.set(values)
        return array

    def tasks(self, launch_only: bool = True) -> tuple[Any, Any]:
        """`scale` and `add` as tasks; how often their bodies are called is counted."""

        @ost.task(launch_only=launch_only)
        def scale(stream: ost.Stream, x: ost.Read, y: ost.Write, by: float) -> None:
            self.called += 1
            self.scale(stream.queue, x.shape, None, x.data, y.data, np.float32(by))  # type: ignore[attr-defined]

        @ost.task(launch_only=launch_only)
        def add(stream: ost.Stream, x: ost.ReadWrite, by: float) -> None:
            self.called += 1
            self.add(stream.queue, x.shape, None, x.data, np.float32(by))  # type: ignore[attr-defined]

        return scale, add


@pytest.fixture
def bed() -> Iterator[Bed]:
    opencl()
    with ost.Machine(cpus=1) as machine:
        yield Bed(machine)


@pytest.mark.parametrize("launch_only", [False, True])
def test_arrays_of_the_host_go_there_and_come_back(bed: Bed, launch_only: bool) -> None:
    scale, add = bed.tasks(launch_only)
    x, y, total = np.arange(8, dtype=np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32)

    @ost.task
    def gather(part: ost.Read, into: ost.ReadWrite) -> None:
        into += part

    with ost.capture() as graph:
        scale(x, y, 2.0)
        add(y, 1.0)
        gather(y, total)
    with graph.compile(bed.machine) as program:
        assert program.replay(10) == 10
        assert total.tolist() == (10 * (2 * np.arange(8) + 1)).tolist()
        x[:] = 1
        program.replay(1)
        assert y.tolist() == [3] * 8
        program.verify(2)


def test_what_is_captured_is_not_called_again(bed: Bed) -> None:
    _, add = bed.tasks()
    x = bed.array(np.zeros(4))
    with ost.capture() as graph:
        add(x, 1.0)
        add(x, 2.0)
    with graph.compile(bed.machine) as program:
        program.replay(100)
        called = bed.called
        program.replay(100)
        assert bed.called == called < 10
    assert x.get().tolist() == [600] * 4


def test_a_body_that_cannot_be_captured_is_called_in_each_step(bed: Bed) -> None:
    x, seen = bed.array(np.zeros(4)), []

    @ost.task(launch_only=True)
    def add(stream: ost.Stream, x: ost.ReadWrite) -> None:
        queue = stream.queue  # type: ignore[attr-defined]
        bed.add(queue, x.shape, None, x.data, np.float32(1))
        host = np.empty(4, np.float32)
        cl.enqueue_copy(queue, host, x.data)  # waits
        seen.append(host[0])

    with ost.capture() as graph:
        add(x)
    with graph.compile(bed.machine) as program:
        program.replay(5)
    assert seen == [1, 2, 3, 4, 5]


def test_parameters_are_those_of_the_run(bed: Bed) -> None:
    _, add = bed.tasks()
    x = bed.array(np.zeros(4))
    with ost.capture() as graph:
        add(x, ost.param("by", 1.0))
    with graph.compile(bed.machine) as program:
        for by in (1.0, 2.0, 2.0, 3.0):
            program.replay(10, by=by)
        program.replay(10)
    assert x.get().tolist() == [90] * 4


def test_rings_turn(bed: Bed) -> None:
    scale, _ = bed.tasks()
    arrays = [bed.array(np.full(4, value)) for value in (1, 0, 0)]
    turning = ost.ring(*arrays)
    with ost.capture() as graph:
        scale(turning[0], turning[1], 2.0)
    with graph.compile(bed.machine) as program:
        for steps in (1, 5, 4):
            program.replay(steps)
    assert [array.get()[0] for array in arrays] == [2**9, 2**10, 2**8]


def test_parts_of_arrays_that_begin_where_buffers_may(bed: Bed) -> None:
    _, add = bed.tasks()
    each = bed.device.alignment // 4
    x = bed.array(np.zeros(4 * each))
    with ost.capture() as graph:
        for part in range(4):
            add(x[part * each : (part + 1) * each], float(part))
    with graph.compile(bed.machine) as program:
        program.replay(50)
    assert np.array_equal(x.get(), np.repeat([0.0, 50.0, 100.0, 150.0], each))


def test_arrays_of_pyopencl_and_of_the_machine_in_one_program(bed: Bed) -> None:
    from pyopencl import array as cl_array

    scale, add = bed.tasks()
    queue = cl.CommandQueue(bed.device.context)
    theirs = cl_array.to_device(queue, np.arange(4, dtype=np.float32))
    ours, host = bed.array(np.zeros(4)), np.zeros(4, np.float32)
    with ost.capture() as graph:
        scale(theirs, ours, 3.0)
        add(theirs, 1.0)
        graph.copy(ours, host)
    with graph.compile(bed.machine) as program:
        program.replay(3)
    assert theirs.get().tolist() == [3, 4, 5, 6]
    assert host.tolist() == ours.get().tolist() == [6, 9, 12, 15]


def test_native_tasks_get_the_queue_and_the_memory(bed: Bed) -> None:
    class Call(ctypes.Structure):
        _fields_ = (("arrays", ctypes.c_void_p), ("scalars", ctypes.POINTER(ctypes.c_int64)))

    library = ctypes.CDLL(cl._cl.__file__)
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Call))
    def body(call: Any) -> int:
        # An ost_array begins with its data: here, the cl_mem.
        memory = ctypes.cast(call.contents.arrays, ctypes.POINTER(ctypes.c_void_p))[0]
        queue, pattern = ctypes.c_void_p(call.contents.scalars[0]), ctypes.c_float(7)
        seen.append(memory)
        sizes = ctypes.c_size_t(4), ctypes.c_size_t(4), ctypes.c_size_t(8)
        return int(
            library.clEnqueueFillBuffer(queue, ctypes.c_void_p(memory), ctypes.byref(pattern), *sizes, 0, None, None)
        )

    x = bed.array(np.zeros(4))
    fill = ost.native(body, (ost.Stream, ost.ReadWrite))
    with ost.capture() as graph:
        fill(x)
    with graph.compile(bed.machine) as program:
        program.replay(2)
    assert seen == [x.int_ptr] * 2
    assert x.get().tolist() == [0, 7, 7, 0]


def test_events_serve_for_ever(bed: Bed) -> None:
    _, add = bed.tasks()
    x = bed.array(np.zeros(1))
    with ost.capture() as graph:
        add(x, 1.0)
    steps = 10_000
    with graph.compile(bed.machine) as program:
        program.replay(steps)
    assert x.get().tolist() == [steps]


def test_an_error_of_a_launch_is_that_of_its_task(bed: Bed) -> None:
    @ost.task
    def wrong(stream: ost.Stream, x: ost.ReadWrite) -> None:
        bed.add(stream.queue, x.shape, (3,), x.data, np.float32(1))  # type: ignore[attr-defined]

    x = bed.array(np.zeros(4))
    with ost.capture() as graph:
        op = wrong(x)
    with graph.compile(bed.machine) as program:
        with pytest.raises(ost.TaskError) as caught:
            program.replay()
        assert caught.value.op is op
        assert isinstance(caught.value.__cause__, cl.LogicError)
    assert x.get().tolist() == [0] * 4


def test_device_arrays_of_another_context_are_refused_at_capture(bed: Bed) -> None:
    from pyopencl import array as cl_array

    _, add = bed.tasks()
    theirs = cl_array.zeros(cl.CommandQueue(cl.Context([bed.device.device])), 4, np.float32)
    with pytest.raises(ValueError, match="belongs to another OpenCL context"), ost.capture():
        add(theirs, 1.0)
