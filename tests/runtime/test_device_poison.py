"""Poison in random graphs with devices: exactly what depends on a failing task is skipped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.devices import fake

STEPS = 5


@st.composite
def plans(draw):
    """Ops by where they run, the array that each writes, and one that it reads; who fails, and when."""
    arrays = draw(st.integers(2, 4))
    op = st.tuples(st.sampled_from(["fake:0", "fake:0", "fake:1", None]), *(st.integers(0, arrays - 1),) * 2)
    ops = draw(st.lists(op, min_size=1, max_size=7))
    return arrays, ops, draw(st.integers(0, len(ops) - 1)), draw(st.integers(0, STEPS - 1)), draw(st.integers(1, 2))


def downstream(graph, op, step):
    """All (op, step) that come after one along the graph's edges."""
    edges = [(a.index, b.index, d) for a, b, d in graph.edges]
    found, waiting = set(), [(op, step)]
    while waiting:
        at, when = waiting.pop()
        for a, b, d in edges:
            after = b, when + d
            if a == at and after[1] < STEPS and after not in found:
                found.add(after)
                waiting.append(after)
    return found


def built(plan, fails_at, ran):
    """The graph of a plan, whose ops note that they ran."""
    count, ops, failing, when, _ = plan
    arrays = [np.zeros(2) for _ in range(count)]

    @ost.task
    def on_device(stream: ost.Stream, x: ost.ReadWrite, y: ost.Read, number, step):
        if fails_at == "issue" and (number, step) == (failing, when):
            raise ArithmeticError("cannot be issued")

        def kernel(a, b):
            if (number, step) == (failing, when):
                raise ArithmeticError("the device fails")
            ran.add((number, step))

        fake.launch(stream, kernel, x, y)

    @ost.task
    def on_host(x: ost.ReadWrite, y: ost.Read, number, step):
        if (number, step) == (failing, when):
            raise ArithmeticError("the host fails")
        ran.add((number, step))

    graph = ost.Graph()
    for number, (where, written, read) in enumerate(ops):
        task = on_host if where is None else on_device
        graph.task(task, arrays[written], arrays[read], number, ost.step, on=where)
    return graph


@settings(max_examples=120, deadline=None)
@given(plans())
def test_exactly_what_depends_on_a_failing_call_is_skipped(plan):
    _, ops, failing, when, cpus = plan
    ran: set[tuple[int, int]] = set()
    graph = built(plan, "issue", ran)
    with fake.install(count=2), ost.Machine(cpus=cpus) as machine, graph.compile(machine) as program:
        with pytest.raises(ost.TaskError) as raised:
            program.replay(STEPS, on_error="continue")
        assert raised.value.op is graph.ops[failing]
        assert raised.value.step == when
        skipped = {(failing, when)} | downstream(graph, failing, when)
        assert ran == {(op, step) for op in range(len(ops)) for step in range(STEPS)} - skipped
        ran.clear()
        assert program.replay(STEPS) == STEPS
        assert len(ran) == STEPS * len(ops)


@settings(max_examples=120, deadline=None)
@given(plans())
@example((2, [("fake:0", 0, 1), ("fake:0", 1, 1), ("fake:0", 0, 0), ("fake:1", 0, 0), (None, 1, 1)], 0, 0, 1))
def test_no_task_of_the_host_runs_on_what_a_device_failed_to_make(plan):
    _, ops, failing, when, cpus = plan
    ran: set[tuple[int, int]] = set()
    graph = built(plan, "device", ran)
    with fake.install(count=2), ost.Machine(cpus=cpus) as machine, graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay(STEPS, on_error="continue")
        skipped = downstream(graph, failing, when)
        assert not {(op, step) for op, step in ran if ops[op][0] is None} & skipped
        ran.clear()
        assert program.replay(STEPS) == STEPS
        assert len(ran) == STEPS * len(ops)
