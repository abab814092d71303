"""Random programs give what running their ops one after the other gives, bit by bit."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings

import ostinato as ost
import programs

MORE = int(os.environ.get("OSTINATO_MORE_EXAMPLES", "1"))
"""How many times more examples, and then others in each run; `make soak` sets it."""


def examples(count):
    return settings(max_examples=count * MORE, derandomize=MORE == 1)


@pytest.fixture(scope="module")
def machines():
    found = {cpus: ost.Machine(cpus=cpus, gpus=0) for cpus in (1, 2, 3, 4)}
    yield found
    for machine in found.values():
        machine.close()


@examples(400)
@given(recipe=programs.recipes(most_ops=4))
def test_small_programs_equal_sequential_execution(machines, recipe):
    compare(recipe, machines[recipe.cpus])


@examples(500)
@given(recipe=programs.recipes(most_ops=12))
def test_programs_equal_sequential_execution(machines, recipe):
    compare(recipe, machines[recipe.cpus])


@pytest.mark.slow
@examples(150)
@given(recipe=programs.recipes(most_ops=40))
def test_large_programs_equal_sequential_execution(machines, recipe):
    compare(recipe, machines[recipe.cpus])


@examples(150)
@given(recipe=programs.recipes(most_ops=8))
def test_programs_pass_their_own_verification(machines, recipe):
    graph, costs = programs.build(recipe)
    programs.start()
    before = programs.state()
    with graph.compile(machines[recipe.cpus], lanes=recipe.lanes, costs=costs) as program:
        program.verify(3, params=programs.parameters(recipe.runs[0].seed))
    programs.UNDECLARED.clear()  # what no task declares is no copy
    assert programs.state() == before


def compare(recipe, machine):
    graph, costs = programs.build(recipe)
    programs.start()
    steps = replayed(recipe, graph, costs, machine)
    assert (steps, programs.state()) == programs.sequential(recipe, graph)


def replayed(recipe, graph, costs, machine):
    """Run the program, runs overlapping where they may, and return how many steps each had."""
    with graph.compile(machine, lanes=recipe.lanes, costs=costs) as program:
        ends, bindings = [], programs.Bindings()
        for run in recipe.runs:
            if programs.uses(graph, run.rebinds):
                program.rebind([bindings.change(run.rebinds)])
            start = program.replay if run.waits else program.submit
            ends.append(start(run.steps, params=programs.parameters(run.seed)))
        return [end if isinstance(end, int) else steps_of(end) for end in ends]


def steps_of(run):
    try:
        return run.result(60)
    except TimeoutError:
        pytest.fail(f"the run hangs:\n{run.stuck()}")
