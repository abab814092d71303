"""What connects the parts that must not know each other.

A graph knows nothing of programs, a program nothing of how it is verified, and the runtime nothing of the tuner's
store. This module gives them what lies above them. What only compiling needs is imported by the first compile.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from ostinato.arguments import Runs
from ostinato.compiler.target import MachineModel
from ostinato.errors import GraphError
from ostinato.graph.capture import StepFunction, bind_run_at_once, record_function
from ostinato.graph.param import STEP
from ostinato.process import without_collector
from ostinato.text import brief

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ostinato.compiler.costs import Costed, Costing
    from ostinato.compiler.summary import Summary
    from ostinato.graph.graph import Graph as _Graph
    from ostinato.graph.messages import Group
    from ostinato.graph.op import Op
    from ostinato.ranks.ranks import Ranks
    from ostinato.runtime.calibrate import CalibrationStore
    from ostinato.runtime.engine import Engine
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program
    from ostinato.runtime.results import Verified
    from ostinato.tune.graphs.tune_graph import Reports
    from ostinato.tune.policy import Budget
    from ostinato.tune.progress import Progress
    from ostinato.view.trace import Trace

step = STEP

CostsArgument: TypeAlias = "str | os.PathLike[str] | Mapping[object, float] | Trace | None"
"""What ``costs=`` takes: None for what the default store knows, a store's path, seconds by op or task, or a trace."""

if TYPE_CHECKING:  # a graph knows no programs, so only here can it be said that `compile` returns one

    class Graph(_Graph):
        def compile(
            self,
            machine: Machine | None = None,
            *,
            runs: Runs = "pipelined",
            lanes: int | None = None,
            costs: CostsArgument = None,
            adapt: bool = True,
            ranks: Ranks | None = None,
        ) -> Program: ...

        def tune(
            self,
            machine: Machine | None = None,
            *,
            store: str | os.PathLike[str] | None = None,
            budget: float | Budget | None = None,
            rtol: float = 0.0,
            everything: bool = False,
            progress: Progress | bool | None = None,
            fleet: str | None = None,
        ) -> Reports: ...

    def capture() -> AbstractContextManager[Graph, None]: ...
    def current_graph() -> Graph: ...

else:
    from ostinato.graph.graph import Graph


def compile(
    fn: Callable[..., Any],
    /,
    *args: Any,
    machine: Machine | None = None,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    costs: CostsArgument = None,
    adapt: bool = True,
    ranks: Ranks | None = None,
    **kwargs: Any,
) -> Program:
    """Record one call of a function, and compile it to a program: each step of the program does what the call does.

    `fn` is called once. Arrays, rings and device arrays among its arguments, also in containers, are replaced by
    *tracers*. A tracer has a shape, a dtype and views, and can be passed to tasks. A statement that needs elements
    raises `TracerError`: it would run once instead of in every step. Parameters (`param`) are given with each run. All
    other arguments are constants.

    Arrays that `fn` finds elsewhere, such as global ones, are recorded as `capture` does it.

    Parameters
    ----------
    fn
        A function that calls tasks, `copy`, `fill`, `until`, and methods of `current_graph`. What it returns is
        ignored.
    args, kwargs
        Its arguments.
    machine, runs, lanes, costs, adapt, ranks
        As for `Graph.compile`.

    Returns
    -------
    Program
        Its ``graph`` is the graph that was recorded.

    Raises
    ------
    TracerError
        The function needs elements of an array.
    GraphError
        The function recorded nothing, wrote to an array of its arguments or changed a container of arrays among them,
        or `Graph.compile` raises this.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def diffuse(src: ost.Read, dst: ost.Write, rate):
    ...     dst[:] = src[1:-1] + rate * (src[:-2] - 2 * src[1:-1] + src[2:])
    >>> def step(u, rate):
    ...     diffuse(u[0], u[1][1:-1], rate)
    >>> rod = np.zeros(5)
    >>> rod[2] = 1.0
    >>> with ost.compile(step, ost.ring(rod, rod.copy()), ost.param("rate", 0.25)) as program:
    ...     program.replay(2, rate=0.5)
    2
    >>> rod
    array([0. , 0. , 0.5, 0. , 0. ])
    """
    with nullcontext() if ranks is None else _checked(ranks).part():
        step = record_function(fn, args, kwargs)
        return _compile(step.graph, machine, runs, lanes, costs, adapt, ranks, step)


def compile_recorded(
    self: _Graph,
    machine: Machine | None = None,
    *,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    costs: CostsArgument = None,
    adapt: bool = True,
    ranks: Ranks | None = None,
) -> Program:
    """Compile to a program for a machine.

    Parameters
    ----------
    machine
        The machine; None for the default one of the process.
    runs
        ``"pipelined"``: runs go in the order of submission, overlapping as far as accesses allow. ``"serial"``: one
        whole run at a time, in the order in which their default preconditions are met. ``"concurrent"``: runs are
        independent; arrays that they share are the caller's business. ``"once"``: there is one run.
    lanes
        At most so many threads' worth.
    costs
        How long ops take, and which variants of their tasks they run. None: what the default store knows from
        `tune`, and estimates for the rest. The path of another store. A mapping from op, task or name to seconds.
        Or a `Trace` of the same graph.
    adapt
        Whether replays may change the schedule, where costs are estimates. The first ones then tell what ops take;
        schedules by that take turns with the present one, and the fastest one stays. Now and then the others are tried
        again, since the machine may have become busier, or quieter. Results stay the same bit for bit. False: the
        program stays as compiled.
    ranks
        The ranks that compile and run the program together: all of them do the same. None: those that the graph has
        messages between, if it has any.

    Raises
    ------
    GraphError
        The graph has a cycle, an op is bound to a processor that there is not, or it is still being captured. Or the
        sends and receives of the ranks do not match.
    ContractError
        Another rank did something else than to compile a program.
    TuningError
        There is no store at the path, or it cannot be read.
    """
    if self.is_recording:
        raise GraphError("this graph is still being captured; compile it after the block")
    return _compile(self, machine, runs, lanes, costs, adapt, ranks)


def tune_recorded(
    self: _Graph,
    machine: Machine | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    budget: float | Budget | None = None,
    rtol: float = 0.0,
    everything: bool = False,
    progress: Progress | bool | None = None,
    fleet: str | None = None,
) -> Reports:
    """Measure every variant of every op, once for all ops alike, and remember which one is the fastest.

    Measured are tasks that have variants, native tasks and kernels, copies and fills, on copies of their arrays.
    Other Python tasks are called with ``everything=True`` only: they may act on more, such as a file. Tasks declared
    ``pure=False`` or ``blocking=True`` are never called. The reports say what was left out.

    Ops are alike if they call one task with arrays of the same shapes and dtypes, for the same kind of processor.
    Nested graphs count, too. A variant counts only if it writes what the task itself writes. Nothing is measured
    again unless the code of the task or of a variant, the processor, or a library has changed. `compile` finds the
    results in the store.

    Variants for devices, and tasks with a stream, are measured in this process, on the first device of each kind and
    on arrays that are there already. Copies there and back are measured once for each device.

    Parameters
    ----------
    machine
        The machine to tune for; None for the default one of the process.
    store
        The file that results are kept in, made where it does not exist; None for the default one, without which
        tuning goes on where it cannot be written.
    budget
        Seconds, or a `Budget`. What it leaves no time for is ``cancelled`` in the reports.
    rtol
        By how much, relative to the task's, floating-point outputs of a variant may differ; by default not at all.
    everything
        Whether Python tasks without variants are called, too.
    progress
        Who is told what happens: a `ostinato.tune.progress.Progress`, False for nobody, None for a display if
        stderr is a terminal.
    fleet
        Measure on the first processor of each host of a fleet, as `Tuner` names it: ``"ray"``,
        ``"ray://host:port"``, or ``"mpi"``, with which every rank makes the same call. Variants for devices, and tasks
        that other processes cannot import, are left out. Results hold for the hosts' model of processor; the store
        stays here.

    Returns
    -------
    dict of str to Report
        By the name of the task, followed by its arrays where there are several cases of one name, and on devices by
        their kind: ``"blur on opencl"``. ``table()`` gives a line for each; ``plot(path)`` a picture.

    Raises
    ------
    GraphError
        The graph is still being captured, or has a cycle.
    TuningError
        The store that `store` names cannot be used; the fleet cannot be reached, or its hosts are of several models.
    KeyboardInterrupt
        After Ctrl-C. What was found until then is in the store.

    Examples
    --------
    >>> import numpy as np, ostinato as ost, os, tempfile
    >>> @ost.task
    ... def double(x: ost.ReadWrite):
    ...     for i in range(len(x)):
    ...         x[i] *= 2
    >>> @double.variant
    ... def double_at_once(x: ost.ReadWrite):
    ...     x *= 2
    >>> x = np.ones(1000)
    >>> with ost.capture() as graph:
    ...     op = double(x)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = os.path.join(directory, "tune.db")
    ...     reports = graph.tune(store=store, progress=False)
    ...     program = graph.compile(costs=store)
    >>> reports["double"].best.candidate.config
    {'variant': 'double_at_once'}
    >>> "variant double_at_once" in program.explain()
    True
    """
    if self.is_recording:
        raise GraphError("this graph is still being captured; tune it after the block")
    with ExitStack() as finding:
        finding.enter_context(without_collector())  # until something is measured, which may take long
        from ostinato.tune.graphs.tune_graph import tune_graph

        _keep_calibrations()  # and no more: what runs programs is imported where something must be measured
        return tune_graph(
            self,
            machine,
            store=store,
            budget=budget,
            rtol=rtol,
            everything=everything,
            progress=progress,
            fleet=fleet,
            before_measuring=finding.close,
        )


def edges_of(graph: _Graph) -> list[tuple[Op, Op, int]]:
    """All dependences, given and inferred: an op, the op that comes after it, the distance in steps."""
    from ostinato.compiler.dependences import find_outer_edges

    ops, found = graph.ops, find_outer_edges(graph)
    triples = zip(found.src.tolist(), found.dst.tolist(), found.distance.tolist(), strict=True)
    return [(ops[src], ops[dst], distance) for src, dst, distance in triples]


def draw(graph: _Graph, path: str | os.PathLike[str]) -> None:
    """Draw the operations, with their arrays, and what comes after what.

    Up to 30 operations have a box each. Of more, repeats are drawn as one box: operations of one line that could run
    side by side, or, where that leaves too many, all operations of one line. Lines that follow from others are left
    out. Dashed lines are dependences on earlier steps. A box has the sign ↺ in place of a line that other boxes would
    hide. Pointing at a box in an SVG shows the line of source, the arrays
    with their slices, and what the operation comes after.

    Arrays are called as variables were when the graph was recorded. A task has the same colour in all pictures.

    Parameters
    ----------
    path
        The file, written whole or not at all: ``.svg``, or ``.png``, which takes the extra ``plot``.

    Raises
    ------
    ValueError
        The suffix is another.
    GraphError
        The graph has a cycle, or it is still being captured.
    ImportError
        matplotlib is missing, and the path ends with ``.png``.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> a, b = np.ones(4), np.zeros(4)
    >>> graph = ost.Graph()
    >>> op = graph.copy(a, b)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     graph.draw(os.path.join(directory, "step.svg"))
    """
    from ostinato.view.graph_picture import draw_graph

    _check_recorded(graph)
    draw_graph(graph).save(path, "a picture of a graph")


def to_dot(graph: _Graph) -> str:
    """Return what `draw` shows in the language of Graphviz.

    Raises
    ------
    GraphError
        The graph has a cycle, or it is still being captured.

    Examples
    --------
    >>> import numpy as np
    >>> graph = ost.Graph()
    >>> op = graph.fill(np.zeros(4), 1.0)
    >>> "fill" in graph.to_dot()
    True
    """
    from ostinato.view import graph_picture

    _check_recorded(graph)
    return graph_picture.to_dot(graph)


def _graph_page(graph: _Graph) -> str:
    from ostinato.view.graph_picture import graph_page

    return graph_page(graph)


def _check_recorded(graph: _Graph) -> None:
    if graph.is_recording:
        raise GraphError("this graph is still being captured; draw it after the block")


def model_of(machine: Machine | None = None) -> MachineModel:
    """Return the model of a machine of this host: measured once, in some milliseconds, and remembered.

    What cannot be measured is as assumed, and `source` says so: transfers, for one, where there is one core.

    Parameters
    ----------
    machine
        The machine; None: the default one.

    Examples
    --------
    >>> import ostinato as ost
    >>> with ost.Machine(cpus=1) as machine:
    ...     ost.MachineModel.of(machine).cores
    1
    """
    from ostinato.runtime.calibrate import measure_host
    from ostinato.runtime.machine import default_machine

    wire()
    return measure_host(len((machine or default_machine()).workers.cpus))


def costing_of(costs: CostsArgument) -> Costing:
    """Return the costing that ``costs=`` asks for; raise if it is nothing of the kind, or there is no such store."""
    if isinstance(costs, Mapping):
        from ostinato.compiler.costs import cost_as_given
        from ostinato.runtime.results import InStore

        if isinstance(costs, InStore):
            raise TypeError(
                "costs= is what graph.tune returned; that is in the store, which compile asks by default: leave costs= "
                "out, or name the file that tune was given as store="
            )
        return cost_as_given(costs)
    if costs is None or isinstance(costs, str | os.PathLike):
        from ostinato.tune.graphs import costing

        return costing(costs)
    from ostinato.runtime.trace import costing_of_trace
    from ostinato.view.trace import Trace

    if isinstance(costs, Trace):
        return costing_of_trace(costs)
    raise TypeError(
        "costs must be None, the path of a store, a mapping from ops or tasks to seconds, or a Trace, "
        f"got {brief(costs)}"
    )


def _costing_of_ranks(costs: CostsArgument, group: Group, machine: Machine | None) -> Costing:
    """Return the costing with which all ranks run the same variants."""
    agreement = group.agreement
    with group.part():
        if agreement is not None and (costs is None or isinstance(costs, str | os.PathLike)):
            from ostinato.runtime.machine import default_machine
            from ostinato.tune.graphs import costing_of_ranks

            return costing_of_ranks(costs, agreement, lambda: (machine or default_machine()).workers.devices())
        given = costing_of(costs)

    def costed(summary: Summary) -> Costed:
        agreement.agree_on_winners(None)
        return given(summary)

    return given if agreement is None else costed


def _compile(
    graph: _Graph,
    machine: Machine | None,
    runs: Runs,
    lanes: int | None,
    costs: CostsArgument,
    adapt: bool,
    ranks: Ranks | None,
    step_function: StepFunction | None = None,
) -> Program:
    compile_graph = _import_compiler()
    if ranks is not None:
        graph.join(_checked(ranks))
    costing = costing_of(costs) if graph.group is None else _costing_of_ranks(costs, graph.group, machine)
    return compile_graph(
        graph,
        machine,
        runs=runs,
        lanes=lanes,
        adapt=adapt,
        costing=costing,
        remembers=costs is None,
        step_function=step_function,
    )


def _checked(ranks: Ranks) -> Ranks:
    from ostinato.ranks.ranks import Ranks

    if not isinstance(ranks, Ranks):
        raise TypeError(f"ranks must be an ostinato.Ranks, got {brief(ranks)}")
    return ranks


@functools.cache
def _import_compiler() -> Callable[..., Program]:
    """Return what compiles graphs."""
    with without_collector():
        from ostinato.runtime.program import compile_graph

        wire()
        return compile_graph


@functools.cache
def wire() -> None:
    """Give the runtime what lies above it: whatever makes programs calls this before."""
    from ostinato.runtime.program import bind_verify

    _keep_calibrations()
    bind_verify(_verify)


@functools.cache
def _keep_calibrations() -> None:
    """Give the runtime a place for what it measures."""
    from ostinato.runtime.calibrate import bind_store

    bind_store(_open_calibrations)


def _open_calibrations(path: str) -> CalibrationStore:
    from ostinato.tune.store.calibrations import Calibrations

    return Calibrations(path)


def _verify(engine: Engine, step_function: StepFunction | None, steps: int, params: Mapping[str, Any]) -> Verified:
    from ostinato.checking.verify import verify

    return verify(engine, step_function, steps, params)


def _run_at_once(op: Op) -> None:
    from ostinato.runtime.sequential import AsCaptured, run_op

    run_op(op, 0, AsCaptured(), {})


def _bind(cls: type, name: str, member: Any) -> None:
    """Make a function, or a property, a member of a class of a layer below."""
    function: Any = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    function.__name__, function.__qualname__ = name, f"{cls.__name__}.{name}"
    setattr(cls, name, member)


_bind(Graph, "compile", compile_recorded)
_bind(Graph, "tune", tune_recorded)
_bind(Graph, "edges", property(edges_of))
_bind(Graph, "draw", draw)
_bind(Graph, "to_dot", to_dot)
_bind(Graph, "_repr_html_", _graph_page)
_bind(MachineModel, "of", staticmethod(model_of))
bind_run_at_once(_run_at_once)
