"""What stands for the end of a step on an OpenCL device costs no command of its own where the last one tells of it."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.kinds import opencl

cl: Any = pytest.importorskip("pyopencl")

#: Where entry points for queues stand in the table of the KHR_icd extension, and how many parameters they have.
KERNEL, MARKER, PLACES = 59, 105, 140
ENTRIES = {KERNEL: 9, MARKER: 4}


@contextmanager
def counted(queue: int) -> Iterator[Counter[int]]:
    """Count what is enqueued on a queue: it begins with its driver's table, of which it gets a copy that counts."""
    begin = ctypes.c_void_p.from_address(queue)
    theirs = begin.value
    assert theirs is not None
    table = (ctypes.c_void_p * PLACES)()
    ctypes.memmove(table, theirs, ctypes.sizeof(table))
    counts: Counter[int] = Counter()
    entries = []

    def counting(place: int, parameters: int) -> Any:
        entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * parameters)
        driver = entry(table[place] or 0)

        def count(*arguments: Any) -> int:
            counts[place] += 1
            return int(driver(*arguments))

        return entry(count)

    for place, parameters in ENTRIES.items():
        entries.append(counting(place, parameters))
        table[place] = ctypes.cast(entries[-1], ctypes.c_void_p).value
    begin.value = ctypes.addressof(table)
    try:
        yield counts
    finally:
        begin.value = theirs


def test_captured_steps_need_no_markers() -> None:
    opencl()
    queues: list[int] = []
    with ost.Machine(cpus=1) as machine:
        processor: Any = machine.processor("opencl:0")
        source = "__kernel void add(__global float *x, float by) { x[get_global_id(0)] += by; }"
        kernel = cl.Kernel(cl.Program(processor.device.context, source).build(), "add")

        @ost.task(launch_only=True)
        def add(stream: ost.Stream, x: ost.ReadWrite, by: float) -> None:
            queues.append(stream.handle)
            kernel(stream.queue, x.shape, None, x.data, np.float32(by))  # type: ignore[attr-defined]

        x = processor.memory.empty((4,), np.float32)
        x.set(np.zeros(4, np.float32))
        with ost.capture() as graph:
            add(x, 1.0)
            add(x, 2.0)
        with graph.compile(machine) as program:
            program.replay(2)  # bodies are called, then captured
            with counted(queues[0]) as counts:
                assert program.replay(100) == 100
            assert counts == {KERNEL: 200}
        assert x.get().tolist() == [306] * 4
