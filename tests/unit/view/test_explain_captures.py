"""What explain says of captures: what is issued as one, and why other work is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from support import fake_device as fake


@ost.task(launch_only=True)
def add(x: ost.ReadWrite, by: float, stream: ost.Stream) -> None:
    fake.launch(stream, lambda a: np.add(a, by, out=a), x)


def said(program: ost.Program) -> list[str]:
    """The lines of the section."""
    _, found, rest = program.explain().partition("\nCaptures\n")
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines()] if found else []


def launches(program: ost.Program) -> int:
    (counters,) = program.statistics().devices
    return counters.launches


@pytest.fixture
def x() -> Any:
    with fake.install() as (device,):
        yield empty(device, 4)


@pytest.mark.parametrize("runs", ["pipelined", "concurrent"])
def test_what_is_issued_as_one(x: Any, runs: str) -> None:
    with ost.capture() as graph:
        add(x, 1.0)
        add(x, 2.0)
    with ost.Machine(cpus=1) as machine, graph.compile(machine, runs=runs) as program:
        assert said(program) == ["not captured yet, since bodies are called once before: 2 x add"]
        program.replay(10)
        assert said(program) == ["fake:0: 2 ops captured as one: 2 x add"]
        assert launches(program) == 9
    assert said(program) == []  # it is closed


def test_parameters_that_change(x: Any) -> None:
    with ost.capture() as graph:
        add(x, ost.param("by"))
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        for by in range(5):
            program.replay(2, by=by)
        assert said(program) == ["fake:0: 1 op captured, 4 times again for other parameters: add"]


def test_rings_are_no_change(x: Any) -> None:
    with ost.capture() as graph:
        add(ost.ring(x[:2], x[2:])[0], 1.0)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        program.replay(10)
        assert said(program) == ["fake:0: 1 op captured: add"]


def test_the_step_number(x: Any) -> None:
    with ost.capture() as graph:
        op = add(x, ost.step)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        program.replay(3)
        assert said(program) == [f"'add' at {op.call_site} is called in each step: ost.step is another in each"]
        assert launches(program) == 0


def test_a_device_that_captures_nothing() -> None:
    with fake.install(captures=False) as (device,), ost.Machine(cpus=1) as machine:
        x = empty(device, 4)
        with ost.capture() as graph:
            add(x, 1.0)
            add(x, 2.0)
        with graph.compile(machine) as program:
            program.replay(3)
            assert said(program) == ["fake:0: called in each step: 2 x add: fake:0 captures nothing"]


def test_a_body_that_fails_when_it_is_captured(x: Any) -> None:
    called = []

    @ost.task(launch_only=True)
    def moody(x: ost.ReadWrite, stream: ost.Stream) -> None:
        called.append(x)
        if len(called) == 2:
            raise ArithmeticError("not now")

    with ost.capture() as graph:
        add(x, 1.0)
        op = moody(x)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        program.replay(5)
        assert said(program) == [
            f"'moody' at {op.call_site} is called in each step: ArithmeticError: not now",
            "fake:0: called in each step with it: add",
        ]


def test_a_failure_of_the_device(x: Any) -> None:
    with ost.capture() as graph:
        op = add(x, 1.0)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        x.device.core.fail("capture", 1, 2)
        program.replay(5)
        assert said(program) == [f"'add' at {op.call_site} is called in each step: the device is out of memory"]


def test_what_opencl_cannot_capture() -> None:
    from devices.kinds import opencl

    device: Any = opencl().device
    host = np.zeros(4)

    @ost.task(launch_only=True)
    def read(x: ost.Read, stream: ost.Stream) -> None:
        import pyopencl as cl

        cl.enqueue_copy(stream.queue, host, x.data)  # type: ignore[attr-defined]

    with ost.capture() as graph:
        op = read(empty(device, 4))
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        program.replay(3)
        (line,) = said(program)
    assert line.startswith(f"'read' at {op.call_site} is called in each step: a launch_only task may only enqueue")
    assert line.endswith("it called clEnqueueReadBuffer, blocking")


def test_programs_without_captures_say_nothing(x: Any) -> None:
    with ost.capture() as graph:
        graph.fill(x, 1.0)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        program.replay(3)
        assert said(program) == []
