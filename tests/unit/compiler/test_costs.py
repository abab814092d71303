"""How long ops take, as far as the compiler knows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ostinato.compiler.costs import BYTE, NATIVE_CALL, PYTHON_CALL, Costing, Costs, cost_as_given, cost_by_estimate
from ostinato.compiler.summary import summarize
from ostinato.graph.access import Read, ReadWrite, Write
from ostinato.graph.graph import Graph
from ostinato.graph.kernel import kernel
from ostinato.graph.native import native
from ostinato.graph.ring import ring
from ostinato.graph.task import task


@task
def halve(src: Read, dst: Write):
    dst[...] = src / 2


def costs_of(graph: Graph, costing: Costing = cost_by_estimate) -> Costs:
    return costing(summarize(graph.ops)).costs


def two_ops() -> Graph:
    graph = Graph()
    array = np.zeros(1000)
    graph.task(halve, array, ring(array.copy(), array.copy())[0])
    graph.fill(array, 1.0, name="clear")
    return graph


def test_estimates_count_bytes() -> None:
    costs = costs_of(two_ops())
    assert costs.seconds == pytest.approx([PYTHON_CALL + 16000 * BYTE, NATIVE_CALL + 8000 * BYTE])
    assert not costs.measured.any()


def test_costs_by_op_task_and_name() -> None:
    graph = two_ops()
    assert costs_of(graph, cost_as_given({halve: 1e-3, "clear": 2e-3})).seconds.tolist() == [1e-3, 2e-3]
    assert costs_of(graph, cost_as_given({graph.ops[0]: 3e-3, halve: 1e-3, "halve": 4e-3})).seconds[0] == 3e-3
    assert costs_of(graph, cost_as_given({halve.function: 1e-3})).measured.tolist() == [True, False]


def test_costs_of_native_tasks() -> None:
    add = native(0x1000, (Read, float), name="add")
    graph = Graph()
    graph.task(add, np.zeros(3), 1.0)
    assert costs_of(graph, cost_as_given({add: 1e-3})).seconds.tolist() == [1e-3]


def test_costs_of_kernels() -> None:
    pytest.importorskip("numba")

    @kernel
    def double(dst: ReadWrite):
        for i in range(dst.shape[0]):
            dst[i] *= 2

    graph = Graph()
    graph.task(double, np.zeros(3))
    graph.task(double, np.zeros(3, np.int64))
    assert costs_of(graph, cost_as_given({double: 1e-3})).seconds.tolist() == [1e-3, 1e-3]


def test_varied_is_about_measured_costs() -> None:
    graph = two_ops()
    graph.fill(np.zeros(1), 0.0, name="small")
    graph.fill(np.zeros(10**6), 0.0, name="large")
    assert not costs_of(graph).varied
    assert not costs_of(graph, cost_as_given({"small": 1.0})).varied
    assert costs_of(graph, cost_as_given({"clear": 1.0, "small": 1.0, "large": 5.0})).varied


@pytest.mark.parametrize("cost", [-1e-9, math.inf, math.nan])
def test_a_cost_is_a_finite_number_of_seconds(cost: float) -> None:
    with pytest.raises(ValueError, match="'clear'"):
        costs_of(two_ops(), cost_as_given({"clear": cost}))


def test_what_is_not_in_the_graph_has_no_cost() -> None:
    with pytest.raises(ValueError, match="'claer'"):
        costs_of(two_ops(), cost_as_given({"claer": 1.0, halve: 1.0}))
    with pytest.raises(ValueError, match="must name ops"):
        costs_of(two_ops(), cost_as_given({two_ops().ops[0]: 1.0}))


def test_an_empty_graph() -> None:
    assert len(costs_of(Graph()).seconds) == 0


@pytest.mark.parametrize("cost", ["fast", [1.0]])
def test_a_cost_is_a_number(cost: object) -> None:
    with pytest.raises(TypeError, match=r"'halve'. must be a number of seconds, got"):
        cost_as_given({"halve": cost})  # type: ignore[dict-item]


def test_what_tune_returned_is_no_costs(tmp_path: Path) -> None:
    reports = two_ops().tune(store=tmp_path / "store.db", budget=1e-9, progress=False)
    with pytest.raises(TypeError, match="leave costs= out"):
        two_ops().compile(costs=reports)  # type: ignore[arg-type]
