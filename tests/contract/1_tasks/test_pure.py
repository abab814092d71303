"""The contract on tasks with `pure=False`: who calls them, and what `verify` leaves out."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from support import fake_device as fake

N = 3


@ost.task
def add(x: ost.ReadWrite):
    x += 1


@ost.task
def double(src: ost.Read, dst: ost.Write):
    np.multiply(src, 2, out=dst)


@pytest.fixture
def calls():
    return []


@pytest.fixture
def log(calls):
    @ost.task(pure=False)
    def log(x: ost.ReadWrite):
        x += 10
        calls.append(x.copy())

    return log


def program_of(log, machine):
    """A task before the impure one, one after it, and one beside it."""
    before, after, beside = (np.zeros(N) for _ in range(3))
    graph = ost.Graph()
    graph.task(add, before)
    graph.task(log, before)
    graph.task(double, before, after)
    graph.task(add, beside)
    return graph.compile(machine), (before, after, beside)


def test_replays_spawns_and_eager_calls_call_it(log, calls, machine):
    program, (before, after, _) = program_of(log, machine)
    program.replay(2)
    assert len(calls) == 2
    assert after.tolist() == (2 * before).tolist() == [44.0] * N
    machine.spawn(log, before).result()
    log(before)
    assert len(calls) == 4


def test_verify_leaves_it_and_what_depends_on_it_out_and_says_so(log, calls, machine):
    program, arrays = program_of(log, machine)
    report = program.verify(3)
    assert calls == []
    assert not any(array.any() for array in arrays)
    assert report
    assert [op.name for op in report.impure] == ["log"]
    assert {op.name for op in report.dependent} == {"double", "add"}  # the next step's add comes after log
    text = str(report)
    assert "pure=False: 'log' at " in text
    assert "depend on these: " in text
    assert "'double'" in text
    assert report.operations == 1
    assert report.steps == 3


def test_verify_still_finds_what_is_wrong_beside_it(log, calls, machine):
    @ost.task
    def wrong(x: ost.Read, y: ost.Write):
        y[:-1] = x[:-1]

    graph = ost.Graph()
    graph.task(log, np.zeros(N))
    graph.task(wrong, np.zeros(N), np.zeros(N))
    with pytest.raises(ost.ContractError, match="wrong"):
        graph.compile(machine).verify()
    assert calls == []


def test_verify_of_everything_else_says_nothing_of_it(machine):
    graph = ost.Graph()
    graph.task(add, np.zeros(N))
    report = graph.compile(machine).verify(2)
    assert str(report) == "compared: 1 operation in 2 steps"
    assert (report.impure, report.dependent) == ((), ())


def test_native_tasks_copies_and_flags_after_it(log, calls, machine):
    kernel = pytest.importorskip("numba") and ost.kernel

    @kernel
    def scale(x: ost.ReadWrite):
        for i in range(len(x)):
            x[i] *= 3

    x, y, flag = np.ones(N), np.zeros(N), np.zeros(1)
    graph = ost.Graph()
    graph.task(log, x)
    graph.task(scale, x)
    graph.copy(x, y)
    graph.copy(x[:1], flag)
    graph.until(flag)
    program = graph.compile(machine)
    report = program.verify(4)
    assert calls == []
    assert [op.name for op in report.dependent] == ["scale"]
    assert (x.tolist(), y.tolist(), flag.tolist()) == ([1.0] * N, [0.0] * N, [0.0])
    assert program.replay(4) == 1
    assert y.tolist() == [33.0] * N


def test_in_a_nested_graph_and_after_a_rebind(log, calls, machine):
    x, y, z = (np.zeros(N) for _ in range(3))
    inner = ost.Graph()
    inner.task(log, x)
    graph = ost.Graph()
    graph.subgraph(inner)
    graph.subgraph(inner)
    graph.task(double, x, y)
    program = graph.compile(machine)
    program.rebind([(x, z)])
    report = program.verify(2)
    assert calls == []
    assert [op.name for op in report.impure] == ["log"]
    assert [op.name for op in report.dependent] == ["double"]


def test_on_a_device(calls):
    with fake.install(), ost.Machine(cpus=1) as machine:

        @ost.task(pure=False)
        def log(x: ost.ReadWrite, stream: ost.Stream):
            calls.append(stream)

        @ost.task
        def change(src: ost.Read, dst: ost.Write, stream: ost.Stream):
            fake.launch(stream, lambda a, b: np.multiply(a, 2, out=b), src, dst)

        x, y, a, b = np.ones(N), np.zeros(N), np.ones(N), np.zeros(N)
        graph = ost.Graph()
        graph.task(log, x)
        graph.task(change, x, y)
        graph.task(change, a, b)
        program = graph.compile(machine)
        report = program.verify(2)
        assert calls == []
        assert [op.name for op in report.impure] == ["log"]
        assert [op.name for op in report.dependent] == ["change"]
        assert (y.tolist(), b.tolist()) == ([0.0] * N, [0.0] * N)
        program.replay(2)
        assert len(calls) == 2
        assert b.tolist() == [2.0] * N
