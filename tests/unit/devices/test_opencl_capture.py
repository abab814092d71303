"""What pyopencl enqueues is captured as it is: arguments stay, what cannot be captured is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from devices.kinds import Kind, opencl
from ostinato import _core
from ostinato.devices.array import DeviceArray

cl: Any = pytest.importorskip("pyopencl")

SOURCE = """
__kernel void add(__global float *x, float by) { x[get_global_id(0)] += by; }
__kernel void index(__global int *x) { x[get_global_id(0)] = 100 * get_local_size(0) + get_local_id(0); }
__kernel void combine(__global float *x, __local float *part, __global const float *y) {
    part[get_local_id(0)] = y[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] += part[0];
}
"""


class Capturing:
    """A stream, and kernels."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.device: Any = kind.device
        self.core = kind.core
        self.stream = kind.core.open()
        program = cl.Program(self.device.context, SOURCE).build()
        self.add, self.index, self.combine = program.add, program.index, program.combine

    def capture(self, body: Callable[[Any], object]) -> _core.devices.Sequence:
        """What `body` enqueues on the queue that it gets."""
        return self.core.capture(self.stream, lambda handle: body(self.device.stream(handle).queue))

    def replay(self, sequence: _core.devices.Sequence, times: int = 1) -> None:
        for _ in range(times):
            self.core.launch(self.stream, sequence)
        self.device.finish()

    def zeros(self, shape: int, dtype: Any = np.float32) -> DeviceArray:
        return self.kind.array(np.zeros(shape, dtype))


@pytest.fixture
def on() -> Any:
    capturing = Capturing(opencl())
    yield capturing
    capturing.core.close(capturing.stream)


def test_kernels_are_replayed_with_the_arguments_that_they_were_captured_with(on: Capturing) -> None:
    x, other = on.zeros(8), on.zeros(8)

    def body(queue: Any) -> None:
        on.add(queue, (8,), None, x.data, np.float32(1))
        on.add(queue, (4,), None, x.data, np.float32(10))

    sequence = on.capture(body)
    assert not x.get().any(), "nothing runs while it is captured"
    on.add.set_args(other.data, np.float32(5))
    on.replay(sequence, 3)
    assert x.get().tolist() == [33] * 4 + [3] * 4
    assert not other.get().any()


def test_sizes_of_work_groups_offsets_and_local_memory_are_kept(on: Capturing) -> None:
    x = on.zeros(8, np.int32)
    y, total = on.kind.array(np.arange(8, dtype=np.float32)), on.zeros(8)

    def body(queue: Any) -> None:
        on.index(queue, (4,), (2,), x.data, global_offset=(4,))
        on.combine(queue, (8,), (4,), total.data, cl.LocalMemory(16), y.data)

    on.replay(on.capture(body))
    assert x.get().tolist() == [0, 0, 0, 0, 200, 201, 200, 201]
    assert total.get().tolist() == [0] * 4 + [4] * 4


def test_arguments_may_be_set_before_the_enqueue(on: Capturing) -> None:
    x = on.zeros(4)

    def body(queue: Any) -> None:
        on.add.set_args(x.data, np.float32(2))
        cl.enqueue_nd_range_kernel(queue, on.add, (4,), None)
        on.add.set_arg(1, np.float32(3))
        cl.enqueue_nd_range_kernel(queue, on.add, (4,), None)

    on.replay(on.capture(body), 2)
    assert x.get().tolist() == [10] * 4


def test_copies_and_fills_between_buffers_and_with_the_host(on: Capturing) -> None:
    x, y = on.kind.array(np.arange(16, dtype=np.int32)), on.zeros(16, np.int32)
    host = np.zeros(16, np.int32)

    def body(queue: Any) -> None:
        cl.enqueue_copy(queue, y.data, x.data, byte_count=32, dst_offset=32)
        cl.enqueue_fill(queue, y.data, np.int32(7), 8, offset=8)
        cl.enqueue_copy(
            queue,
            y.data,
            x.data,
            src_origin=(0, 0),
            dst_origin=(16, 0),
            region=(4, 2),
            src_pitches=(8,),
            dst_pitches=(8,),
        )
        cl.enqueue_copy(queue, host, y.data, is_blocking=False)

    sequence = on.capture(body)
    assert not host.any()
    on.replay(sequence)
    assert host.tolist() == y.get().tolist() == [0, 0, 7, 7, 0, 0, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_plans_of_ours_are_captured(on: Capturing) -> None:
    from ostinato.devices.transfers import plan, plan_fill

    x, y = on.kind.array(np.arange(24.0).reshape(4, 6)), on.kind.array(np.zeros((4, 6)))
    copy, fill = plan(x[::-1, ::2], y[:, 1::2]), plan_fill(y[1:3, ::3], 9.0)
    assert fill is not None

    def body(handle: int) -> None:
        on.core.copy(handle, copy)
        on.core.fill(handle, fill)

    sequence = on.core.capture(on.stream, body)
    assert not y.get().any()
    expected = np.zeros((4, 6))
    expected[:, 1::2] = np.arange(24.0).reshape(4, 6)[::-1, ::2]
    expected[1:3, ::3] = 9.0
    on.replay(sequence)
    assert np.array_equal(y.get(), expected)


def test_events_are_given_and_taken(on: Capturing) -> None:
    x = on.zeros(4)

    def body(queue: Any) -> None:
        first = on.add(queue, (4,), None, x.data, np.float32(1))
        second = on.add(queue, (4,), None, x.data, np.float32(1), wait_for=[first])
        cl.enqueue_barrier(queue, wait_for=[second])
        cl.enqueue_marker(queue)
        queue.flush()
        kept.append(second)

    kept: list[Any] = []
    on.replay(on.capture(body))
    assert x.get().tolist() == [2] * 4
    kept[0].wait()


def test_the_queue_says_of_itself_what_the_stream_says(on: Capturing) -> None:
    def body(queue: Any) -> None:
        assert queue.context == on.device.context
        assert hash(queue.context) == hash(on.device.context)
        assert queue.device == on.device.device

    on.capture(body)


REFUSED = {
    "clFinish": lambda queue, buffer, host: queue.finish(),
    "clEnqueueReadBuffer": lambda queue, buffer, host: cl.enqueue_copy(queue, host, buffer),
    "clEnqueueWriteBuffer": lambda queue, buffer, host: cl.enqueue_copy(queue, buffer, host),
    "clEnqueueMapBuffer": lambda queue, buffer, host: cl.enqueue_map_buffer(
        queue, buffer, cl.map_flags.READ, 0, (4,), np.float32
    ),
    "clEnqueueMigrateMemObjects": lambda queue, buffer, host: cl.enqueue_migrate_mem_objects(queue, [buffer]),
}


@pytest.mark.parametrize("called", REFUSED)
@pytest.mark.parametrize("swallowed", [False, True])
def test_what_waits_is_refused(on: Capturing, called: str, swallowed: bool) -> None:
    x, host = on.zeros(4), np.zeros(4, np.float32)

    def body(queue: Any) -> None:
        try:
            REFUSED[called](queue, x.data, host)
        except cl.LogicError:
            if not swallowed:
                raise

    raised: tuple[type[Exception], str] = (cl.LogicError, "INVALID_OPERATION")
    if swallowed:
        raised = (RuntimeError, f"may only enqueue kernels, copies and fills, and wait for nothing; it called {called}")
    with pytest.raises(raised[0], match=raised[1]):
        on.capture(body)
    on.replay(on.capture(lambda queue: on.add(queue, (4,), None, x.data, np.float32(1))))
    assert x.get().tolist() == [1] * 4


def test_work_cannot_come_after_what_has_not_happened(on: Capturing) -> None:
    x = on.zeros(4)
    pending = cl.UserEvent(on.device.context)

    def body(queue: Any) -> None:
        with pytest.raises(cl.LogicError):
            on.add(queue, (4,), None, x.data, np.float32(1), wait_for=[pending])

    with pytest.raises(RuntimeError, match="after an event that has not happened"):
        on.capture(body)
    pending.set_status(cl.command_execution_status.COMPLETE)
    on.replay(on.capture(lambda queue: on.add(queue, (4,), None, x.data, np.float32(1), wait_for=[pending])))
    assert x.get().tolist() == [1] * 4


def test_a_queue_that_has_recorded_takes_nothing_more(on: Capturing) -> None:
    x, kept = on.zeros(4), []
    sequence = on.capture(kept.append)
    with pytest.raises(cl.LogicError):
        on.add(kept[0], (4,), None, x.data, np.float32(1))
    assert kept[0].context == on.device.context
    kept.clear()
    on.replay(sequence)
    assert not x.get().any()


def test_what_is_captured_outlives_its_kernels_and_buffers(on: Capturing) -> None:
    x = on.kind.array(np.arange(8, dtype=np.float32))

    def captured() -> _core.devices.Sequence:
        between = cl.Buffer(on.device.context, cl.mem_flags.READ_WRITE, 32)
        add = cl.Program(on.device.context, SOURCE).build().add

        def body(queue: Any) -> None:
            add(queue, (8,), None, x.data, np.float32(1))
            cl.enqueue_copy(queue, between, x.data)
            cl.enqueue_fill(queue, x.data, np.float32(0), 32)
            cl.enqueue_copy(queue, x.data, between)

        return on.capture(body)

    on.replay(captured(), 4)
    assert x.get().tolist() == [4, 5, 6, 7, 8, 9, 10, 11]


def test_a_body_that_fails_leaves_its_exception(on: Capturing) -> None:
    def body(queue: Any) -> None:
        raise ZeroDivisionError("in the body")

    with pytest.raises(ZeroDivisionError, match="in the body"):
        on.capture(body)


def test_an_error_of_a_replay_has_its_name(on: Capturing) -> None:
    x = on.zeros(4)
    sequence = on.capture(lambda queue: on.add(queue, (4,), (3,), x.data, np.float32(1)))
    with pytest.raises(RuntimeError, match="CL_INVALID_WORK_GROUP_SIZE"):
        on.core.launch(on.stream, sequence)
    assert on.core.diagnose(-54) == ("CL_INVALID_WORK_GROUP_SIZE", True)


def test_arrays_of_pyopencl_work_on_the_queue(on: Capturing) -> None:
    from pyopencl.elementwise import ElementwiseKernel

    x, y = on.zeros(16), on.kind.array(np.arange(16, dtype=np.float32))
    double = ElementwiseKernel(on.device.context, "float *x, const float *y", "x[i] = 2 * y[i] + x[i]")

    def body(queue: Any) -> None:
        double(x.with_queue(queue), y.with_queue(queue))  # type: ignore[attr-defined]

    on.replay(on.capture(body), 2)
    assert x.get().tolist() == (4 * np.arange(16)).tolist()
