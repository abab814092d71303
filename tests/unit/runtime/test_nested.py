"""Programs of graphs within graphs do what these say line by line."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.graph.body import Join


@ost.task
def mix(src: ost.Read, dst: ost.ReadWrite, factor):
    dst *= 3
    dst += src * factor


@ost.task
def fail_if(dst: ost.ReadWrite, wanted):
    dst += 1
    if wanted:
        raise ValueError("as asked")


class Made:
    """A graph, and the same as a function of its parameter."""

    def __init__(self, draw, line, known):
        self.graph = ost.Graph()
        self.default = draw(st.integers(0, 9))
        self.lines = []
        x = self.graph.param("x", self.default, operator.add)
        for _ in range(draw(st.integers(1, 4))):
            constant = draw(st.booleans())
            value = draw(st.integers(0, 9))
            given_value = value if constant else x
            if known and draw(st.booleans()):
                inner = draw(st.sampled_from(known))
                self.graph.subgraph(inner.graph, {"x": given_value})
                self.lines.append((inner, constant, value))
            else:
                src, dst = draw(st.integers(0, 3)), draw(st.integers(0, 3))
                self.graph.task(mix, line[src : src + 2], line[dst + 2 : dst + 4], given_value)
                self.lines.append(((src, dst), constant, value))

    def run(self, line, given_value=None):
        x = self.default if given_value is None else self.default + given_value
        for what, constant, value in self.lines:
            argument = value if constant else x
            if isinstance(what, Made):
                what.run(line, argument)
            else:
                src, dst = what
                mix(line[src : src + 2], line[dst + 2 : dst + 4], argument)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_replay_equals_the_graphs_line_by_line(machine, data) -> None:
    line, expected = np.arange(8), np.arange(8)
    known = []
    for _ in range(data.draw(st.integers(1, 4))):
        known.append(Made(data.draw, line, known))
    with known[-1].graph.compile(machine) as program:
        program.replay(2, x=5)
        program.replay(1)
    for given_value in (5, 5, None):
        known[-1].run(expected, given_value)
    assert line.tolist() == expected.tolist()


@pytest.fixture
def nested():
    """A graph with everything in it that acts outside, nested once."""
    a, b = np.zeros(2), np.ones(2)
    barrier, reservation = ost.Barrier(1), ost.Reservation()
    inner = ost.Graph()
    held = inner.acquire(reservation, after=inner.precondition("ready"))
    first = inner.task(mix, b, a, inner.param("x", 1), after=held)
    inner.release(reservation, after=first)
    second = inner.task(ost.task(mix.function, blocking=True), a, b, 2, after=inner.wait(barrier, after=first))
    inner.postcondition("done", after=second)
    graph = ost.Graph()
    graph.arrive(barrier)
    op = graph.subgraph(inner, {"x": graph.param("y", 3)}, {"ready": graph.precondition("go")})
    graph.postcondition("end", after=op.posts["done"])
    return graph, a, b, barrier


def test_verify_leaves_alone_what_is_outside(machine, nested) -> None:
    graph, a, b, barrier = nested
    never = ost.UserEvent()
    with graph.compile(machine) as program:
        program.verify(3, after={"go": never}, y=4)
        assert (a.tolist(), b.tolist(), barrier.phase) == ([0, 0], [1, 1], 0)
        with pytest.raises(ValueError, match="'went'"):
            program.verify(after={"went": never})
        never.trigger()
        assert program.submit(2, after={"go": never}).result(60) == 2
    assert barrier.phase == 2
    expected_a, expected_b = np.zeros(2), np.ones(2)
    for _ in range(2):
        expected_a = expected_a * 3 + expected_b * 3
        expected_b = expected_b * 3 + expected_a * 2
    assert (a.tolist(), b.tolist()) == (expected_a.tolist(), expected_b.tolist())


def test_verify_finds_what_a_blocking_task_does_not_declare(machine) -> None:
    hidden = np.zeros(2)

    @ost.task(blocking=True)
    def sneak(dst: ost.Write):
        dst[...] = 1
        hidden[...] += 1

    inner, graph = ost.Graph(), ost.Graph()
    inner.task(sneak, np.zeros(2))
    inner.task(mix, hidden, np.zeros(2), 1)
    graph.subgraph(inner)
    with graph.compile(machine) as program, pytest.raises(ost.ContractError, match="'sneak'"):
        program.verify()


@pytest.mark.parametrize("rebound", [False, True])
def test_failures_name_the_op_that_was_recorded(machine, rebound) -> None:
    a = np.zeros(2)
    inner, graph = ost.Graph(), ost.Graph()
    op = inner.task(fail_if, a, inner.param("wanted", False))
    graph.subgraph(inner)
    graph.subgraph(inner, {"wanted": graph.param("wanted", True)})
    with graph.compile(machine) as program:
        if rebound:
            program.rebind([(a, np.zeros(2))])
        with pytest.raises(ost.TaskError) as failed:
            program.replay()
        assert failed.value.op is op
        with pytest.raises(ost.TaskError) as failed:
            program.verify()
        assert failed.value.op is op
        assert program.replay(2, wanted=False) == 2


def test_poison_goes_through_the_ends_of_nested_graphs(machine) -> None:
    inner, graph = ost.Graph(infer=False), ost.Graph(infer=False)
    arrays = np.zeros((9, 2))
    for row in range(3):
        inner.task(fail_if, arrays[row], inner.param("wanted", False) if row == 0 else False)
    first = graph.subgraph(inner, {"wanted": graph.param("wanted", True)})
    for row in range(3, 6):
        graph.task(fail_if, arrays[row], False, after=first)
    for row in range(6, 9):
        graph.task(fail_if, arrays[row], False)
    with graph.compile(machine) as program:
        assert any(isinstance(op.body, Join) for op in program._engine.executable.step.nodes)
        run = program.submit(3, on_error="continue")
        assert isinstance(run.exception(10), ost.TaskError)
        assert arrays[:, 0].tolist() == [3, 3, 3, 0, 0, 0, 3, 3, 3]
        assert program.replay(2, wanted=False) == 2
        assert arrays[:, 0].tolist() == [5, 5, 5, 2, 2, 2, 5, 5, 5]


def test_a_rebound_program_still_acts_outside(machine, nested) -> None:
    graph, a, _, barrier = nested
    done = ost.merge()
    with graph.compile(machine) as program:
        program.rebind([(a, np.zeros(2))])
        assert program.submit(2, after={"go": done}).result(60) == 2
    assert barrier.phase == 2
    assert not a.any()
