"""Random programs give what running their ops one after the other gives, bit by bit."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings

import ostinato as ost
import programs
from ostinato.runtime.sequential import run_sequentially

EXAMPLES = int(os.environ.get("OSTINATO_EXAMPLES", "300"))


@pytest.fixture(scope="module")
def machines():
    found = {cpus: ost.Machine(cpus=cpus) for cpus in (1, 2, 3, 4)}
    yield found
    for machine in found.values():
        machine.close()


@settings(max_examples=EXAMPLES, derandomize="OSTINATO_EXAMPLES" not in os.environ)
@given(recipe=programs.recipes())
def test_random_programs_equal_sequential_execution(machines, recipe):
    graph, costs = programs.build(recipe)
    programs.start()
    steps = replayed(recipe, graph, costs, machines[recipe.cpus])
    result = programs.state()

    programs.start()
    expected, first = [], 0
    for _, count, seed in recipe.runs:
        expected.append(run_sequentially(graph.ops, count, first, None, programs.parameters(seed)))
        first += expected[-1]
    assert steps == expected
    assert result == programs.state()


def replayed(recipe, graph, costs, machine):
    """Run the program, runs overlapping where they may, and return how many steps each had."""
    with graph.compile(machine, lanes=recipe.lanes, costs=costs) as program:
        runs = []
        for how, count, seed in recipe.runs:
            values = programs.parameters(seed)
            runs.append(program.submit(count, **values) if how == "submit" else program.replay(count, **values))
        return [run if isinstance(run, int) else ended(run) for run in runs]


def ended(run):
    try:
        return run.result(60)
    except TimeoutError:
        pytest.fail(f"the run hangs:\n{run.stuck()}")
