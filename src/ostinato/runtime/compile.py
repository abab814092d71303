"""From a graph to a program."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ostinato.arguments import Runs
from ostinato.compiler.costs import Costing
from ostinato.runtime.arguments import check_runs, count_threads
from ostinato.runtime.machine import Machine, default_machine
from ostinato.runtime.program import Program
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.graph.capture import StepFunction
    from ostinato.graph.graph import Graph

__all__ = ["InStore", "compile_graph"]


class InStore:
    """A mapping of what the store has: compile finds it there, and not in the mapping."""


def compile_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    costing: Costing,
    step_function: StepFunction | None = None,
) -> Program:
    """Compile a graph with the costs and variants that a costing knows; see `Graph.compile`."""
    if machine is None:
        machine = default_machine()
    if not isinstance(machine, Machine):
        raise TypeError(f"machine must be an ostinato.Machine, got {brief(machine)}")
    machine.workers.check_open()
    threads = count_threads(machine.workers.cpus, lanes)
    # As in captures: nearly all that is made stays, so Python's cycle collector would look through it in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return Program(graph, machine, threads, costing, check_runs(runs), step_function)
    finally:
        if collecting:
            gc.enable()
