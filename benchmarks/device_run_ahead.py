"""Run-ahead: kernels that last are all issued long before the device is done with them, and the end waits for it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.machine import leave_a_core_to_who_issues
from benchmarks.measure import Row
from benchmarks.peers import Absent

BENCHMARK = "runahead"
ISSUED, DONE = "all issued", "done"
OURS, PYTHON = "ostinato", "pyopencl"
KERNELS = 12
SECONDS = 0.02  # that each takes of the device

SOURCE = """
__kernel void count(__global ulong *x, ulong turns) {
    ulong y = x[0];
    for (ulong i = 0; i < turns; ++i)
        y = y * 6364136223846793005UL + 1442695040888963407UL;
    x[1] = y;
    x[0] += 1;
}
"""


class Chain:
    """Kernels that each need the one before, issued by tasks that note when they have."""

    def __init__(self, machine: ost.Machine) -> None:
        import pyopencl as cl

        processor: Any = machine.processor("opencl:0")
        self._queue = cl.CommandQueue(processor.device.context)
        self._kernel = cl.Kernel(cl.Program(processor.device.context, SOURCE).build(), "count")
        self.array: Any = processor.memory.empty(2, np.uint64)
        self.array.set(0)
        self._turns = np.uint64(self._calibrated())
        self.issued = 0

    def _enqueue(self, queue: Any) -> None:
        self._kernel(queue, (1,), (1,), self.array.data, self._turns)
        self.issued = time.perf_counter_ns()

    def _calibrated(self) -> int:
        """How often a kernel of so many seconds goes round."""
        self._turns = np.uint64(1)
        self._enqueue(self._queue)  # the first one is built
        self._queue.finish()
        turns, took = 1 << 16, 0.0
        while took < SECONDS / 2:
            turns *= 2
            self._turns = np.uint64(turns)
            begin = time.perf_counter()
            self._enqueue(self._queue)
            self._queue.finish()
            took = time.perf_counter() - begin
        return int(turns * SECONDS / took)

    def graph(self) -> ost.Graph:
        """A step of all kernels."""

        @ost.task
        def count(stream: ost.Stream, x: ost.ReadWrite) -> None:
            self._enqueue(stream.queue)  # type: ignore[attr-defined]

        with ost.capture() as graph:
            for _ in range(KERNELS):
                count(self.array)
        return graph

    def python(self) -> None:
        """The same with pyopencl alone."""
        for _ in range(KERNELS):
            self._enqueue(self._queue)
        self._queue.finish()


def run(context: Context) -> None:
    """Time how long issuing takes, and how long the device."""
    leave_a_core_to_who_issues()
    with ost.Machine(cpus=1) as machine:
        if not any(processor.kind == "opencl" for processor in machine.processors):
            context.absent.append(Absent(BENCHMARK, "no device of OpenCL"))
            return
        chain = Chain(machine)
        case = f"{KERNELS} kernels of about {SECONDS * 1e3:.0f} ms"
        with chain.graph().compile(machine) as program:
            samples: dict[tuple[str, str], list[float]] = {
                (case + f", {who}", what): [] for who in (OURS, PYTHON) for what in (DONE, ISSUED)
            }
            for _ in range(context.rounds):
                for who, together in ((OURS, program.replay), (PYTHON, chain.python)):
                    before = int(chain.array.get()[0])
                    begin = time.perf_counter_ns()
                    together()
                    done = time.perf_counter_ns()
                    if int(chain.array.get()[0]) != before + KERNELS:
                        raise AssertionError(f"{who} did not wait for the device")
                    samples[case + f", {who}", DONE].append((done - begin) / 1e6)
                    samples[case + f", {who}", ISSUED].append((chain.issued - begin) / 1e6)
        context.rows += [Row(BENCHMARK, case, who, "ms", tuple(taken), DONE) for (case, who), taken in samples.items()]
