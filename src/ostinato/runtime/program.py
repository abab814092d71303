"""A program: a graph compiled for a machine, to be replayed."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from ostinato import _core
from ostinato.choices import OnError, Runs
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline import compile
from ostinato.counting import counted
from ostinato.errors import ContractError
from ostinato.events import Barrier
from ostinato.events.event import limit
from ostinato.graph.body import Arrive, Await
from ostinato.graph.ring import Ring
from ostinato.integers import integer, priority_of
from ostinato.one_line import brief
from ostinato.runtime.arguments import MOST_STEPS, NO_PARAMS, After, Values, conditions, count, merged, stops
from ostinato.runtime.calibrate import recall_host
from ostinato.runtime.concurrent import LinkedRuns, linked_runs
from ostinato.runtime.forms import Form
from ostinato.runtime.outcome import delivered, ended, wait_for_all
from ostinato.runtime.rebind import Rebinding, detached_schedule
from ostinato.runtime.results import ProgramStatistics
from ostinato.runtime.run import Run, watched
from ostinato.runtime.submitting import replayed, submitted
from ostinato.runtime.trace import process_trace, trace_of
from ostinato.runtime.unretrieved import Unretrieved, raise_failures, report_failure

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costing
    from ostinato.compiler.ir import Executable
    from ostinato.compiler.lower.tables import Lowered
    from ostinato.compiler.schedule.simulation import Prediction
    from ostinato.compiler.target import MachineModel
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op
    from ostinato.graph.step_function import StepFunction
    from ostinato.runtime.forms import Forms
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.results import Verified
    from ostinato.runtime.retune import Retuning
    from ostinato.view.trace import Trace

__all__ = ["Program"]


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

    _lowered: Lowered
    _param_values: Values

    def __init__(self, graph: Graph, machine: Machine, threads: int, costing: Costing, runs: Runs) -> None:
        processors = len(machine._cpus)
        self._machine, self._threads, self._runs = machine, threads, runs
        self._unretrieved = Unretrieved()
        self._graph: Callable[[], Graph | None] = lambda: graph
        self._step_function: StepFunction | None = None  # of a program that was made of a function
        self._binding: Rebinding | None = None  # made with the first rebind
        self._linked: LinkedRuns | None = None
        self._forms: list[Form] = []
        target = Target(processors, threads, recall_host(processors), machine._found_devices)
        made = compile(graph, target, costing)
        self._forms.append(self._form(made))
        self._use(self._forms[0])
        self._linked = linked_runs(self._core, machine._core, made, self._lowered, runs, processors)
        self._params = made.step.params
        self._any_params = bool(self._params)
        self._outside = bool(made.preconditions or self._lowered.barriers)  # each run must be given something
        self._lock = threading.Lock()  # rebind, close, and which form takes runs
        self._retuning = threading.Lock()
        self._unsettled: Forms | None = None  # left by a retuning; not the form that is to stay takes runs
        self._former: list[dict[str, Any]] = []  # counters of forms that are no more
        self._closed = self._ended = False
        self._in_block = False
        self._process_trace = process_trace()
        self._wait_to_settle(None)
        machine._programs.add(self)
        machine._check_open()  # again: if it was closed meanwhile, that did not find this program

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
        if self._linked is not None and self._linked.next_step is not None:
            return self._linked.next_step
        return self._core.steps_run

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
        if ring not in self._rings:
            raise ValueError("ring must be one that the program uses; this one is not")
        value = ring.values[self.step % len(ring)]
        return value if self._binding is None else self._binding.array(value)

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
        number = integer("step", step, 0, MOST_STEPS)
        with self._lock:
            self._check_open()
            if any(isinstance(op.body, Arrive | Await) and isinstance(op.body.barrier, Barrier) for op in self._ops):
                raise RuntimeError(
                    "a program that uses a barrier cannot be reset: the barrier's phases go by step numbers; give the "
                    "barrier as a parameter (ostinato.param)"
                )
            if self._in_flight() or not self._number_from(number):
                raise RuntimeError("a run is in flight: reset the program when its runs have ended")

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
        if type(priority) is not int or priority:
            priority = priority_of(priority)
        if self._plain and after is None and timeout is None and not (progress or params or more_params):
            stop = on_error == "stop" or stops(on_error)
            if self._closed:
                self._check_open()
            ended = self._core.replay(count(steps), priority, stop, None, None, None, False)
            if ended is None:  # the program was retuned just now
                ended = replayed(self, steps, None, priority, stop, NO_PARAMS, False)
        else:
            ended = self._replay(steps, after, priority, on_error, progress, timeout, merged(params, more_params))
        if type(ended) is int:
            return ended
        return self._end(cast("_core.Run", ended))

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
        from ostinato.runtime.sequential import replay_eagerly

        self._check_open()
        if self._linked is not None:
            self._linked.note_run()
        return replay_eagerly(self, count(steps), merged(params, more_params))

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
        stop = on_error == "stop" or stops(on_error)
        process_trace = self._process_trace
        traced = profile or process_trace is not None
        given = merged(params, more_params)
        run = submitted(self, steps, after, priority_of(priority), stop, given, traced)
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
            and strides, and aligned if the old one is. Views follow their base.

        Raises
        ------
        GraphError
            A new array does not fit, or it overlaps other arrays of the program where the old one did not.
        """
        with self._lock:
            self._check_open()
            _ = self._rings  # which the ops will not know any more
            executable = self._executable if self._binding is not None else detached_schedule(self._executable)
            binding = (self._binding or Rebinding.of(self._executable.step.recorded.nodes)).rebound(arrays)
            for form in self._forms:
                form.rebind(executable, binding)
            self._binding = binding
            graph = self._graph()
            if graph is not None:  # it holds the old arrays, and so does what it was made of
                self._graph = weakref.ref(graph)
            self._step_function = None
            self._use(self._serving_form())
            if self._linked is not None:
                self._linked.rebind(self._lowered)

    def trace(
        self, steps: int = 1, *, after: After = None, params: Mapping[str, Any] = NO_PARAMS, **more_params: Any
    ) -> Trace:
        """Run steps like `replay`, and return when each operation ran, and on which thread.

        Parameters
        ----------
        steps, after, params
            As for `replay`.
        """
        run = cast("_core.Run", replayed(self, steps, after, 0, True, merged(params, more_params), True))
        self._end(run)
        return trace_of(self, run)

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
        """
        from ostinato.runtime.retune import retune

        self._check_open()
        return retune(self, count(steps), after, merged(params, more_params))

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

        It is slow: all memory that the program uses is looked through after every operation.

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
        self._check_open()
        from ostinato.checking.verify import verify

        conditions(self._executable.preconditions, after)
        return verify(self, count(steps), merged(params, more_params))

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
        from ostinato.runtime.simulating import simulated

        self._check_open()
        return simulated(self._executable, machine_model, len(self._machine._cpus), copies)

    def explain(self) -> str:
        """Return what the program is, as text: lanes, ops, waits, publishes, costs and where they come from.

        Of work for devices it says what is copied between memories, and, once it has run, what of it was captured, or
        why it was not.
        """
        from ostinato.view.explain import explain
        from ostinato.view.explain_captures import stretches_of

        lowered: Lowered | None = self._lowered  # None once it is closed
        others = [] if self._linked is None else self._linked.plans
        stretches = [] if lowered is None else stretches_of([lowered.plan, *others])
        return explain(self._executable, self._machine._crowded, len(self._machine._cpus), stretches)

    def statistics(self) -> ProgramStatistics:
        """Return a snapshot of counters."""
        instances = [] if self._linked is None else self._linked.statistics()
        with self._lock:
            forms = [form.statistics() for form in self._forms]
            return ProgramStatistics.sum([*forms, *self._former, *instances])

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
            for form in self._forms:  # before looking which there are: other threads may be submitting
                form.core.refuse_runs()
            if self._linked is not None:
                self._linked.refuse_runs()
            if cancel:
                for run in self._in_flight():
                    run.cancel()
            wait_for_all(self._in_flight(), cancel)  # interrupted, this may be called again
        for core in self._cores:
            core.close()
        for form in self._forms:
            form.let_go(counted=not self._machine._core.forked)
        self._lowered, self._param_values = cast("Lowered", None), cast(Values, None)
        self._binding = None
        self._ended = True

    def __enter__(self) -> Program:
        self._check_open()
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(cancel=kind is not None)
        self._in_block = False
        raise_failures(self._take_failures(), error)

    def __del__(self) -> None:
        if self._machine._core.forked:
            return
        for error in self._take_failures():
            report_failure(self._machine, error)
        in_flight = self._unretrieved.in_flight()
        if not in_flight:
            return  # perhaps it was never compiled
        executable = detached_schedule(self._executable)  # arrays end with their runs
        for run in in_flight:
            _report_at_end(cast("_core.Run", run), executable, self._machine)

    def __repr__(self) -> str:
        lanes = len(self._executable.step.placement.home)
        closed = ", closed" if self._closed else ""
        return f"<Program of {counted(len(self._executable.step.nodes), 'op')} on {counted(lanes, 'lane')}{closed}>"

    def _number_from(self, step: int) -> bool:
        """Give the next step a number; False if a run is in flight."""
        if self._linked is not None:
            self._linked.number_from(step)
        return all([form.core.number_from(step) for form in self._forms])

    @functools.cached_property
    def _rings(self) -> weakref.WeakSet[Ring]:
        """The rings whose elements the program uses."""
        return weakref.WeakSet(each.ring.ring for op in self._ops for each in op.operands if each.ring is not None)

    @property
    def _ops(self) -> tuple[Op, ...]:
        return self._executable.step.nodes

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this program is closed")
        self._machine._check_open()

    def _values(self, params: Mapping[str, Any]) -> tuple[list[float] | None, list[object] | None]:
        """Return the values of a run's parameters: for native tasks, and for others."""
        if self._closed:
            self._check_open()
        if not (params or self._any_params):
            return None, None
        return self._param_values.of(params)

    @property
    def _cores(self) -> list[_core.Program]:
        return [*(form.core for form in self._forms), *([] if self._linked is None else self._linked.cores)]

    def _form(self, executable: Executable) -> Form:
        """Return a new form of this program, on the arrays that it runs on now."""
        return Form(self._machine, executable, self._binding, self._runs, self._forms[0] if self._forms else None)

    def _use(self, form: Form) -> None:
        """Submit further runs to this form."""
        self._core, self._executable, self._lowered = form.core, form.executable, form.lowered
        self._param_values = Values(form.executable.step.params, form.lowered)
        if self._linked is not None:
            self._linked.go_on_with(form.core)

    def _serving_form(self) -> Form:
        self._check_open()
        return next(form for form in self._forms if form.core.takes_runs)

    def _catch_up(self) -> None:
        """A run was not taken, since another form has taken over: use that."""
        with self._lock:
            self._use(self._serving_form())

    def _wait_to_settle(self, forms: Forms | None) -> None:
        """Note what is left of a retuning, and whether replay() need not look at anything before it calls the core."""
        self._unsettled = forms
        machine, traced = self._machine, self._process_trace
        self._plain = not (forms or self._linked or self._outside or self._params or machine._init or traced)

    def _in_flight(self) -> list[_core.Run]:
        return [run for core in self._cores for run in core.in_flight()]

    def _drop(self, run: _core.Run) -> None:
        """Nobody holds a run any more: its failure is raised at the end of a block, or logged."""
        if self._machine._core.forked:
            return  # the run is the parent's
        if self._in_block or self._machine._in_block:
            self._unretrieved.drop(run)
        elif not run.done:
            _report_at_end(run, self._executable, self._machine)

    def _take_failures(self) -> list[BaseException]:
        """Return the failures that nobody has retrieved; from then on they count as retrieved."""
        errors = []
        for core, _ in self._unretrieved.failed():
            run = cast("_core.Run", core)
            errors.append(cast(BaseException, ended(self._executable, run)))
            run.retrieve()
        return errors

    def _end(self, run: _core.Run) -> int:
        return delivered(run, ended(self._executable, run))

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
        if self._machine._init is not None:
            self._machine._prepare_caller()
        if progress or timeout is not None:
            if _core.serving():
                raise ContractError("replay inside a task: a task on a lane must not wait, the lane would stand still")
            seconds = limit(timeout)
            run = self.submit(steps, after=after, priority=priority, on_error=on_error, params=params)
            return watched(run, count(steps), progress, seconds)
        stop = stops(on_error)
        if self._process_trace is None:
            return replayed(self, steps, after, priority, stop, params, False)
        traced = cast("_core.Run", replayed(self, steps, after, priority, stop, params, True))
        self._process_trace.watch(self, traced)
        return traced


def _report_at_end(run: _core.Run, executable: Executable, machine: Machine) -> None:
    """Report how a run ended when it has, without keeping its program or its machine."""
    owner = weakref.ref(machine)

    def report() -> None:
        if run.unretrieved:
            error = cast(BaseException, ended(executable, run))
            run.retrieve()
            report_failure(owner(), error)

    if not run.set_callback(report):
        report()
