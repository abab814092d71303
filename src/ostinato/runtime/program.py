"""A program: a graph compiled for a machine, to be replayed."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeAlias, cast

from ostinato import _core
from ostinato.arguments import OnError, Runs, integer, priority_of
from ostinato.compiler.summary import summarize
from ostinato.compiler.target import MachineModel
from ostinato.errors import ContractError, GraphError
from ostinato.events.event import limit
from ostinato.graph.context import functions, refuse_to_run
from ostinato.graph.ring import Ring
from ostinato.process import without_collector
from ostinato.runtime.adapt import Adapter, why_it_stays
from ostinato.runtime.arguments import (
    MOST_STEPS,
    NO_PARAMS,
    After,
    check_runs,
    count,
    count_threads,
    merge_params,
    resolve_conditions,
    stops,
)
from ostinato.runtime.calibrate import measure_host, recall_ops
from ostinato.runtime.engine import Engine, ProgramStatistics
from ostinato.runtime.machine import Machine, default_machine
from ostinato.runtime.outcome import MUST_NOT_WAIT, raise_failures
from ostinato.runtime.run import Run, watch
from ostinato.text import brief, counted

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costed, Costing
    from ostinato.compiler.summary import Summary
    from ostinato.graph.capture import StepFunction
    from ostinato.graph.graph import Graph
    from ostinato.runtime.results import Retuning, Verified
    from ostinato.view.graph_picture import ArrayNames
    from ostinato.view.simulation import Prediction
    from ostinato.view.trace import Trace

_P = ParamSpec("_P")


def _quick_without_options(replay: Callable[_P, int]) -> Callable[_P, int]:
    """Return a method that calls the core at once where it is given no options.

    To fill in the defaults of all of them takes Python as long as a short replay takes.
    """

    @functools.wraps(replay)
    def quick_replay(self: Program, steps: int = 1, **options: Any) -> int:
        if not (options or functions):
            direct = self._engine.direct
            ended = None if direct is None else direct.replay_plainly(steps)
            if type(ended) is int:
                return ended
            if ended is not None:  # it failed
                return self._engine.deliver(cast("_core.Run", ended))
        return replay(self, steps, **options)  # type: ignore[arg-type]

    return cast("Callable[_P, int]", quick_replay)


class Program:
    """A graph compiled for a machine; made by `compile` from a function, and by `Graph.compile`.

    A program is a context manager: it is closed at the end of the block, which waits for its runs, or cancels them
    first when the block is left by an exception.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def double(x: ost.ReadWrite):
    ...     x *= 2
    >>> x = np.ones(3)
    >>> with ost.capture() as graph:
    ...     op = double(x)
    >>> with graph.compile() as program:
    ...     program.replay(5)
    5
    >>> x
    array([32., 32., 32.])
    """

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        threads: int,
        costing: Costing,
        runs: Runs,
        adapt: bool = False,
        remembers: bool = False,
        step_function: StepFunction | None = None,
    ) -> None:
        self._machine = machine
        self._graph: Callable[[], Graph | None] = lambda: graph
        self._step_function = step_function  # that it was made of, if it was
        self._engine = engine = Engine(graph, machine.workers, threads, costing, runs)
        self._stays = "adapt=False" if not adapt else why_it_stays(engine)  # why it does not adapt
        if not self._stays:
            engine.adapter = Adapter(engine, remembers)

    @property
    def machine(self) -> Machine:
        """The machine that it was compiled for."""
        return self._machine

    @property
    def graph(self) -> Graph:
        """The graph that it was compiled from. What was added to that later is not in the program.

        Raises
        ------
        RuntimeError
            `rebind` has released the arrays of the graph, and nobody else holds it.
        """
        graph = self._graph()
        if graph is None:
            raise RuntimeError("rebind() has released this program's graph with its old arrays; keep a reference to it")
        return graph

    @property
    def step(self) -> int:
        """The number of the next step. While runs are in flight, that of the first step that is not done.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def add(x: ost.ReadWrite, step):
        ...     x += step
        >>> x = np.zeros(1)
        >>> with ost.capture() as graph:
        ...     op = add(x, ost.step)
        >>> with graph.compile() as program:
        ...     n = program.replay(3)  # steps 0, 1 and 2
        ...     program.step
        3
        """
        return self._engine.step

    def current(self, ring: Ring) -> Any:
        """Return the array that is ``ring[0]`` in the next step: the newest one, once no run is in flight.

        Raises
        ------
        ValueError
            The program does not use the ring.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def double(src: ost.Read, dst: ost.Write):
        ...     dst[:] = 2 * src
        >>> a, b = np.ones(2), np.ones(2)
        >>> u = ost.ring(a, b)
        >>> with ost.capture() as graph:
        ...     op = double(u[0], u[1])
        >>> with graph.compile() as program:
        ...     n = program.replay(3)
        ...     program.current(u)
        array([8., 8.])
        """
        if not isinstance(ring, Ring):
            raise TypeError(f"ring must be a ring, as ostinato.ring() makes them, got {brief(ring)}")
        if ring not in self._engine.rings:
            raise ValueError("ring must be one that the program uses; this one is not")
        value = ring.values[self.step % len(ring)]
        binding = self._engine.binding
        return value if binding is None else binding.array(value)

    def reset(self, step: int = 0) -> None:
        """Let the next step have another number.

        Rings, `ostinato.step`, `ostinato.until` and everything else that goes by step numbers follow. Arrays stay as
        they are.

        Parameters
        ----------
        step
            The number of the next step.

        Raises
        ------
        RuntimeError
            A run is in flight; or the graph arrives at a barrier or waits for one, whose phases go by step numbers.
            Give such a barrier as a parameter.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def add(x: ost.ReadWrite, step):
        ...     x += step
        >>> x = np.zeros(1)
        >>> with ost.capture() as graph:
        ...     op = add(x, ost.step)
        >>> with graph.compile() as program:
        ...     n = program.replay(3)
        ...     program.reset()
        ...     n = program.replay(3)
        >>> x
        array([6.])
        """
        self._engine.reset(integer("step", step, 0, MOST_STEPS))

    @_quick_without_options
    def replay(
        self,
        steps: int = 1,
        *,
        after: After = None,
        priority: int = 0,
        on_error: OnError = "stop",
        progress: bool = False,
        timeout: float | None = None,
        params: Mapping[str, Any] = NO_PARAMS,
        **more_params: Any,
    ) -> int:
        """Run steps of the program, and return when they are done.

        Parameters
        ----------
        steps
            How many, at most.
        after
            An event, or a run, that must have happened before anything in the first step begins: the default
            precondition. Or a dict from the names of all preconditions that the graph declares to events; None stands
            for the default one there.
        priority
            Higher is more urgent.
        on_error
            ``"stop"``: after a failure the steps already begun end, but for what depends on it, and no further step
            begins. ``"continue"``: everything that does not depend on the failure runs to the end.
        progress
            Show a progress bar, on a terminal.
        timeout
            Seconds after which the run is cancelled. A cancelled run ends at a step boundary, or at the next operation
            boundary if that takes over 0.1 s. A task that is running is never interrupted.
        params
            Values of parameters by name; usually they are given as keywords instead.

        Returns
        -------
        int
            The number of steps run: fewer than asked for where `until` ended the run.

        Raises
        ------
        TaskError
            A task failed; of several failures, the least in (step, program order).
        PoisonError
            Operations were skipped because of a failure in an earlier run, or of a poisoned precondition.
        KeyboardInterrupt
            On Ctrl-C. The run has then ended at a step boundary: arrays are those of a whole number of steps. A second
            Ctrl-C is raised inside the Python tasks that are running.
        TimeoutError
            The run did not end within `timeout`, and was cancelled.
        ContractError
            A task called this.
        RuntimeError
            The program is closed, or was compiled with ``runs="once"`` and has run.
        """
        if functions:
            refuse_to_run("replay()")
        if type(priority) is not int or priority:
            priority = priority_of(priority)
        ended = self._replay(steps, after, priority, on_error, progress, timeout, merge_params(params, more_params))
        return ended if type(ended) is int else self._engine.deliver(cast("_core.Run", ended))

    def replay_eagerly(self, steps: int = 1, *, params: Mapping[str, Any] = NO_PARAMS, **more_params: Any) -> int:
        """Run steps like `replay`, but one operation after the other, in the calling thread, as plain Python does.

        For debuggers, and to see what a replay gains. Ctrl-C ends it at once, wherever it is. No other thread should
        submit runs meanwhile.

        Parameters
        ----------
        steps, params
            As for `replay`.

        Returns
        -------
        int
            The number of steps run: fewer than asked for where `until` ended the run.

        Raises
        ------
        Exception
            What a task raised, as it is. The step counts as run; what comes after the task in it is not done.
        ValueError
            The graph declares preconditions, which only `replay` and `submit` can be given.
        GraphError
            The program runs on several ranks.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def divide(x: ost.ReadWrite, by):
        ...     x /= by
        >>> x = np.ones(2)
        >>> with ost.capture() as graph:
        ...     op = divide(x, ost.param("by"))
        >>> with graph.compile() as program:
        ...     n = program.replay_eagerly(3, by=2.0)
        >>> x
        array([0.125, 0.125])
        """
        self._engine.check_open()
        from ostinato.runtime.sequential import replay_eagerly  # here: most programs only replay

        self._refuse_ranks("replay_eagerly")
        self._engine.note_run()
        return replay_eagerly(self._engine, count(steps), merge_params(params, more_params))

    def submit(
        self,
        steps: int = 1,
        *,
        after: After = None,
        priority: int = 0,
        on_error: OnError = "stop",
        profile: bool = False,
        params: Mapping[str, Any] = NO_PARAMS,
        **more_params: Any,
    ) -> Run:
        """Submit steps of the program, and return at once.

        How runs relate was said when the program was compiled (``runs=``). By default they begin in the order of their
        submission, from whatever threads, and overlap as far as accesses allow.

        Parameters
        ----------
        steps, after, priority, on_error, params
            As for `replay`. What the run comes after need not have happened, nor its inputs exist.
        profile
            Whether to record when each operation ran in each step: see `Run.profile`.

        Returns
        -------
        Run
            A future of the number of steps run.
        """
        if functions:
            refuse_to_run("submit()")
        stop = on_error == "stop" or stops(on_error)
        engine = self._engine
        if type(priority) is not int or priority:
            priority = priority_of(priority)
        run: _core.Run | None = None
        if engine.gives_plainly and not (profile or params):
            run = engine.submit_plainly(count(steps), priority, stop, after, more_params)
        if run is None:  # or the program was retuned just now
            traced = profile or engine.process_trace is not None
            run = engine.submit(steps, after, priority, stop, merge_params(params, more_params), traced)
            if engine.process_trace is not None:
                engine.process_trace.watch(engine, run)
        return Run(run, engine, profile)

    def rebind(self, arrays: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Let other arrays stand for those the program was captured with, for runs submitted from now on.

        The first run after this does not overlap earlier ones; the old arrays are released when those have ended.

        Parameters
        ----------
        arrays
            New arrays by old ones, as a mapping or as pairs (NumPy arrays cannot be keys of a dict): same shape, dtype
            and strides, and aligned if the old one is. Views follow their base.

        Raises
        ------
        GraphError
            A new array does not fit, or it overlaps other arrays of the program where the old one did not.
        """
        self._engine.rebind(arrays)
        graph = self._graph()
        if graph is not None:  # it holds the old arrays, and so does what it was made of
            self._graph = weakref.ref(graph)
        self._step_function = None

    def trace(
        self, steps: int = 1, *, after: After = None, params: Mapping[str, Any] = NO_PARAMS, **more_params: Any
    ) -> Trace:
        """Run steps like `replay`, and return when each operation ran, and on which thread.

        All ranks call it, and all get the trace of all ranks, by the clock of rank 0. Ranks of one host have the same
        clock. For others it is estimated how far theirs is off; ``trace.ranks`` says how wrong that may be.

        Parameters
        ----------
        steps, after, params
            As for `replay`.
        """
        refuse_to_run("trace()")
        params = merge_params(params, more_params)
        run = cast("_core.Run", self._engine.submit(steps, after, 0, True, params, True, waits=True))
        self._engine.deliver(run)
        return self._engine.trace_of_ranks(run)

    def retune(
        self, steps: int = 1000, *, after: After = None, params: Mapping[str, Any] = NO_PARAMS, **more_params: Any
    ) -> Retuning:
        """Run steps like `replay`, and let the program have a better schedule from then on, if there is one.

        The first steps tell what each operation takes; what is scheduled by that takes turns with the present schedule,
        on the steps that are left. It is kept only if it was faster, in pairs of turns in which coins decided who goes
        first: whatever else goes on in the machine, a schedule that is not faster is kept in one of 1000 cases at most.
        Steps are as many, and do the same, as in a replay, but in runs of their own: what other threads submit
        meanwhile may come between. Variants that were chosen stay.

        Parameters
        ----------
        steps, after, params
            As for `replay`. A few hundred steps are needed to tell anything.

        Returns
        -------
        Retuning
            What was found, and why which schedule was kept; `str` of it is a summary.

        Raises
        ------
        TaskError, PoisonError, KeyboardInterrupt, ContractError
            As for `replay`. The present schedule is kept, unless another one has won before.
        ValueError
            The program was compiled with ``runs="concurrent"`` or ``runs="once"``.
        GraphError
            The program runs on several ranks.
        """
        from ostinato.runtime.retune import retune

        self._engine.check_open()
        self._refuse_ranks("retune")
        return retune(self._engine, count(steps), after, merge_params(params, more_params))

    def verify(
        self, steps: int = 1, *, after: After = None, params: Mapping[str, Any] = NO_PARAMS, **more_params: Any
    ) -> Verified:
        """Compare a replay bit by bit with the graph run as plain sequential Python, both on copies of all arrays.

        Also finds writes to arrays that were not declared as written, parts of a `Write` region that are left
        unwritten (such a region is filled with a pattern before its task runs), tasks whose results depend on what
        they did not declare, and variants that do not give what their task does. Arrays are left as they were. Tokens,
        and Python objects in arrays, are copied by `copy.deepcopy`, or used as they are where that fails; they are not
        compared. Nothing outside is touched: events are not waited for, barriers not arrived at, reservations not
        taken. Tasks declared ``pure=False`` are not called, and neither is what depends on them: the report says so.

        It is slow: all memory that the program uses is looked through after every step. If a task wrote to what it did
        not declare, the steps are run again to find that task.

        Parameters
        ----------
        steps, after, params
            As for `replay`.

        Returns
        -------
        Verified
            What was compared and what was left out; it can be printed, and is true.

        Raises
        ------
        ContractError
            Naming the task and the array.
        """
        engine = self._engine
        engine.check_open()
        resolve_conditions(engine.executable.preconditions, after)
        return _verify(engine, self._step_function, count(steps), merge_params(params, more_params))

    def _refuse_ranks(self, method: str) -> None:
        group = self._engine.group
        if self._engine.shared is not None and group is not None:
            raise GraphError(
                f"{method} must be called on a program of one rank, got one of {group.size} ranks; "
                "use replay, or start one rank"
            )

    def simulate(self, machine_model: MachineModel | None = None, *, copies: int = 1) -> Prediction:
        """Predict how the program would run, by the costs that it was compiled with: here, or on another machine.

        Parameters
        ----------
        machine_model
            The machine; None: this one, as measured once per host. For other numbers of cores, ops are placed anew.
        copies
            How many copies of the step run side by side, each on its own share of the machine: a problem that grows
            with the machine. What an op takes from the step before, it takes from its like in both neighbours, too.
        """
        from ostinato.view.simulation import simulate

        engine = self._engine
        engine.check_open()
        if machine_model is not None and not isinstance(machine_model, MachineModel):
            raise TypeError(f"machine_model must be an ostinato.MachineModel, got {brief(machine_model)}")
        return simulate(engine.executable, machine_model or measure_host(len(engine.workers.cpus)), copies=copies)

    def explain(self) -> str:
        """Return what the program is, as text: lanes, ops, waits, publishes, costs and where they come from.

        Of work for devices it says what is copied between memories, and, once it has run, what of it was captured, or
        why it was not.
        """
        from ostinato.view.explain import explain, segments_of

        engine, workers = self._engine, self._engine.workers
        adapter = engine.adapter
        adapting = [f"not: {self._stays or 'it was retuned'}"] if adapter is None else adapter.describe()
        group = engine.group
        return explain(
            engine.kept.executable,
            workers.crowded,
            len(workers.cpus),
            adapting,
            segments_of(engine.plans),
            engine.shared_messages,
            group is None or group.messenger.by_workers,
        )

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw the lanes: a row for each, with the operations of a step in their order, by what they should take.

        Times are the costs that the program was scheduled by. Every operation begins as soon as its lane, its thread,
        and what it waits for in the same step let it. `trace` shows what happened.

        Parameters
        ----------
        path
            The file, written whole or not at all: ``.svg``, or ``.png``, which takes the extra ``plot``.

        Raises
        ------
        ValueError
            The suffix is another.
        ImportError
            matplotlib is missing, and the path ends with ``.png``.
        OSError
            The file cannot be written.
        """
        from ostinato.view.lane_picture import draw_lanes

        draw_lanes(self._engine.kept.executable, self._array_names()).save(path, "a picture of a program")

    def _repr_html_(self) -> str:
        from ostinato.view.lane_picture import program_page

        return program_page(self._engine.kept.executable, self._array_names(), self.explain())

    def _array_names(self) -> ArrayNames:
        from ostinato.view.graph_picture import ArrayNames

        graph = self._graph()
        return ArrayNames({} if graph is None else graph.array_names)

    def statistics(self) -> ProgramStatistics:
        """Return a snapshot of counters."""
        return self._engine.statistics()

    def close(self) -> None:
        """Wait for the program's runs, and let go of its arrays."""
        self._engine.close(cancel=False)

    def __enter__(self) -> Program:
        self._engine.check_open()
        self._engine.in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._engine.close(cancel=kind is not None)
        self._engine.in_block = False
        raise_failures(self._engine.take_failures(), error)

    def __repr__(self) -> str:
        executable = self._engine.executable
        closed = ", closed" if self._engine.closed else ""
        lanes = counted(len(executable.step.placement.affinity), "lane")
        return f"<Program of {counted(len(executable.step.nodes), 'op')} on {lanes}{closed}>"

    def _replay(
        self,
        steps: int,
        after: After,
        priority: int,
        on_error: OnError,
        progress: bool,
        timeout: float | None,
        params: Mapping[str, Any],
    ) -> object:
        """Replay in one of the ways that take more than a call of the core."""
        engine = self._engine
        if engine.workers.prepare_caller is not None:
            engine.workers.prepare_caller()
        if progress or timeout is not None:
            if _core.serving():
                raise ContractError(f"replay inside a task: {MUST_NOT_WAIT}")
            seconds = limit(timeout)
            run = self.submit(steps, after=after, priority=priority, on_error=on_error, params=params)
            return watch(run, count(steps), progress, seconds)
        stop = stops(on_error)
        ended = engine.submit(steps, after, priority, stop, params, engine.process_trace is not None, waits=True)
        if engine.process_trace is not None:
            engine.process_trace.watch(engine, ended)
        return ended


def bind_verify(verify: Verify) -> None:
    """Have programs verified by `verify`; `ostinato.api` does."""
    global _verify
    _verify = verify


def _not_bound(*_: object) -> NoReturn:
    raise RuntimeError("import ostinato first")


Verify: TypeAlias = "Callable[[Engine, StepFunction | None, int, Mapping[str, Any]], Verified]"
_verify: Verify = _not_bound


_LARGE = 20_000  # ops


def compile_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    adapt: bool,
    costing: Costing,
    remembers: bool = False,
    step_function: StepFunction | None = None,
) -> Program:
    """Compile a graph with the costs and variants that a costing knows; see `Graph.compile`.

    `remembers`: what replays teach is for others, too, and what they have taught is used.
    """
    with nullcontext() if graph.group is None else graph.group.part():
        return _compile(graph, machine, runs, lanes, adapt, costing, remembers, step_function)


def _compile(
    graph: Graph,
    machine: Machine | None,
    runs: Runs,
    lanes: int | None,
    adapt: bool,
    costing: Costing,
    remembers: bool,
    step_function: StepFunction | None,
) -> Program:
    if machine is None:
        machine = default_machine()
    if not isinstance(machine, Machine):
        raise TypeError(f"machine must be an ostinato.Machine, got {brief(machine)}")
    if not isinstance(adapt, bool):
        raise TypeError(f"adapt must be True or False, got {brief(adapt)}")
    machine.workers.check_open()
    threads = count_threads(machine.workers.cpus, lanes)
    if remembers and adapt:
        costing = partial(_cost_as_learned, costing)
    with without_collector():
        program = Program(graph, machine, threads, costing, check_runs(runs), adapt, remembers, step_function)
    if len(program._engine.executable.step.nodes) >= _LARGE:
        _core.return_memory()  # of what the passes have used, and of the capture before
    return program


def _cost_as_learned(costing: Costing, summary: Summary) -> Costed:
    found = costing(summary)
    summary = summary if found.ops is summary.ops else summarize(found.ops)
    return found._replace(costs=recall_ops(summary, found.costs))
