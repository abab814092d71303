"""Traces of programs with devices: what was issued when, and what host and device did at once."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest

import ostinato as ost
from ostinato.view.trace import Trace
from support import fake_device as fake

BUFFERS, STEPS, DEADLINE = 3, 9, 60


@ost.task
def decode(x: ost.Write, k: int, decoded: ost.ReadWrite) -> None:
    x[...] = k
    decoded.append(k)


@ost.task
def smooth(stream: ost.Stream, x: ost.Read, y: ost.Write) -> None:
    fake.launch(stream, lambda a, b: np.multiply(a, 2, out=b), x, y)


@ost.task
def encode(y: ost.Read, results: ost.ReadWrite) -> None:
    results.append(float(y[0]))


class Lines:
    """What is passed between tasks, beside arrays, and the graph."""

    def __init__(self) -> None:
        self.decoded: list[int] = []
        self.results: list[float] = []
        with ost.capture() as self.graph:
            x, y = (ost.ring(*np.zeros((BUFFERS, 4))) for _ in range(2))
            decode(x[0], ost.step, self.decoded)
            smooth(x[0], y[0])
            encode(y[0], self.results)


@pytest.fixture
def trace() -> Trace:
    """Of a device that does nothing before the host has gone as far ahead as its buffers let it."""
    lines = Lines()
    with fake.install() as (device,), ost.Machine(cpus=1) as machine, lines.graph.compile(machine) as program:
        device.core.set_manual(True)
        found: list[Trace] = []
        thread = threading.Thread(target=lambda: found.append(program.trace(STEPS)))
        thread.start()
        try:
            while len(lines.decoded) < 2 and thread.is_alive():
                thread.join(0.001)
        finally:
            device.core.set_manual(False)
        thread.join(DEADLINE)
    assert lines.results == [2.0 * k for k in range(STEPS)]
    return found[0]


def of(trace: Trace, name: str) -> np.ndarray:
    """The records of the operation with this name, by step."""
    records = trace.records[trace.records["op"] == trace.op_names.index(name)]
    return np.sort(records, order="step")


TO, BACK = "copy to fake:0 for 'smooth'", "copy to host for 'encode'"


def test_copies_are_told_apart_and_waits_are_left_out(trace):
    assert trace.devices == {1: "fake:0"}
    shown = {trace.op_names[op] for op in trace.records["op"]}
    assert shown == {"decode", "smooth", "encode", TO, BACK}
    assert {name for name, copy in zip(trace.op_names, trace.copies, strict=True) if copy} == {TO, BACK}
    own = [name for name, added in zip(trace.op_names, trace.added, strict=True) if not added]
    assert own == ["decode", "smooth", "encode"]
    assert repr(trace) == f"<Trace: {5 * STEPS} records of {STEPS} steps on 1 thread, fake:0>"


def test_what_a_device_did_was_issued_before(trace):
    for name in ("smooth", TO, BACK):
        records = of(trace, name)
        assert (records["thread"] == 1).all()
        assert (records["issued"] > 0).all()
        assert (records["issued"] <= records["start"]).all()
    for name in ("decode", "encode"):
        assert (of(trace, name)["thread"] == 0).all()
        assert (of(trace, name)["issued"] == 0).all()


def test_work_of_a_device_begins_when_what_it_needs_is_done(trace):
    stages = [of(trace, name) for name in ("decode", TO, "smooth", BACK, "encode")]
    for before, after in pairwise(stages):
        assert (before["end"] <= after["start"]).all()
    for stage in stages:
        assert (stage["end"][:-1] <= stage["start"][1:]).all()


def test_host_and_device_overlap(trace):
    assert of(trace, "decode")["end"][1] <= of(trace, "smooth")["end"][0]


def test_profiles_have_the_same_times():
    lines = Lines()
    with fake.install(), ost.Machine(cpus=1) as machine, lines.graph.compile(machine) as program:
        run = program.submit(STEPS, profile=True)
        run.result(DEADLINE)
        for record in run.profile:
            assert record.ready <= record.start <= record.end
