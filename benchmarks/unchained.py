"""Memory over runs that nobody chains, and over spawned tasks: round after round, it must stay where it was."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.memory import resident_kib

_RUNS, _SPAWNS, _FIRST = 2000, 10**4, 10


def _empty() -> None:
    pass


def _graph(context: Context, ports: bool) -> ost.Graph:
    """Two rows of two ops, each of which comes after both of the row before."""
    graph = ost.Graph(infer=False)
    task = ost.native(context.kernels.empty, (float,))
    value = graph.param("x")
    before = [graph.precondition("a")] if ports else []
    row = [graph.task(task, value, after=before) for _ in range(2)]
    row = [graph.task(task, value, after=row) for _ in range(2)]
    if ports:
        graph.postcondition("b", row[0])
    return graph


def _submits(program: ost.Program) -> None:
    for run in [program.submit(x=float(i)) for i in range(_RUNS)]:
        run.result()


def _submits_with_ports(program: ost.Program) -> None:
    """Runs whose preconditions happen in reverse order where runs are independent, and whose postcondition is read."""
    events = [ost.UserEvent() for _ in range(_RUNS)]
    runs = [program.submit(after={"a": event}, x=float(i)) for i, event in enumerate(events)]
    ends = [run.posts["b"] for run in runs]
    for event in reversed(events):
        event.trigger()
    for end in ends:
        end.wait()
    for run in runs:
        run.result()


def _spawns(machine: ost.Machine) -> None:
    task = ost.task(_empty)
    for run in [machine.spawn(task) for _ in range(_SPAWNS)]:
        run.result()


def _measure(context: Context, case: str, contestant: str, once: Callable[[], None]) -> None:
    """Keep how much more memory each round leaves in use than the first ones, in which the heap settles."""
    kib = []
    for _ in range(_FIRST + (2 if context.quick else 10)):
        once()
        gc.collect()
        kib.append(resident_kib())
    grown = [more - kib[_FIRST - 1] for more in kib[_FIRST:]]
    context.rows.append(Row("unchained", case, contestant, f"KiB more than after {_FIRST}", tuple(grown), None))


def run(context: Context) -> None:
    """Run rounds of 2000 runs, and of ten thousand spawned tasks."""
    for runs in ("pipelined", "concurrent"):
        with _graph(context, ports=False).compile(context.machine, runs=runs) as program:
            _measure(context, f"rounds of {_RUNS} runs", runs, partial(_submits, program))
        with _graph(context, ports=True).compile(context.machine, runs=runs) as program:
            case = f"rounds of {_RUNS} runs with ports"
            _measure(context, case, runs, partial(_submits_with_ports, program))
    _measure(context, f"rounds of {_SPAWNS:,} tasks", "spawn", partial(_spawns, context.machine))
