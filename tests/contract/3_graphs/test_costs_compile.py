"""The contract on `compile(costs=)`: what ops take, where that is known from, and what follows from it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from costed import apart, costs_of, explained, lines_with, many, scale, two_ops
from naming import stable_repr

pytestmark = pytest.mark.usefixtures("places")


# A mapping


def test_seconds_by_op_task_and_name(machine):
    graph = two_ops()
    text = explained(graph, machine, {graph.ops[0]: 3e-3, scale: 5e-3, "clear": 7e-3})
    assert [("8 ms" in line, "7 ms" in line, "given" in line) for line in costs_of(text)] == [
        (True, False, True),  # both ops of one name: 3 and 5
        (False, True, True),
    ]


def test_what_is_not_given_is_estimated(machine):
    graph = two_ops()
    text = explained(graph, machine, {graph.ops[0]: 3e-3})
    assert any("scale" in line and "given" in line for line in text.splitlines())
    assert any("scale" in line and "estimated" in line for line in text.splitlines())
    assert any("clear" in line and "estimated" in line for line in text.splitlines())


@pytest.mark.parametrize(
    "costs", [{}, MappingProxyType({scale: 1e-3}), {scale: 0}, {scale: np.float64(1e-3)}], ids=stable_repr
)
def test_any_mapping_and_any_number(machine, costs):
    explained(two_ops(), machine, costs)


def test_functions_native_tasks_and_plain_callables(machine):
    def plain(x):
        x += 1

    graph = ost.Graph()
    graph.task(plain, np.zeros(3), access=(ost.ReadWrite,))
    assert lines_with(explained(graph, machine, {plain: 2e-3}), "given")


def test_a_kernel(machine):
    pytest.importorskip("numba")

    @ost.kernel
    def double(x: ost.ReadWrite):
        for i in range(x.size):
            x[i] *= 2

    graph, _ = many(2, double)
    assert lines_with(explained(graph, machine, {double: 2e-3}), "given")


def test_a_task_of_a_nested_graph_and_an_op_of_it(machine):
    inner = two_ops()
    outer = ost.Graph()
    outer.subgraph(inner)
    outer.subgraph(inner)
    assert lines_with(explained(outer, machine, {scale: 2e-3}), "given")
    assert lines_with(explained(outer, machine, {inner.ops[0]: 2e-3}), "given")


@pytest.mark.parametrize("cost", [-1e-9, float("nan"), float("inf"), -float("inf")], ids=stable_repr)
def test_costs_are_finite_and_not_negative(machine, cost):
    with pytest.raises(ValueError, match="scale"):
        two_ops().compile(machine, costs={scale: cost})


@pytest.mark.parametrize("cost", ["x", None, [1], 1j, object()], ids=stable_repr)
def test_costs_are_numbers(machine, cost):
    with pytest.raises((TypeError, ValueError)):
        two_ops().compile(machine, costs={scale: cost})


def test_what_the_graph_does_not_have_is_refused(machine):
    @ost.task
    def another(x: ost.ReadWrite):
        """Does nothing."""

    for key in ("nothing", another, two_ops().ops[0], 3, object()):
        with pytest.raises((TypeError, ValueError)):
            two_ops().compile(machine, costs={key: 1e-3})


@pytest.mark.parametrize("costs", [3, 1.5, [1, 2], object(), b"path", True], ids=stable_repr)
def test_other_costs_are_refused(machine, costs):
    with pytest.raises((TypeError, ValueError), match="costs"):
        two_ops().compile(machine, costs=costs)


def test_it_is_a_keyword(machine):
    with pytest.raises(TypeError):
        two_ops().compile(machine, {scale: 1e-3})


# A trace


def test_a_trace_of_the_same_graph(machine):
    graph = two_ops()
    with graph.compile(machine) as program:
        trace = program.trace(20)
    text = explained(graph, machine, trace)
    assert len(costs_of(text)) == 2
    assert all("traced" in line for line in costs_of(text))


def test_a_trace_of_another_machine(machine):
    graph = two_ops()
    with ost.Machine(cpus=2, gpus=0) as other, graph.compile(other) as program:
        trace = program.trace(5)
    assert lines_with(explained(graph, machine, trace), "traced")


def test_a_trace_says_what_ops_took(machine):
    @ost.task
    def nap(x: ost.ReadWrite):
        time.sleep(0.02)

    graph, _ = many(1, nap)
    with graph.compile(machine) as program:
        trace = program.trace(3)
    (line,) = lines_with(explained(graph, machine, trace), "traced")
    assert "ms" in line


def test_a_trace_of_a_nested_graph(machine):
    inner, outer = two_ops(), ost.Graph()
    outer.subgraph(inner)
    with outer.compile(machine) as program:
        trace = program.trace(5)
    assert lines_with(explained(outer, machine, trace), "traced")


def test_a_trace_of_no_steps_knows_nothing(machine):
    graph = two_ops()
    with graph.compile(machine) as program:
        trace = program.trace(0)
    assert lines_with(explained(graph, machine, trace), "estimated")


def test_a_trace_of_another_graph(machine):
    with two_ops().compile(machine) as program:
        trace = program.trace(2)
    with pytest.raises(ValueError, match="another graph"):
        many(2)[0].compile(machine, costs=trace)


# A store


def test_without_a_store_costs_are_estimated_and_no_file_is_made(machine):
    text = explained(two_ops(), machine, None)
    assert lines_with(text, "estimated")
    assert not Path(os.environ["OSTINATO_CACHE_DIR"], "tune.db").exists()


def test_without_a_store_no_database_is_looked_into(user):
    process = user(
        """
        import sys
        import numpy as np
        import ostinato as ost

        graph = ost.Graph()
        graph.fill(np.zeros(3), 1.0)
        graph.fill(np.zeros(3), 1.0)
        with ost.Machine(cpus=1, gpus=0) as machine, graph.compile(machine) as program:
            program.replay()
        print("sqlite3" in sys.modules)
        """
    )
    out, errors = process.communicate(timeout=60)
    assert out == "False\n", errors


# What follows from costs


def lanes(text):
    return int(text.split(" lane", 1)[0].rsplit(" ", 1)[1])


def test_long_tasks_get_lanes_and_tiny_ones_share_one():
    arrays = [np.zeros(4) for _ in range(4)]
    with ost.capture() as graph:
        for _ in range(3):
            for array in arrays:
                apart(array)
            for left, right in zip(arrays, arrays[1:] + arrays[:1], strict=True):
                graph.copy(left, right)
    with ost.Machine(cpus=2, gpus=0) as machine:
        assert lanes(explained(graph, machine, {apart: 1e-3, "copy": 1e-9})) > 1
        assert lanes(explained(graph, machine, {apart: 1e-9, "copy": 1e-9})) == 1
        assert lanes(explained(graph, machine, {apart: 1e-3, "copy": 1e-9}, lanes=1)) == 1


@settings(max_examples=30)
@given(
    calls=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0.0, 1e-9, 3e-7, 1e-5, 1e-3, 10.0])),
        min_size=1,
        max_size=12,
    )
)
@pytest.mark.parametrize("cpus", [1, 2, 4])
def test_whatever_the_costs_the_result_is_that_of_a_loop(cpus, calls):
    arrays = [np.full(3, float(n + 1)) for n in range(5)]
    expected = [array.copy() for array in arrays]

    @ost.task(releases_gil=True)
    def mix(src: ost.Read, dst: ost.ReadWrite):
        dst *= 0.5
        dst += src[::-1]

    def mixed(src, dst):
        dst *= 0.5
        dst += src[::-1]

    with ost.capture() as graph:
        ops = [mix(arrays[src], arrays[dst]) for src, dst, _ in calls]
    for _ in range(3):
        for src, dst, _ in calls:
            mixed(expected[src], expected[dst])
    costs = {op: cost for op, (_, _, cost) in zip(ops, calls, strict=True)}
    with ost.Machine(cpus=cpus, gpus=0) as machine, graph.compile(machine, costs=costs) as program:
        program.replay(3)
        program.explain()
    assert [array.tolist() for array in arrays] == [array.tolist() for array in expected]
