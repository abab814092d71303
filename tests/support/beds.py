"""Devices to test on, each with a machine, tasks that work there, and gates that hold the device up."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices import device as discovery
from support import fake_device as fake

SOURCE = """
__kernel void scale(__global const int *x, int ox, int sx, __global int *y, int oy, int sy, int by) {
    int i = get_global_id(0);
    y[oy + i * sy] = x[ox + i * sx] * by;
}
__kernel void add(__global int *x, int ox, int sx, __global const int *y, int oy, int sy, int by) {
    int i = get_global_id(0);
    x[ox + i * sx] += y[oy + i * sy] * by;
}
__kernel void shift(__global int *x, int ox, int sx, int by) { x[ox + (int)get_global_id(0) * sx] += by; }
__kernel void put(__global int *x, int ox, int sx, int value) { x[ox + (int)get_global_id(0) * sx] = value; }
__kernel void divides(__global const int *x, int ox, int sx, __global int *y, int oy, int sy, int by) {
    int i = get_global_id(0);
    y[oy + i * sy] = x[ox + i * sx] % by == 0;
}
"""


FAILED = -5  # CL_OUT_OF_RESOURCES


class Bed:
    """The first device of a kind, and what `_with_tasks` gives."""

    def __init__(self, machine: ost.Machine, kind: str) -> None:
        self.machine = machine
        processor: Any = next(each for each in machine.processors if each.kind == kind)
        self.processor, self.name, self.kind = processor, processor.name, processor.kind
        self.device, self.memory = processor.device, processor.memory

    def finish(self) -> None:
        self.device.finish()

    array: Any
    enqueue_failure: Any  # (stream): work that fails when what this returns is called
    scale: Any
    add: Any
    shift: Any
    put: Any
    hold: Any
    divides: Any
    fails: Any


class OpenCLBed(Bed):
    """An OpenCL device. Arrays are of one axis and of ``int32``."""

    def __init__(self, machine: ost.Machine) -> None:
        import pyopencl as cl

        super().__init__(machine, "opencl")
        self.cl: Any = cl
        self.lock = threading.Lock()  # kernel objects hold their arguments
        self.kernels = _kernels(self.device.context)
        self.keeps_events = False  # PoCL aborts the process when a command fails whose event nobody holds
        self.events: list[object] = []

    def gate(self) -> OpenCLGate:
        return OpenCLGate(self.cl.UserEvent(self.device.context), self.cl)

    def enqueue(self, name: str, stream: Any, arrays: Any, *numbers: int) -> None:
        arguments = []
        for array in arrays:
            base = getattr(array, "base_data", array)
            arguments += [base, np.int32(array.offset // 4), np.int32(array.strides[0] // 4)]
        if not arrays[0].size:
            return
        with self.lock:
            kernel = self.kernels[name]
            event = kernel(stream.queue, arrays[0].shape, None, *arguments, *map(np.int32, numbers))
        if self.keeps_events:
            self.events.append(event)

    def enqueue_hold(self, stream: Any, gate: Any) -> None:
        self.cl.enqueue_barrier(stream.queue, wait_for=[gate.event])

    def enqueue_failure(self, stream: Any) -> Any:
        stream.queue.finish()  # PoCL crashes now and then if earlier commands are at work when an event fails
        event = self.cl.UserEvent(self.device.context)
        self.events += [event, self.cl.enqueue_barrier(stream.queue, wait_for=[event])]
        stream.queue.flush()
        return functools.partial(event.set_status, FAILED)


class OpenCLGate:
    def __init__(self, event: Any, cl: Any) -> None:
        self.event, self._cl = event, cl
        self._lock = threading.Lock()
        self._is_open = False
        self._watchdog = _opened_later(self.open)

    def open(self) -> None:
        with self._lock:
            if not self._is_open:
                self._is_open = True
                self.event.set_status(self._cl.command_execution_status.COMPLETE)
        self._watchdog.cancel()


class FakeBed(Bed):
    """A fake device."""

    def __init__(self, machine: ost.Machine) -> None:
        super().__init__(machine, "fake")

    def gate(self) -> FakeGate:
        return FakeGate()

    def enqueue(self, name: str, stream: Any, arrays: Any, *numbers: int) -> None:
        fake.launch(stream, KERNELS[name], *arrays, *numbers)

    def launch(self, stream: Any, function: Any, *arguments: Any) -> None:
        fake.launch(stream, function, *arguments)

    def enqueue_hold(self, stream: Any, gate: Any) -> None:
        fake.launch(stream, gate.event.wait)

    def enqueue_failure(self, stream: Any) -> Any:
        go = threading.Event()

        def broken() -> None:
            go.wait()
            raise ArithmeticError("no such number")

        fake.launch(stream, broken)
        return go.set


class FakeGate:
    def __init__(self) -> None:
        self.event = threading.Event()
        self._watchdog = _opened_later(self.open)

    def open(self) -> None:
        self.event.set()
        self._watchdog.cancel()


def _opened_later(open_it: Any) -> threading.Timer:
    """So that a test that fails while a gate is shut ends."""
    timer = threading.Timer(float(os.environ.get("GATE", 20)), open_it)
    timer.daemon = True
    timer.start()
    return timer


def _scale(x: Any, y: Any, by: int) -> None:
    y[...] = x * np.int32(by)


def _add(x: Any, y: Any, by: int) -> None:
    x += y * np.int32(by)


def _divides(x: Any, y: Any, by: int) -> None:
    y[...] = x % by == 0


def _shift(x: Any, by: int) -> None:
    x += np.int32(by)


def _put(x: Any, value: int) -> None:
    x[...] = value


KERNELS: dict[str, Any] = {"scale": _scale, "add": _add, "shift": _shift, "put": _put, "divides": _divides}


@functools.cache
def _kernels(context: Any) -> dict[str, Any]:
    import pyopencl as cl

    program = cl.Program(context, SOURCE).build()
    return {name: cl.Kernel(program, name) for name in KERNELS}


def _with_tasks(bed: Any, launch_only: bool = False) -> Any:
    """Give a bed its tasks: `scale(x, y, by)`, `add(x, y, by)`, `shift(x, by)`, `put(x, value)`, `hold(x, gate)`."""

    @ost.task(launch_only=launch_only)
    def scale(x: ost.Read, y: ost.Write, by: Any, stream: ost.Stream) -> None:
        bed.enqueue("scale", stream, (x, y), by)

    @ost.task(launch_only=launch_only)
    def add(x: ost.ReadWrite, y: ost.Read, by: Any, stream: ost.Stream) -> None:
        bed.enqueue("add", stream, (x, y), by)

    @ost.task(launch_only=launch_only)
    def shift(x: ost.ReadWrite, by: Any, stream: ost.Stream) -> None:
        bed.enqueue("shift", stream, (x,), by)

    @ost.task(launch_only=launch_only)
    def put(x: ost.Write, value: Any, stream: ost.Stream) -> None:
        bed.enqueue("put", stream, (x,), value)

    @ost.task(launch_only=True)
    def divides(x: ost.Read, y: ost.Write, by: Any, stream: ost.Stream) -> None:
        bed.enqueue("divides", stream, (x, y), by)

    @ost.task
    def hold(x: ost.ReadWrite, gate: Any, stream: ost.Stream) -> None:
        """Nothing that comes after it on its stream begins before the gate is open."""
        bed.enqueue_hold(stream, gate)

    @ost.task
    def fails(x: ost.ReadWrite, stream: ost.Stream) -> None:
        raise ArithmeticError("cannot be launched")

    def array(values: Any) -> Any:
        values = np.asarray(values, np.int32)
        made = bed.memory.empty(values.shape, np.int32)
        made.set(values)
        return made

    bed.scale, bed.add, bed.shift, bed.put, bed.hold, bed.fails = scale, add, shift, put, hold, fails
    bed.divides = divides
    bed.array = array
    return bed


@contextmanager
def made(kind: str, cpus: int = 1, launch_only: bool = False, **options: Any) -> Iterator[Any]:
    """A bed of a kind, ``"opencl"`` or ``"fake"``, with a machine of its own."""
    if kind == "fake":
        with fake.install(**options), ost.Machine(cpus=cpus) as machine:
            yield _with_tasks(FakeBed(machine), launch_only)
        return
    if not discovery.usable("opencl"):
        pytest.skip(f"there is no OpenCL device{discovery.format_reasons()}")
    with discovery.using(discovery.usable("opencl")), ost.Machine(cpus=cpus) as machine:
        yield _with_tasks(OpenCLBed(machine), launch_only)


# What tasks on CPUs do


@ost.task
def host_scale(x: ost.Read, y: ost.Write, by: Any = 2) -> None:
    np.multiply(x, by, out=y)


@ost.task
def host_add(x: ost.ReadWrite, y: ost.Read, by: Any = 1) -> None:
    x += y * np.asarray(by, x.dtype)


@ost.task
def host_shift(x: ost.ReadWrite, by: Any = 1) -> None:
    x += by


@ost.task
def host_put(x: ost.Write, value: Any) -> None:
    x[...] = value


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def zeros(n: int = 4) -> Any:
    return np.zeros(n, np.int32)


def ones(n: int = 4) -> Any:
    return np.ones(n, np.int32)
