"""One kernel object in several places at once: it holds its arguments from when they are set until it is enqueued."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.kinds import opencl

cl: Any = pytest.importorskip("pyopencl")

SOURCE = "__kernel void add(__global float *x, float by) { x[get_global_id(0)] += by; }"
STEPS = 20


class Bed:
    """Two machines, as far apart as one process allows, and one kernel object for both."""

    def __init__(self, machines: tuple[ost.Machine, ost.Machine]) -> None:
        self.machines = machines
        self.processor: Any = machines[0].processor("opencl:0")
        self.kernel = cl.Kernel(cl.Program(self.processor.device.context, SOURCE).build(), "add")

    def array(self) -> Any:
        array = self.processor.memory.empty(4, np.float32)
        array.set(0)
        return array

    def task(self, launch_only: bool = False) -> Any:
        @ost.task(launch_only=launch_only)
        def add(x: ost.ReadWrite, by: float, stream: ost.Stream) -> None:
            self.kernel.set_args(x.data, np.float32(by))
            time.sleep(1e-4)  # others get their turn
            cl.enqueue_nd_range_kernel(stream.queue, self.kernel, x.shape, None)  # type: ignore[attr-defined]

        return add


@pytest.fixture
def bed() -> Iterator[Bed]:
    opencl()
    with ost.Machine(cpus=1) as one, ost.Machine(cpus=1) as other:
        yield Bed((one, other))


def at_once(*bodies: Callable[[], object]) -> None:
    """Call them, each on a thread of its own."""
    begin, raised = threading.Barrier(len(bodies)), []

    def run(body: Callable[[], object]) -> None:
        begin.wait()
        try:
            body()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised, raised


def programs(bed: Bed, arrays: list[Any], launch_only: bool = False) -> list[ost.Program]:
    made, add = [], bed.task(launch_only)
    for machine, array in zip(bed.machines, arrays, strict=True):
        with ost.capture() as graph:
            add(array, 1.0)
            add(array, ost.param("by", 2.0))
        made.append(graph.compile(machine))
    return made


def test_two_programs(bed: Bed) -> None:
    arrays = [bed.array(), bed.array()]
    one, other = programs(bed, arrays)
    with one, other:
        at_once(lambda: one.replay(STEPS), lambda: other.replay(STEPS))
    assert [array.get().tolist() for array in arrays] == [[3 * STEPS] * 4] * 2


def test_a_program_and_calls_outside_of_programs(bed: Bed) -> None:
    arrays = [bed.array(), bed.array()]
    one, other = programs(bed, arrays)
    third, add = bed.array(), bed.task()

    def call() -> None:
        for _ in range(STEPS):
            add(third, 5.0)

    with one, other:
        at_once(lambda: one.replay(STEPS), call)
    assert arrays[0].get().tolist() == [3 * STEPS] * 4
    assert third.get().tolist() == [5 * STEPS] * 4


def test_captures_of_two_programs(bed: Bed) -> None:
    arrays = [bed.array(), bed.array()]
    one, other = programs(bed, arrays, launch_only=True)

    def replay(program: ost.Program) -> None:
        for turn in range(STEPS):
            program.replay(1, by=float(1 + turn % 2))  # captured anew in each

    with one, other:
        at_once(lambda: replay(one), lambda: replay(other))
    assert [array.get().tolist() for array in arrays] == [[STEPS * 5 / 2] * 4] * 2


def test_a_body_that_raises_gives_up_its_turn(bed: Bed) -> None:
    @ost.task
    def wrong(x: ost.ReadWrite, stream: ost.Stream) -> None:
        raise ArithmeticError

    array, add = bed.array(), bed.task()
    with ost.capture() as graph:
        wrong(array)
    with graph.compile(bed.machines[0]) as program, pytest.raises(ost.TaskError):
        program.replay()
    with pytest.raises(ArithmeticError):
        wrong(array)
    at_once(lambda: add(array, 1.0))
    assert array.get().tolist() == [1] * 4


def test_a_body_may_call_another(bed: Bed) -> None:
    inner = bed.task()
    array, other = bed.array(), bed.array()

    @ost.task
    def outer(x: ost.ReadWrite, stream: ost.Stream) -> None:
        inner(other, 2.0)

    outer(array)
    assert other.get().tolist() == [2] * 4
