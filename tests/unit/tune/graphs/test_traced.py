"""Costs from traces."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.costs import estimate
from ostinato.compiler.summary import summarize
from ostinato.runtime.trace import costing_of_trace, durations
from ostinato.view.trace import RECORD, Trace


@ost.task
def fill_with(target: ost.Write, value: float) -> None:
    target[...] = value


@ost.task
def add(source: ost.Read, target: ost.ReadWrite) -> None:
    target += source


def two_ops(size: int = 10) -> ost.Graph:
    a, b = np.zeros(size), np.zeros(size)
    with ost.capture() as graph:
        fill_with(a, 1.0)
        add(a, b)
    return graph


def trace_of(*taken: tuple[int, int], names: tuple[str, ...] = ("a", "b")) -> Trace:
    """A trace of ops that took so many ns, one step after the other."""
    records = np.zeros(len(taken), RECORD)
    for step, (op, ns) in enumerate(taken):
        records[step] = (op, step, 0, 0, 1000 * step, 1000 * step + ns, 0)
    return Trace(records, names, ("",) * len(names), ("cpu:0",))


def test_medians_and_spreads_replace_what_was_known() -> None:
    before = estimate(two_ops().ops)
    found = durations(trace_of((0, 100), (0, 100), (0, 400)), before, "traced")
    assert found.seconds[0] == pytest.approx(100e-9)
    assert found.spread[0] > 1
    assert found.seconds[1] == before.seconds[1]
    assert [found.sources[source] for source in found.source] == ["traced", "estimated"]


def test_durations_keep_earlier_sources_and_notes() -> None:
    given = durations(trace_of((0, 100)), estimate(two_ops().ops)._replace(notes=("a note",)), "given")
    found = durations(trace_of((1, 50)), given, "traced")
    assert [found.sources[source] for source in found.source] == ["given", "traced"]
    assert found.notes == ("a note",)


def test_unsteady_ops_count_as_varied() -> None:
    steady, unsteady = [(0, 100), (1, 100)] * 20, [(0, 100), (1, 100), (0, 900), (1, 900)] * 10
    costs = estimate(two_ops().ops)
    assert not durations(trace_of(*steady), costs, "traced").varied
    assert durations(trace_of(*unsteady), costs, "traced").varied


def test_a_graph_is_compiled_with_the_costs_of_its_trace() -> None:
    graph = two_ops()
    with ost.Machine(cpus=2, gpus=0) as machine:
        with graph.compile(machine) as program:
            trace = program.trace(20)
        with graph.compile(machine, costs=trace) as program:
            assert program.explain().count(", traced") == 2
            program.replay(3)


def test_a_trace_of_another_graph_is_refused() -> None:
    graph = two_ops()
    with ost.Machine(cpus=1, gpus=0) as machine, graph.compile(machine) as program:
        trace = program.trace()
        other = ost.Graph()
        other.fill(np.zeros(3), 1.0)
        with pytest.raises(ValueError, match="another graph"):
            other.compile(machine, costs=trace)


def test_costs_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match="a Trace, got 3"):
        two_ops().compile(costs=3)


def test_a_trace_of_no_steps_says_nothing() -> None:
    graph = two_ops()
    with (
        ost.Machine(cpus=1, gpus=0) as machine,
        graph.compile(machine) as program,
        graph.compile(machine, costs=program.trace(0)) as again,
    ):
        assert ", estimated" in again.explain()


@ost.task
def double(values: ost.ReadWrite) -> None:
    values *= 2


@double.variant(config={"pieces": 2})
def double_in_pieces(values: ost.ReadWrite, pieces: int) -> None:
    for piece in np.array_split(values, pieces):
        piece *= 2


def test_a_graph_runs_the_variants_that_were_traced() -> None:
    graph = ost.Graph()
    graph.task(double, np.ones(4))
    records = np.array([(0, 0, 0, 0, 0, 5000, 0)], RECORD)
    site = str(graph.ops[0].call_site)
    for label, chosen in (("double_in_pieces(pieces=2)", double.variants[0]), ("", None)):
        ran = Trace(records, ["double"], [site], ["cpu:0"], op_variants=[label])
        ops, costs, _ = costing_of_trace(ran)(summarize(graph.ops))
        assert ops[0].variant is chosen
        assert costs.seconds[0] == pytest.approx(5e-6)
    with pytest.raises(ValueError, match="that are declared, got"):
        costing_of_trace(Trace(records, ["double"], [site], ["cpu:0"], op_variants=["gone"]))(summarize(graph.ops))


def test_explain_names_variants_whatever_the_source_of_costs() -> None:
    graph = ost.Graph()
    graph.task(double, np.ones(4))
    ran = Trace(
        np.array([(0, 0, 0, 0, 0, 5000, 0)], RECORD),
        ["double"],
        [str(graph.ops[0].call_site)],
        ["cpu:0"],
        op_variants=["double_in_pieces(pieces=2)"],
    )
    with ost.Machine(cpus=1, gpus=0) as machine, graph.compile(machine, costs=ran) as program:
        assert "1 op 'double', traced, variant double_in_pieces(pieces=2)" in program.explain()
        program.retune(200)
        assert ", traced, variant double_in_pieces(pieces=2)" in program.explain()
