"""The contract on what is shown: one line for each object, and completion that offers public names only."""

from __future__ import annotations

import numpy as np

import ostinato as ost

MOST = 120


def objects() -> list[object]:
    @ost.task
    def add(x: ost.ReadWrite) -> None:
        x += 1

    x = np.zeros(3)
    with ost.capture() as graph:
        op = add(x)
    with ost.Machine(cpus=1) as machine:
        program = graph.compile(machine)
        run = program.submit(1, profile=True)
        run.result(60)
        spawned = machine.spawn(add, x)
        spawned.result(60)
        made = [graph, op, machine, machine.processors[0], machine.memories[0], program, run, spawned, run.profile]
        made += [program.verify(), program.trace(1), program.statistics, run.event]
        found = [(each, repr(each)) for each in made]
    loose = [ost.Barrier(2), ost.UserEvent(), ost.Reservation(), ost.param("a", 1), ost.step, ost.ring(x, x.copy())]
    loose += [add, ost.Read, ost.Space({"a": [1, 2]}), ost.Budget(), ost.Policy(), ost.MachineModel(cores=4)]
    loose += [ost.merge(), ost.token([1]), ost.Candidate.command(["./a"], {"b": 1})]
    return found + [(each, repr(each)) for each in loose]


def test_one_line_for_each_object() -> None:
    for each, shown in objects():
        assert "\n" not in shown, type(each)
        assert len(shown) <= MOST, shown


def test_reports_and_results_are_one_line() -> None:
    candidate = ost.Candidate.command(["./a"], {"tile": list(range(100))})
    result = ost.Result(candidate=candidate, op="matmul", status=ost.Status.OK, samples=(1.0,) * 1000, time_ns=1.0)
    report = ost.Report(op="matmul", key={}, policy=ost.Policy(), best=result, ties=(), results=(result,) * 50)
    assert repr(result) == "<Result of matmul: ok, 1 ns>"
    assert repr(report) == "<Report of 50 results, best <Result of matmul: ok, 1 ns>>"


def test_one_of_something_is_singular() -> None:
    x = np.zeros(3)
    graph = ost.Graph()
    graph.fill(x, 1.0)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        assert repr(graph) == "<Graph of 1 op>"
        assert repr(program) == "<Program of 1 op on 1 lane>"


def test_completion_offers_what_is_documented() -> None:
    assert dir(ost) == sorted(ost.__all__)


@ost.task
def _add(x: ost.ReadWrite):
    x += 1


def offered(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def test_tasks_and_graphs_complete_to_public_names_only():
    assert offered(_add) == {"blocking", "launch_only", "name", "pure", "releases_gil", "variant", "variants"}
    methods = (
        "acquire arrive compile copy draw edge fill postcondition precondition release ring subgraph task to_dot tune "
        "until wait"
    )
    assert offered(ost.Graph()) == {*methods.split(), "edges", "infer", "ops", "param", "params"}


def test_a_tuner_completes_to_public_names_only():
    with ost.Tuner("sim:a", store=False) as tuner:
        assert offered(tuner) == {"close", "tune"}
