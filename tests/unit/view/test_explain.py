"""explain: what it says of small graphs."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ostinato as ost
import programs
from support.interpreter import needs_lock

MIX = programs.native_mix((3, 1), 0, 0)
FILL = programs.native_mix((2,), 0, 0)


@pytest.fixture
def machine():
    with ost.Machine(cpus=2) as machine:
        yield machine


@pytest.fixture
def arrays():
    return [np.zeros(4, np.int64) for _ in range(4)]


@ost.task
def grow(x: ost.ReadWrite):
    x += 1


@ost.task
def join(x: ost.Read, y: ost.ReadWrite):
    y += x


def explained(graph, machine, **options):
    with graph.compile(machine, **options) as program:
        text = program.explain()
        assert program.explain() == text
    with graph.compile(machine, **options) as again:
        assert again.explain() == text
    return text


def test_lanes_costs_and_critical_path(machine, arrays):
    a, b, c, _ = arrays
    graph = ost.Graph()
    first = graph.task(FILL, a, name="first", on="cpu:0")
    graph.task(FILL, b, name="other", on="cpu:1")
    graph.task(MIX, c, a, name="second", on="cpu:1")
    text = explained(graph, machine, costs={"first": 2e-3, "second": 1e-3})
    assert text.startswith("3 ops on 2 lanes, for 2 processors\n")
    assert "lane 0 (cpu:0, pinned): 1 op, " in text
    assert "2 ms a step: first\n" in text
    assert "2 ms in 1 op 'first', given" in text
    assert "in 1 op 'other', estimated" in text
    assert "Critical path of a step, estimated: 2 ops, 3 ms\n" in text
    assert f"first at {first.call_site}, 2 ms\n" in text
    assert "within a step" in text
    assert "on the step before" in text
    assert "no lane gets 32 steps ahead of another" in text


def test_distances_are_counted(machine, arrays):
    graph = ost.Graph(infer=False)
    op = graph.task(FILL, arrays[0])
    graph.edge(op, op, 1)
    graph.edge(op, op, 5)
    text = explained(graph, machine)
    assert "  1 on the step before\n  1 on 5 steps before\n" in text
    assert "within a step" not in text


@needs_lock
def test_python_ops_that_share_a_lane_because_of_the_gil_are_named(machine, arrays):
    with ost.capture() as graph:
        for array in arrays:
            grow(array)
        join(arrays[0], arrays[1])
    text = explained(graph, machine)
    assert "5 Python ops hold the GIL and take turns on one lane: 4 x grow, join." in text


def test_many_names_and_long_paths_are_folded(machine, arrays):
    graph = ost.Graph()
    for i in range(20):
        graph.task(FILL, arrays[0], name=f"op{i}")
    text = explained(graph, machine)
    assert "op0, op1, op10, op11, op12, op13, and 14 names more\n" in text
    assert "\n  ... 8 more ...\n" in text


def test_steps_that_do_not_overlap(machine, arrays):
    graph = ost.Graph(infer=False)
    op = graph.task(FILL, arrays[0])
    text = explained(graph, machine)
    assert "each step begins when the one before has ended" in text
    assert "the barrier between steps" in text
    graph.edge(op, op, 1)
    assert "each step begins" not in explained(graph, machine)


def test_until(machine, arrays):
    with ost.capture() as graph:
        grow(arrays[0])
        stop = ost.until(arrays[0][:1], every=3)
    assert f"every 3 steps, all lanes wait for until at {stop.call_site} before" in explained(graph, machine)


def test_why_there_is_one_lane(arrays):
    graph = ost.Graph()
    for array in arrays[1:]:
        graph.task(MIX, arrays[0], array)
    with ost.Machine(cpus=1) as machine:
        assert "on one lane: the machine has one processor" in explained(graph, machine)
    with ost.Machine(cpus=2) as machine:
        assert "on one lane: lanes=1 was asked for" in explained(graph, machine, lanes=1)
        assert "on one lane: by the model, two would be slower" in explained(graph, machine, costs={MIX: 1e-9})


def test_a_crowded_machine_is_told_once(arrays):
    graph = ost.Graph()
    graph.task(FILL, arrays[0])
    with ost.Machine(cpus=1) as machine:
        assert "never a livelock" not in explained(graph, machine)
    cpus = len(os.sched_getaffinity(0)) + 1
    with ost.Machine(cpus=cpus) as machine:
        assert explained(graph, machine).count(f"more processors ({cpus}) than there are cores: slower") == 1


def test_an_empty_graph(machine):
    assert explained(ost.Graph(), machine).startswith("0 ops on 1 lane")  # where its runs end
