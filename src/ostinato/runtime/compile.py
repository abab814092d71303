"""From a graph to a program."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ostinato.arguments import Runs
from ostinato.compiler.costs import Costing, given
from ostinato.runtime.arguments import checked_runs, threads_for
from ostinato.runtime.machine import Machine, default_machine
from ostinato.runtime.program import Program
from ostinato.runtime.trace import costing_of_trace
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.graph.capture import StepFunction
    from ostinato.graph.graph import Graph
    from ostinato.view.trace import Trace

__all__ = ["CostsArgument", "InStore", "compile_graph", "costing_of"]

CostsArgument: TypeAlias = "str | os.PathLike[str] | Mapping[object, float] | Trace | None"
"""What ``costs=`` takes: None for what the default store knows, a store's path, seconds by op or task, or a trace."""


class InStore:
    """A mapping of what the store has: compile finds it there, and not in the mapping."""


def costing_of(costs: CostsArgument) -> Costing:
    """Return the costing that ``costs=`` asks for.

    Raises
    ------
    TypeError
        It is nothing of the kind, or a cost is no number.
    ValueError
        A cost is negative or not finite.
    TuningError
        There is no store at the path.
    """
    if isinstance(costs, Mapping):
        if isinstance(costs, InStore):
            raise TypeError(
                "costs= is what graph.tune returned; that is in the store, which compile asks by default: leave costs= "
                "out, or name the file that tune was given as store="
            )
        return given(costs)
    if costs is None or isinstance(costs, str | os.PathLike):
        from ostinato.tune.graphs import costing

        return costing(costs)
    from ostinato.view.trace import Trace

    if isinstance(costs, Trace):
        return costing_of_trace(costs)
    raise TypeError(
        "costs must be None, the path of a store, a mapping from ops or tasks to seconds, or a Trace, "
        f"got {brief(costs)}"
    )


def compile_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    costs: CostsArgument = None,
    step_function: StepFunction | None = None,
) -> Program:
    """Compile a graph; see `Graph.compile`."""
    if machine is None:
        machine = default_machine()
    if not isinstance(machine, Machine):
        raise TypeError(f"machine must be an ostinato.Machine, got {brief(machine)}")
    machine.workers.check_open()
    threads = threads_for(machine.workers.cpus, lanes)
    # As in captures: nearly all that is made stays, so Python's cycle collector would look through it in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return Program(graph, machine, threads, costing_of(costs), checked_runs(runs), step_function)
    finally:
        if collecting:
            gc.enable()
