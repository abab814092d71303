"""The contract on `graph.tune`: what it calls, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from measuring import tune, variant

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


@pytest.fixture
def written(tmp_path):
    return tmp_path / "written.txt"


def append_to(path, pure=True):
    """A task that acts on more than its arguments."""

    @ost.task(pure=pure)
    def append(x: ost.ReadWrite):
        x += 1
        with open(path, "a") as file:
            file.write("called\n")

    return append


def graph_with(task):
    graph = ost.Graph()
    graph.task(task, np.zeros(4))
    return graph


def test_a_python_task_without_variants_is_not_called(machine, written):
    graph = graph_with(append_to(written))
    report = tune(graph, machine)["append"]
    assert not written.exists()
    assert report.best is None
    assert "everything=True" in report.results[0].message
    graph.compile(machine).replay(2)
    assert written.read_text() == "called\n" * 2


def test_everything_calls_it(machine, written):
    report = tune(graph_with(append_to(written)), machine, everything=True)["append"]
    assert written.exists()
    assert variant(report.best) == "append"


def test_what_everything_measured_is_known_without_a_call(machine, written):
    graph = graph_with(append_to(written))
    first = tune(graph, machine, everything=True)["append"].best
    lines = written.read_text()
    again = tune(graph, machine)["append"].best
    assert written.read_text() == lines
    assert (again.cached, again.samples) == (True, first.samples)


@pytest.mark.parametrize("everything", [False, True])
def test_a_task_that_is_not_pure_is_never_called(machine, written, everything):
    append = append_to(written, pure=False)

    @append.variant
    def quick(x: ost.ReadWrite):
        append(x)

    graph = graph_with(append)
    report = tune(graph, machine, everything=everything)["append"]
    assert not written.exists()
    assert "pure=False" in report.results[0].message
    graph.compile(machine).replay()
    assert written.read_text() == "called\n"


@pytest.mark.parametrize("everything", [False, True])
def test_a_variant_that_is_not_pure_is_never_called(machine, written, everything):
    @ost.task
    def add(x: ost.ReadWrite):
        x += 1

    @add.variant
    def quick(x: ost.ReadWrite):
        np.add(x, 1, out=x)

    add.variant(append_to(written, pure=False))
    report = tune(graph_with(add), machine, everything=everything)["add"]
    assert {variant(result) for result in report.results} == {"add", "quick"}
    assert not written.exists()


def test_tasks_with_variants_copies_and_fills_are_measured(machine, written):
    @ost.task
    def add(x: ost.ReadWrite):
        x += 1

    @add.variant
    def quick(x: ost.ReadWrite):
        np.add(x, 1, out=x)

    x, y = np.zeros(4), np.zeros(4)
    graph = ost.Graph()
    graph.task(add, x)
    graph.copy(x, y)
    graph.fill(x, 1.0)
    graph.task(append_to(written), y)
    reports = tune(graph, machine)
    assert list(reports) == ["add", "copy", "fill", "append"]
    assert [report.best is not None for report in reports.values()] == [True, True, True, False]
    assert not written.exists()


def test_kernels_and_native_tasks_are_measured(machine):
    pytest.importorskip("numba")

    @ost.kernel
    def add(x: ost.ReadWrite):
        for i in range(len(x)):
            x[i] += 1

    assert variant(tune(graph_with(add), machine)["add"].best) == "add"


def test_everything_is_true_or_false(machine, written):
    with pytest.raises(TypeError, match="everything must be True or False, got 'yes'"):
        tune(graph_with(append_to(written)), machine, everything="yes")
