"""From a graph to a program."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ostinato.choices import Runs
from ostinato.one_line import brief
from ostinato.runtime.arguments import checked_runs, threads_for
from ostinato.runtime.costing import CostsArgument, costing_of
from ostinato.runtime.machine import Machine, default_machine
from ostinato.runtime.program import Program

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph

__all__ = ["compile_graph"]


def compile_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    costs: CostsArgument = None,
) -> Program:
    """Compile a graph; see `Graph.compile`."""
    if machine is None:
        machine = default_machine()
    if not isinstance(machine, Machine):
        raise TypeError(f"machine must be an ostinato.Machine, got {brief(machine)}")
    machine._check_open()
    threads = threads_for(machine._cpus, lanes)
    # As in captures: nearly all that is made stays, so Python's cycle collector would look through it in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return Program(graph, machine, threads, costing_of(costs), checked_runs(runs))
    finally:
        if collecting:
            gc.enable()
