"""The contract on variants for devices that `graph.tune` found to be wrong: none runs, and it is told why."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from beds import made
from measuring import tune

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(params=["fake", "opencl"])
def bed(request):
    with made(request.param) as bed:
        yield bed


def doubling(bed, *factors):
    """A task that doubles, with a variant for devices that multiplies by each factor."""

    @ost.task
    def double(x: ost.Read, y: ost.Write):
        y[:] = x * 2

    def multiplying(factor):
        def there(x: ost.Read, y: ost.Write, stream: ost.Stream):
            bed.enqueue("scale", stream, (x, y), factor)

        return there

    for factor in factors:
        double.variant(on=bed.kind, name=f"by{factor}")(multiplying(factor))
    return double


def graph_of(task, on):
    x, y = np.arange(1, 9, dtype=np.int32), np.zeros(8, np.int32)
    graph = ost.Graph()
    graph.task(task, x, y, on=on)
    return graph, x, y


def test_of_variants_that_are_all_wrong_none_runs(bed):
    double = doubling(bed, 3, 4)
    for on in (bed.kind, bed.name, bed.processor):
        graph, x, y = graph_of(double, on)
        report = tune(graph, bed.machine)[f"double on {bed.kind}"]
        assert [str(result.status) for result in report.results] == ["wrong_result"] * 2
        with pytest.raises(ost.GraphError) as raised:
            graph.compile(bed.machine)
        told = str(raised.value)
        assert told.startswith("'double' at test_costs_devices.py:")
        for by in (3, 4):
            assert f"by{by}: wrong_result: " in told
            assert f"at index (0,) it gives {by} instead of 2" in told
        assert not y.any()
    graph, x, y = graph_of(double, None)
    with graph.compile(bed.machine) as program:
        program.replay()
        assert f"no variant for {bed.kind} may run" in program.explain()
    assert y.tolist() == (2 * x).tolist()


def test_a_right_one_beside_wrong_ones_runs(bed):
    graph, x, y = graph_of(doubling(bed, 3, 2), bed.kind)
    tune(graph, bed.machine, budget=ost.Budget(candidates=1))  # of which the right one is not measured
    with graph.compile(bed.machine) as program:
        program.replay()
    assert y.tolist() == (2 * x).tolist()
    y[:] = 0
    tune(graph, bed.machine)
    with graph.compile(bed.machine) as program:
        program.replay()
    assert y.tolist() == (2 * x).tolist()
