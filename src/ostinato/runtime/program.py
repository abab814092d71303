"""A program: a graph compiled for a machine, to be replayed."""

from __future__ import annotations

import dataclasses
import operator
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ostinato import _core
from ostinato.compile.lower import lower
from ostinato.compile.schedule import schedule
from ostinato.errors import ContractError
from ostinato.runtime import record
from ostinato.runtime.costing import CostsArgument, costing_of
from ostinato.runtime.detached import detached
from ostinato.runtime.linked import LinkedRuns, linked_runs
from ostinato.runtime.machine import Machine, default_machine
from ostinato.runtime.outcome import outcome
from ostinato.runtime.outside import After, conditions
from ostinato.runtime.process_trace import process_trace
from ostinato.runtime.rebinding import Rebinding
from ostinato.runtime.run import Run
from ostinato.runtime.statistics import ProgramStatistics
from ostinato.runtime.values import Values, barriers_of

if TYPE_CHECKING:
    from ostinato.compile.costs import Costing
    from ostinato.graph.graph import Graph
    from ostinato.view.trace import Trace

__all__ = ["Program", "compile_graph"]

_Given: TypeAlias = (
    "tuple[_core.Event | None, tuple[_core.Event | None, ...], tuple[tuple[_core.Barrier, int], ...], int]"
)
_RUNS = ("pipelined", "serial", "concurrent", "once")
_STOP = {"stop": True, "continue": False}
_NO_PARAMS: Mapping[str, Any] = {}
_MOST_STEPS = 2**62  # so that step numbers stay far from the ends of 64 bits


def compile_graph(
    graph: Graph,
    machine: Machine | None = None,
    *,
    runs: str = "pipelined",
    lanes: int | None = None,
    costs: CostsArgument = None,
) -> Program:
    """Compile a graph; see `Graph.compile`."""
    if machine is None:
        machine = default_machine()
    if not isinstance(machine, Machine):
        raise TypeError(f"a graph is compiled for a Machine, not {type(machine).__name__}")
    machine._check_open()
    if runs not in _RUNS:
        raise ValueError(f"runs= is one of {', '.join(map(repr, _RUNS))}, not {runs!r}")
    threads = len(machine.processors)
    if lanes is not None:
        threads = min(threads, operator.index(lanes))
        if threads < 1:
            raise ValueError(f"lanes= is at least 1, not {lanes}")
    return Program(graph, machine, threads, costing_of(costs), runs)


class Program:
    """A graph compiled for a machine; made by `Graph.compile`.

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

    def __init__(self, graph: Graph, machine: Machine, threads: int, costing: Costing, runs: str) -> None:
        self._machine = machine
        self._scheduled = schedule(graph, len(machine.processors), threads, costing)
        self._params = self._scheduled.params
        self._binding: Rebinding | None = None  # made with the first rebind
        self._lowered = lower(self._scheduled.ops, self._scheduled.core, self._scheduled.slots)
        self._param_values = Values(self._params, self._lowered)
        self._any_params = bool(self._params)
        plan, core, processors = self._lowered.plan, self._scheduled.core, len(machine.processors)
        self._core = _core.Program(machine._core, core, plan, "serial" if runs == "serial" else "pipelined")
        self._linked = linked_runs(self._core, machine._core, self._scheduled, self._lowered, runs, processors)
        self._outside = bool(self._scheduled.preconditions)  # each run must be given something
        self._lock = threading.Lock()  # rebind and close
        self._closed = self._ended = False
        self._process_trace = process_trace()
        # Whether replay() need not look at any of this before it calls the core.
        self._plain = not (
            self._linked or self._outside or self._params or machine._init is not None or self._process_trace
        )
        machine._programs.add(self)
        machine._check_open()  # again: if it was closed meanwhile, that did not find this program

    @property
    def machine(self) -> Machine:
        """The machine that it was compiled for."""
        return self._machine

    def replay(
        self,
        steps: int = 1,
        *,
        after: After = None,
        priority: int = 0,
        on_error: str = "stop",
        progress: bool = False,
        params: Mapping[str, Any] = _NO_PARAMS,
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
            On Ctrl-C. The run has then ended at a step boundary: arrays are those of a whole number of steps.
        ContractError
            A task called this.
        RuntimeError
            The program is closed, or was compiled with ``runs="once"`` and has run.
        """
        if self._plain and after is None and not (progress or params or more_params):
            stops = on_error == "stop" or self._stops(on_error)
            if self._closed:
                self._check_open()
            ended = self._core.replay(_count(steps), priority, stops, None, None, None, False)
        else:
            ended = self._replay(steps, after, priority, on_error, progress, _merged(params, more_params))
        if type(ended) is int:
            return ended
        return self._end(cast("_core.Run", ended))

    def submit(
        self,
        steps: int = 1,
        *,
        after: After = None,
        priority: int = 0,
        on_error: str = "stop",
        profile: bool = False,
        params: Mapping[str, Any] = _NO_PARAMS,
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
        stops = on_error == "stop" or self._stops(on_error)
        process_trace = self._process_trace
        traced = profile or process_trace is not None
        if self._linked is not None:
            merged = _merged(params, more_params)
            _, run = self._submit_linked(self._linked, steps, after, priority, stops, merged, traced)
        else:
            values, objects = self._values(params, more_params)
            given = self._given(after) if self._outside or after is not None else None
            run = self._core.submit(_count(steps), priority, stops, values, objects, given, traced)
        if process_trace is not None:
            process_trace.watch(self, run)
        return Run(run, self, profile)

    def rebind(self, arrays: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Let other arrays stand for those the program was captured with, for runs submitted from now on.

        The first run after this does not overlap earlier ones; the old arrays are released when those have ended.

        Parameters
        ----------
        arrays
            New arrays by old ones, as a mapping or as pairs (NumPy arrays cannot be keys of a dict): same shape, dtype
            and strides. Views follow their base.

        Raises
        ------
        GraphError
            A new array does not fit, or it overlaps other arrays of the program where the old one did not.
        """
        with self._lock:
            self._check_open()
            binding = (self._binding or Rebinding.of(self._scheduled.ops)).rebound(arrays)
            if self._binding is None:
                self._scheduled = dataclasses.replace(self._scheduled, ops=detached(self._scheduled.ops))
            scheduled, outside = self._scheduled, self._lowered.outside
            lowered = lower(scheduled.ops, scheduled.core, scheduled.slots, binding, outside)
            if self._linked is not None:
                self._linked.rebind(lowered.plan)
            self._core.rebind(lowered.plan)
            self._binding, self._lowered = binding, lowered
            self._param_values = Values(self._params, lowered)

    def trace(
        self, steps: int = 1, *, after: After = None, params: Mapping[str, Any] = _NO_PARAMS, **more_params: Any
    ) -> Trace:
        """Run steps like `replay`, and return when each operation ran, and on which thread.

        Parameters
        ----------
        steps, after, params
            As for `replay`.
        """
        run = self._run_traced(steps, after, 0, "stop", _merged(params, more_params))
        self._end(run)
        return record.trace_of(self, run)

    def verify(
        self, steps: int = 1, *, after: After = None, params: Mapping[str, Any] = _NO_PARAMS, **more_params: Any
    ) -> None:
        """Compare a replay bit by bit with the graph run as plain sequential Python, both on copies of all arrays.

        Also finds writes to arrays that were not declared as written, parts of a `Write` region that are left
        unwritten (such a region is filled with a pattern before its task runs), and tasks whose results depend on what
        they did not declare. Arrays are left as they were. Tokens, and Python objects in arrays, are copied by
        `copy.deepcopy`, or used as they are where that fails; they are not compared. Nothing outside is touched: events
        are not waited for, barriers not arrived at, reservations not taken.

        It is slow: all memory that the program uses is looked through after every operation.

        Parameters
        ----------
        steps, after, params
            As for `replay`.

        Raises
        ------
        ContractError
            Naming the task and the array.
        """
        self._check_open()
        from ostinato.runtime.verify import verify

        conditions(self._scheduled.preconditions, after)
        verify(self, _count(steps), _merged(params, more_params))

    def explain(self) -> str:
        """Return what the program is, as text: lanes, ops, waits, publishes, costs and where they come from."""
        from ostinato.view.explain import explain

        return explain(self._scheduled, self._machine._crowded, len(self._machine.processors))

    def statistics(self) -> ProgramStatistics:
        """Return a snapshot of counters."""
        instances = [] if self._linked is None else self._linked.statistics()
        return ProgramStatistics.sum([self._core.statistics(), *instances])

    def close(self) -> None:
        """Wait for the program's runs, and let go of its arrays."""
        self._close(cancel=False)

    def _close(self, cancel: bool) -> None:
        with self._lock:
            if self._ended:
                return
            if _core.serving() or (not self._machine._core.forked and any(core.in_own_task for core in self._cores)):
                raise ContractError("a task cannot close a program: that waits for its runs, of which it may be part")
            self._closed = True
        if not self._machine._core.forked:
            self._core.refuse_runs()  # before looking which there are: other threads may be submitting
            if self._linked is not None:
                self._linked.refuse_runs()
            if cancel:
                for run in self._in_flight():
                    run.cancel()
            self._wait_for_all_runs()  # interrupted, this may be called again
        for core in self._cores:
            core.close()
        self._lowered = None  # type: ignore[assignment]
        self._binding = None
        self._ended = True

    def __enter__(self) -> Program:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(cancel=kind is not None)

    def __repr__(self) -> str:
        lanes = len(self._scheduled.placement.home)
        return f"<Program of {len(self._scheduled.ops)} ops on {lanes} lanes{', closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this program is closed")
        self._machine._check_open()

    def _stops(self, on_error: str) -> bool:
        try:
            return _STOP[on_error]
        except (KeyError, TypeError):
            raise ValueError(f"on_error= is 'stop' or 'continue', not {on_error!r}") from None

    def _values(
        self, params: Mapping[str, Any], more_params: Mapping[str, Any]
    ) -> tuple[list[float] | None, list[object] | None]:
        if self._closed:
            self._check_open()
        if not (params or more_params or self._any_params):
            return None, None
        return self._param_values.of(_merged(params, more_params))

    @property
    def _cores(self) -> list[_core.Program]:
        return [self._core] if self._linked is None else [self._core, *self._linked.cores]

    def _in_flight(self) -> list[_core.Run]:
        return [run for core in self._cores for run in core.in_flight()]

    def _wait_for_all_runs(self) -> None:
        for run in self._in_flight():
            run.wait(-1.0)

    def _given(self, after: After) -> _Given:
        return *conditions(self._scheduled.preconditions, after), (), -1

    def _submit_linked(
        self,
        runs: LinkedRuns,
        steps: int,
        after: After,
        priority: int,
        stops: bool,
        params: Mapping[str, Any],
        traced: bool,
    ) -> tuple[_core.Program, _core.Run]:
        values, objects = self._values(params, _NO_PARAMS)
        barriers = barriers_of(self._lowered, params)
        start = conditions(self._scheduled.preconditions, after)
        return runs.submit(_count(steps), priority, stops, values, objects, start, barriers, traced)

    def _end(self, run: _core.Run) -> int:
        end = outcome(run, self._scheduled.ops)
        run.deliver()
        if isinstance(end, BaseException):
            raise end
        return end

    def _run_traced(
        self, steps: int, after: After, priority: int, on_error: str, params: Mapping[str, Any]
    ) -> _core.Run:
        return cast("_core.Run", self._replay_in_core(steps, after, priority, on_error, params, True))

    def _replay_in_core(
        self, steps: int, after: After, priority: int, on_error: str, params: Mapping[str, Any], traced: bool
    ) -> object:
        stops = self._stops(on_error)
        if self._linked is not None:
            if _core.serving():
                raise ContractError("replay inside a task: a task on a lane must not wait, the lane would stand still")
            core, run = self._submit_linked(self._linked, steps, after, priority, stops, params, traced)
            return core.follow(run)
        values, objects = self._values(params, _NO_PARAMS)
        given = self._given(after) if self._outside or after is not None else None
        return self._core.replay(_count(steps), priority, stops, values, objects, given, traced)

    def _replay(
        self, steps: int, after: After, priority: int, on_error: str, progress: bool, params: Mapping[str, Any]
    ) -> object:
        """Replay in one of the ways that take more than a call of the core."""
        if self._machine._init is not None:
            self._machine._prepare_caller()
        if progress:
            return self._replay_watched(steps, after, priority, on_error, params)
        if self._process_trace is None:
            return self._replay_in_core(steps, after, priority, on_error, params, False)
        run = self._run_traced(steps, after, priority, on_error, params)
        self._process_trace.watch(self, run)
        return run

    def _replay_watched(
        self,
        steps: int,
        after: After,
        priority: int,
        on_error: str,
        params: Mapping[str, Any],
    ) -> int:
        """Replay with a progress bar: the calling thread watches, and workers do the steps."""
        from ostinato.view.progress import progress_bar

        run = self.submit(steps, after=after, priority=priority, on_error=on_error, params=params)
        with progress_bar(steps) as bar:
            try:
                while not run._core.wait(0.1):
                    bar.update(run.steps_done)
            except KeyboardInterrupt:
                run.cancel()
                run._core.wait(-1.0)
                raise
            bar.update(run.steps_done)
        return run.result()


def _merged(params: Mapping[str, Any], more_params: Mapping[str, Any]) -> Mapping[str, Any]:
    if not params:
        return more_params
    if not isinstance(params, Mapping):
        raise TypeError(f"params= is a mapping from names to values, not {type(params).__name__}")
    if twice := params.keys() & more_params.keys():
        raise TypeError(f"parameter {min(twice)!r} is given twice: in params= and as a keyword")
    return {**params, **more_params}


def _count(steps: int) -> int:
    if type(steps) is int and 0 <= steps <= _MOST_STEPS:
        return steps
    try:
        count = operator.index(steps)
    except TypeError:
        raise TypeError(f"steps= is a whole number, not {steps!r}") from None
    if count < 0:
        raise ValueError(f"steps= is not negative, but it is {count}")
    if count > _MOST_STEPS:
        raise ValueError(f"steps= is at most {_MOST_STEPS}, but it is {count}")
    return count
