"""Steps of tiny kernels on a device: what a replay adds to the enqueues of OpenCL themselves."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.machine import leave_a_core_to_who_issues
from benchmarks.measure import Contestant, Part, Run
from benchmarks.peers import Absent, library

BENCHMARK = "chains"
HOST = ", host time"  # processor time of the thread that issues
LOOP, REPLAY, NATIVE = "C loop", "ostinato, launch_only", "ostinato, native"
PYTHON, DECLARED, PREPARED = "pyopencl", "pyopencl, types declared", "pyopencl, arguments set before"

WEIGHTS = {"one": 0.5, "three": 0.25}
#: Work items of a kernel: all of one group, so that nothing but the enqueue and the start of a kernel counts.
ITEMS = 16
SOURCE = """
__kernel void one(__global const float *a, __global float *out, float weight) {
    const int i = get_global_id(0);
    out[i] = weight * a[i] + 1.0f;
}
__kernel void three(__global const float *a, __global const float *b, __global const float *c, __global float *out,
                    float weight) {
    const int i = get_global_id(0);
    out[i] = weight * (a[i] + c[i]) + 0.5f * b[i] + 0.125f;
}
"""


class Launch(NamedTuple):
    """A kernel of a step: its name, the numbers of the arrays that it reads, and of the one that it writes."""

    kernel: str
    reads: tuple[int, ...]
    writes: int


def chain(length: int) -> list[Launch]:
    """Each kernel needs the one before; two arrays in turn."""
    return [Launch("one", (i % 2,), 1 - i % 2) for i in range(length)]


def stencil(width: int, rows: int) -> list[Launch]:
    """Each kernel of a row needs three of the row before; two rows of arrays in turn."""
    return [
        Launch("three", tuple(row % 2 * width + (at + d) % width for d in (-1, 0, 1)), (1 - row % 2) * width + at)
        for row in range(rows)
        for at in range(width)
    ]


CASES = {
    "chain of 64": chain(64),
    "chain of 1024": chain(1024),
    "stencil of 8 x 8": stencil(8, 8),
    "stencil of 16 x 32": stencil(16, 32),
}


class _Item(ctypes.Structure):
    _fields_ = (("kernel", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Bench:
    """A step, and everybody who can run it."""

    def __init__(self, machine: ost.Machine, launches: Sequence[Launch], stack: ExitStack) -> None:
        import pyopencl as cl

        processor: Any = machine.processor("opencl:0")
        self._cl, self._machine, self._launches, self._stack = cl, machine, launches, stack
        self._queue = cl.CommandQueue(processor.device.context)
        program = cl.Program(processor.device.context, SOURCE).build()
        self._kernels = {name: cl.Kernel(program, name) for name in WEIGHTS}
        # With the types of scalars declared, pyopencl needs a quarter of the time for a call.
        self._declared = {name: cl.Kernel(program, name) for name in WEIGHTS}
        for kernel in self._declared.values():
            kernel.set_scalar_arg_dtypes([None] * (kernel.num_args - 1) + [np.float32])
        n_arrays = 1 + max(launch.writes for launch in launches)
        self.arrays = [processor.memory.empty(ITEMS, np.float32) for _ in range(n_arrays)]
        # A kernel object for each launch: its arguments are set once.
        self._set = [cl.Kernel(program, launch.kernel) for launch in launches]
        for kernel, launch in zip(self._set, launches, strict=True):
            numbers = (*launch.reads, launch.writes)
            kernel.set_args(*(self.arrays[at].data for at in numbers), np.float32(WEIGHTS[launch.kernel]))
        self._items = (_Item * len(launches))(*((kernel.int_ptr, ITEMS) for kernel in self._set))
        self._library = library("opencl")
        if self._library.opencl_load(cl._cl.__file__.encode()):
            raise RuntimeError("the OpenCL that pyopencl uses was not found")

    def reset(self) -> None:
        """Give the arrays the values that they begin with."""
        for number, array in enumerate(self.arrays):
            array.set(np.linspace(0, number + 1, ITEMS, dtype=np.float32))

    def loop(self) -> Run:
        """The loop in C."""
        queue, count = ctypes.c_void_p(self._queue.int_ptr), ctypes.c_int64(len(self._items))

        def run(steps: int) -> None:
            if code := self._library.opencl_loop(queue, self._items, count, ctypes.c_int64(steps)):
                raise RuntimeError(f"OpenCL error {code}")

        return run

    def _bodies(self, kernels: dict[str, Any]) -> dict[str, Callable[..., None]]:
        """What users write: functions that enqueue a kernel."""
        size = (ITEMS,)

        def one(queue: Any, a: Any, out: Any, weight: float) -> None:
            kernels["one"](queue, size, size, a.data, out.data, np.float32(weight))

        def three(queue: Any, a: Any, b: Any, c: Any, out: Any, weight: float) -> None:
            kernels["three"](queue, size, size, a.data, b.data, c.data, out.data, np.float32(weight))

        return {"one": one, "three": three}

    def python(self, declared: bool) -> Run:
        """Those functions, called by Python with arrays of pyopencl."""
        bodies, queue = self._bodies(self._declared if declared else self._kernels), self._queue
        arrays = [array.with_queue(queue) for array in self.arrays]
        work = [
            (bodies[launch.kernel], [arrays[at] for at in (*launch.reads, launch.writes)], WEIGHTS[launch.kernel])
            for launch in self._launches
        ]

        def run(steps: int) -> None:
            for _ in range(steps):
                for body, operands, weight in work:
                    body(queue, *operands, weight)
            queue.finish()

        return run

    def prepared(self) -> Run:
        """Python that sets no arguments."""
        queue, size, enqueue = self._queue, (ITEMS,), self._cl.enqueue_nd_range_kernel

        def run(steps: int) -> None:
            for _ in range(steps):
                for kernel in self._set:
                    enqueue(queue, kernel, size, size)
            queue.finish()

        return run

    def replay(self) -> Run:
        """Tasks with the same calls in them, captured."""
        bodies = self._bodies(self._kernels)

        @ost.task(launch_only=True)
        def one(stream: ost.Stream, a: ost.Read, out: ost.Write, weight: float) -> None:
            bodies["one"](stream.queue, a, out, weight)  # type: ignore[attr-defined]

        @ost.task(launch_only=True)
        def three(stream: ost.Stream, a: ost.Read, b: ost.Read, c: ost.Read, out: ost.Write, weight: float) -> None:
            bodies["three"](stream.queue, a, b, c, out, weight)  # type: ignore[attr-defined]

        tasks = {"one": one, "three": three}

        def call(number: int, launch: Launch, operands: list[Any]) -> None:
            tasks[launch.kernel](*operands, WEIGHTS[launch.kernel])

        return self._program(call)

    def native(self) -> Run:
        """Tasks from C with the same enqueue in them as the loop."""
        address = ctypes.cast(self._library.opencl_task, ctypes.c_void_p).value
        size = ctypes.sizeof(_Item)

        def call(number: int, launch: Launch, operands: list[Any]) -> None:
            access = (ost.Stream, *(ost.Read for _ in launch.reads), ost.Write)
            user = ctypes.addressof(self._items) + number * size
            ost.native(address, access, name=launch.kernel, user=user)(*operands)

        return self._program(call)

    def _program(self, call: Callable[[int, Launch, list[Any]], None]) -> Run:
        with ost.capture() as graph:
            for number, launch in enumerate(self._launches):
                call(number, launch, [self.arrays[at] for at in (*launch.reads, launch.writes)])
        return self._stack.enter_context(graph.compile(self._machine)).replay

    def verify(self, runs: dict[str, Run], steps: int = 5) -> None:
        """Check that all compute the same, as NumPy does."""
        self.reset()
        expected = [array.get() for array in self.arrays]
        for launch in self._launches * steps:
            a = [expected[number] for number in launch.reads]
            weight = np.float32(WEIGHTS[launch.kernel])
            expected[launch.writes] = (
                weight * a[0] + np.float32(1)
                if len(a) == 1
                else weight * (a[0] + a[2]) + np.float32(0.5) * a[1] + np.float32(0.125)
            )
        for name, run in runs.items():
            self.reset()
            run(steps - 2)
            run(2)
            for array, values in zip(self.arrays, expected, strict=True):
                if not np.allclose(array.get(), values, rtol=1e-5):
                    raise AssertionError(f"{name} computes something else")


def _of_this_thread(run: Run) -> Run:
    """The processor time of the thread that issues, in nanoseconds: the device takes its own time meanwhile."""

    def timed(steps: int) -> int:
        begin = time.thread_time_ns()
        run(steps)
        return time.thread_time_ns() - begin

    return timed


def run(context: Context) -> None:
    """Time every case."""
    leave_a_core_to_who_issues()
    with ost.Machine(cpus=1) as machine:
        if not any(processor.kind == "opencl" for processor in machine.processors):
            context.absent.append(Absent(BENCHMARK, "no device of OpenCL"))
            return
        device: Any = machine.processor("opencl:0").device
        context.versions["opencl"] = device.description
        for case, launches in CASES.items():
            if context.quick and len(launches) > 64:
                continue
            with ExitStack() as stack:
                bench = Bench(machine, launches, stack)
                runs = {
                    LOOP: bench.loop(),
                    REPLAY: bench.replay(),
                    NATIVE: bench.native(),
                    PREPARED: bench.prepared(),
                    DECLARED: bench.python(declared=True),
                    PYTHON: bench.python(declared=False),
                }
                bench.verify(runs)
                contestants = [Contestant(name, run, len(launches)) for name, run in runs.items()]
                context.compare(BENCHMARK, case, contestants, LOOP, "ns/kernel")
                issuing: list[Contestant] = [
                    Part(name, _of_this_thread(run), len(launches)) for name, run in runs.items()
                ]
                context.compare(BENCHMARK, case + HOST, issuing, LOOP, "ns/kernel")
