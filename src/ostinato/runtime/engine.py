"""The engine of a program: its executables in the core, of which one at a time is active, and the runs on them."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

from ostinato import _core
from ostinato.arguments import Runs
from ostinato.compiler.ir import Target
from ostinato.compiler.lower.lower import lower
from ostinato.compiler.pipeline.compile import compile
from ostinato.devices.device import check_usable
from ostinato.errors import ContractError
from ostinato.events import Barrier
from ostinato.graph.body import Arrive, Await, Precondition
from ostinato.runtime.arguments import After, Values, count, resolve_barriers, resolve_conditions
from ostinato.runtime.calibrate import recall_host
from ostinato.runtime.outcome import MUST_NOT_WAIT, deliver, ended, outcome, wait_for_all
from ostinato.runtime.run import Unretrieved
from ostinato.runtime.workers import report_at_end
from ostinato.view.activity import is_observed

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costing, Costs
    from ostinato.compiler.ir import Executable
    from ostinato.compiler.lower.tables import Lowered
    from ostinato.graph.graph import Graph
    from ostinato.graph.messages import Group
    from ostinato.graph.ring import Ring
    from ostinato.ranks.shared import SharedRuns
    from ostinato.runtime.rebind import Rebinding
    from ostinato.runtime.trace import ProcessTrace
    from ostinato.runtime.workers import Workers
    from ostinato.view.trace import Trace


class DeviceStatistics(NamedTuple):
    """A snapshot of what a program has put on the streams of a device."""

    name: str
    """Of the device."""
    calls: int
    """Tasks and fills issued."""
    copies: int
    """Copies issued, those that the program makes of its own included."""
    copied_bytes: int
    """The bytes that they move."""
    launches: int
    """How often several of these, captured before, were issued as one."""


class ProgramStatistics(NamedTuple):
    """A snapshot of a program's counters."""

    operations: int
    """Operations run or skipped since the program was compiled, as far as they have been published."""
    blocked: int
    """How often a lane had to wait for another."""
    runs_submitted: int
    runs_done: int
    core_bytes: int
    """The memory that the compiled program uses in the core, in bytes."""
    devices: tuple[DeviceStatistics, ...] = ()
    """The work that was put on each device that the program uses."""

    @classmethod
    def sum(cls, parts: Iterable[Mapping[str, Any]]) -> ProgramStatistics:
        """Return the sums of the counters of several instances."""
        parts = list(parts)
        devices = []
        found = sorted(each for part in parts for each in part.get("devices", ()))
        for name, those in groupby(found, key=itemgetter(0)):
            _, *counts = zip(*those, strict=True)
            devices.append(DeviceStatistics(name, *map(sum, counts)))
        sums = {name: sum(part[name] for part in parts) for name in cls._fields[:-1]}
        return cls(**sums, devices=tuple(devices))


def counters(core: _core.Program, lowered: Lowered | None) -> dict[str, Any]:
    """Return the counters of a program of the core, with those of the streams of its plan."""
    streams = [] if lowered is None else lowered.streams
    names = [] if lowered is None else lowered.stream_names
    devices = (DeviceStatistics(name, *stream.counts) for name, stream in zip(names, streams, strict=True))
    return {**core.statistics(), "devices": tuple(devices)}


_LOOKED_AT = 8
"""So many instances are asked whether they are idle; where all runs wait, asking each would take ever longer."""


class Instances:
    """Instances of one schedule: lanes and calls of their own, on the same arrays.

    A run that may wait for something outside gets an instance that is idle: whatever it waits for may be another run.
    Others are spread over `enough` instances; more than threads can serve would gain nothing. `another` makes a plan
    that can be used besides others. The caller lets only one thread at a time in.
    """

    def __init__(
        self, machine: _core.Machine, schedule: _core.Schedule, another: Callable[[], Lowered], enough: int
    ) -> None:
        self._machine = machine
        self._schedule = schedule
        self._another = another
        self._enough = enough
        self._all: deque[_Instance] = deque()  # those used longest ago first
        self._closed = False
        self._forgotten: dict[str, Any] = {}
        self._spared = 0  # so many runs in a row had two idle instances to choose from

    def take(self, waits: bool) -> _core.Program:
        """Return the instance for one more run, which is submitted next; `waits`: it may wait for something outside."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        instances, enough = self._all, self._enough
        if len(instances) > enough:
            self._forget_one()
        spreads = not waits and len(instances) >= enough
        if spreads and not instances[0].waits:  # as a rule
            instances.rotate(-1)
            return instances[-1].core
        for _ in range(min(len(instances), _LOOKED_AT)):
            instance = instances[0]
            instances.rotate(-1)
            if (spreads and not instance.waits) or instance.core.idle:
                instance.waits = waits
                return instance.core
        lowered = self._another()
        core = _core.Program(self._machine, self._schedule, lowered.plan, "concurrent")
        self._all.append(_Instance(core, lowered, waits))
        return core

    def rebind(self, another: Callable[[], Lowered]) -> None:
        self._another = another
        for instance in self.all():
            self._remember(instance, ended=False)
            instance.lowered = another()
            instance.core.rebind(instance.lowered.plan)

    def close(self) -> None:
        self._closed = True
        for instance in self.all():
            instance.core.refuse_runs()

    def all(self) -> list[_Instance]:
        """Return all instances; other threads may be submitting."""
        while True:
            try:
                return list(self._all)
            except RuntimeError:  # without an interpreter lock, the queue may turn while it is copied
                continue

    def statistics(self) -> list[dict[str, Any]]:
        """Return the counters of all instances, those that are no more included."""
        forgotten = [self._forgotten] if self._forgotten else []
        return [*forgotten, *(counters(instance.core, instance.lowered) for instance in self.all())]

    def _forget_one(self) -> None:
        """After many runs at once, get back to few instances: when as many runs as there are did without this one."""
        if not (self._all[0].core.idle and self._all[1].core.idle):
            self._spared = 0
            return
        self._spared += 1
        if self._spared > len(self._all):
            instance = self._all.popleft()
            self._remember(instance, ended=True)
            instance.core.close()

    def _remember(self, instance: _Instance, ended: bool) -> None:
        """Keep the counters of an instance that ends, or that gets other streams."""
        found = counters(instance.core, instance.lowered)
        found = {**(found if ended else dict.fromkeys(found, 0)), "core_bytes": 0, "devices": found["devices"]}
        self._forgotten = ProgramStatistics.sum([found, *([self._forgotten] if self._forgotten else [])])._asdict()


class _Instance:
    __slots__ = ("core", "lowered", "waits")

    def __init__(self, core: _core.Program, lowered: Lowered, waits: bool) -> None:
        self.core, self.lowered, self.waits = core, lowered, waits


_Given: TypeAlias = "tuple[_core.Event | None, tuple[_core.Event | None, ...], tuple[_core.Barrier, ...], int, None]"


_LINKED = ("concurrent", "once")
"""Relations of runs for which submitting a run depends on the earlier ones."""


class LoadedExecutable:
    """An executable on a machine: lowered onto arrays, and instantiated in the core.

    If there is an `other` executable of the same program, which may have run, the new one is passive.
    """

    def __init__(
        self,
        workers: Workers,
        executable: Executable,
        binding: Rebinding | None,
        runs: Runs,
        other: LoadedExecutable | None,
    ) -> None:
        for device in executable.step.used_devices:
            check_usable(device)
        self.executable = executable
        self._last: dict[str, Any] | None = None
        self._processors = len(workers.cpus)
        outside = None if other is None else other.lowered.outside
        self.lowered: Lowered = lower(executable, self._processors, binding, outside)
        self.values = Values(executable.step.params, self.lowered, executable.preconditions)
        kind = "serial" if runs == "serial" else "pipelined"
        self.core: _core.Program = _core.Program(workers.core, executable.core, self.lowered.plan, kind)
        if other is not None:
            self.core.make_passive()

    def rebind(self, detached: Executable, binding: Rebinding) -> None:
        """Run on other arrays from the next run on; the nodes of `detached` need not hold the old arrays."""
        self.executable = self.executable.on_nodes_of(detached)
        lowered = self.lowered
        self.lowered = lower(self.executable, self._processors, binding, lowered.outside, lowered.streams)
        self.values = Values(self.executable.step.params, self.lowered, self.executable.preconditions)
        self.core.rebind(self.lowered.plan)

    def statistics(self) -> dict[str, Any]:
        """Return its counters."""
        return counters(self.core, self.lowered) if self._last is None else self._last

    def release(self, *, keep_counters: bool) -> None:
        """Forget the plan, and with it the arrays; in a forked child, the counters too."""
        if keep_counters:
            self._last = self.statistics()
        self.lowered, self.values = cast("Lowered", None), cast(Values, None)


def _process_trace() -> ProcessTrace | None:
    """Return what traces the programs that are made now, if the environment of the process asks for it."""
    if not (is_observed() and os.environ.get("OSTINATO_TRACE")):
        return None
    from ostinato.runtime.trace import process_trace

    return process_trace()


_CLOSED = "this program is closed"
_numbers = itertools.count()


class Adapts(Protocol):
    """What chooses the schedules that replays run on, turn by turn."""

    def replay(
        self,
        steps: int,
        priority: int,
        stops: bool,
        values: list[float] | None,
        objects: list[object] | None,
        given: _Given | None,
        traced: bool,
    ) -> object: ...
    def stop(self) -> None: ...
    def wait(self, cancel: bool) -> None: ...
    def describe(self) -> list[str]: ...


class Engine:
    """Gives runs of one program to the core; it outlives its `Program` while anybody holds a run.

    Attributes
    ----------
    core, executable, lowered
        Of the loaded executable that is active, as far as known: the core knows which one takes runs. `lowered` is None
        once the program is closed.
    kept
        The executable that is to stay; while a program is retuned, another one may be active.
    group
        The ranks that the program has messages between, or whose arrays it uses; None where there are none.
    binding
        Which arrays stand for those captured; None for themselves.
    direct
        The program of the core that a replay without options calls at once; None where a replay needs more.
    gives_plainly
        Whether the core may read what a run is given.
    shared
        What other ranks take part in; None: no run.
    adapter
        What runs the replays that the core does not take since a turn of the executable is over; None: nothing does.
    unrolled
        Several steps of the executable that is kept, as one, which the adapter may run while it holds the program; None
        if there is none.
    """

    core: _core.Program
    executable: Executable
    direct: _core.Program | None = None
    adapter: Adapts | None = None
    shared: SharedRuns | None = None
    unrolled: LoadedExecutable | None = None
    _is_plain = False

    def __init__(self, graph: Graph, workers: Workers, threads: int, costing: Costing, runs: Runs) -> None:
        self.workers, self.threads, self.runs = workers, threads, runs
        self.group = graph.group
        self.number = next(_numbers)
        self.unretrieved = Unretrieved()
        self.binding: Rebinding | None = None  # made with the first rebind
        processors = len(workers.cpus)
        if graph.group is not None and runs not in ("pipelined", "once"):
            raise ValueError(f"runs must be 'pipelined' or 'once' for a program of ranks, got {runs!r}")
        made = compile(graph, Target(processors, threads, recall_host(processors), workers.devices), costing)
        self.kept = LoadedExecutable(workers, made, None, runs, None)
        self._loaded = [self.kept]
        self._retired: list[dict[str, Any]] = []  # counters of executables that are no more
        self._use(self.kept)
        if graph.group is not None:
            self._join(graph.group, made)
        self._instances = None  # of runs that are concurrent
        if runs == "concurrent":
            self._instances = Instances(workers.core, made.core, self.lowered.another, enough=2 * processors)
        self._submitting = threading.Lock()  # of runs whose submission depends on earlier ones
        self._next_step, self._has_run = 0, False
        waiting = made.step.operations.outside.nonzero()[0].tolist()
        self._waits_outside = bool(waiting)
        self._always_waits = any(not isinstance(made.step.nodes[op].body, Precondition) for op in waiting)
        self._needs_events = bool(made.preconditions or self.lowered.barriers)  # of each run
        self._lock = threading.RLock()  # rebind, close, and which executable is active
        self.retuning = threading.Lock()
        self.closed = self._ended = self.in_block = False
        self.process_trace = _process_trace()
        self._unsettled = False  # whether a retuning left something to be done
        self._find_plain()
        workers.engines.add(self)
        workers.check_open()  # again: if it was closed meanwhile, that did not find this program

    def _join(self, group: Group, made: Executable) -> None:
        """Let the ranks that the program has messages between take part in its runs."""
        from ostinato.ranks.channels import find_ends  # here: few programs have ranks, traces or several instances
        from ostinato.ranks.shared import SharedRuns

        edges = made.step.edges
        triples = zip(edges.src.tolist(), edges.dst.tolist(), edges.distance.tolist(), strict=True)
        traffic = self.lowered.traffic or _core.messages.Traffic(group.messenger)
        group.open_channels(find_ends(made.step.nodes, triples), made.step.common, traffic)
        self.core.join(traffic)
        if group.agreement is not None:
            self.shared = SharedRuns(
                group.agreement, group.rank, made.step.nodes, traffic, outcome, self.core.in_flight
            )

    @property
    def depends_on_others(self) -> bool:
        """Whether its steps wait for what is outside, or its runs are given events or barriers."""
        return self._needs_events or self._waits_outside

    @property
    def lowered(self) -> Lowered:
        return self._active.lowered

    @property
    def plans(self) -> list[_core.Plan]:
        """The plans that runs use now; none once the program is closed."""
        lowered: Lowered | None = self.lowered
        others = [] if self._instances is None else self._instances.all()
        return [] if lowered is None else [lowered.plan, *(instance.lowered.plan for instance in others)]

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self.core.steps_run if self._instances is None else self._next_step

    @property
    def cores(self) -> list[_core.Program]:
        """All programs of the core."""
        instances = [] if self._instances is None else self._instances.all()
        unrolled = [] if self.unrolled is None else [self.unrolled]
        return [loaded.core for loaded in (*self._loaded, *unrolled)] + [instance.core for instance in instances]

    @property
    def steps_run(self) -> int:
        """How many steps all of them have run."""
        instances = [] if self._instances is None else self._instances.all()
        return sum(
            core.steps_run for core in [*(each.core for each in self._loaded), *(each.core for each in instances)]
        )

    @cached_property
    def rings(self) -> weakref.WeakSet[Ring]:
        """The rings whose elements the program uses."""
        ops = self.executable.step.nodes
        return weakref.WeakSet(each.ring.ring for op in ops for each in op.operands if each.ring is not None)

    def check_open(self) -> None:
        """Raise if no run can be submitted."""
        if self.closed:
            raise RuntimeError(_CLOSED)
        self.workers.check_open()

    def in_flight(self) -> list[_core.Run]:
        """Return the runs that have not ended."""
        return [run for core in self.cores for run in core.in_flight()]

    def values(self, params: Mapping[str, Any]) -> tuple[list[float] | None, list[object] | None]:
        """Return the values of a run's parameters: for native tasks, and for others."""
        if self.closed:
            self.check_open()
        if not (params or self.executable.step.params):
            return None, None
        values: Values | None = self._active.values
        if values is None:  # another thread has closed the program meanwhile
            raise RuntimeError(_CLOSED)
        return values.of(params)

    def submit_plainly(
        self, steps: int, priority: int, stops: bool, after: After, params: dict[str, Any]
    ) -> _core.Run | None:
        """Submit a run whose arguments the core can read; None if it cannot, or `submit` must do it for another reason.

        Only where `gives_plainly`.
        """
        if self.closed:
            self.check_open()
        loaded = self._active
        values: Values | None = loaded.values
        if values is None or values.form is None:
            return None
        if self._instances is None:
            run: Any = loaded.core.submit_given(steps, priority, stops, values.form, after, params)
            return None if run is NotImplemented else run
        with self._submitting:
            waits = self._always_waits or (after is not None and not _core.all_happened(after))
            core = self._instances.take(waits)
            run = core.submit_given(steps, priority, stops, values.form, after, params, self._next_step)
            if run is None or run is NotImplemented:
                return None
            self._has_run = True
            self._next_step += steps
        return cast("_core.Run", run)

    def submit(
        self,
        steps: int,
        after: After,
        priority: int,
        stops: bool,
        params: Mapping[str, Any],
        traced: bool,
        *,
        waits: bool = False,
    ) -> Any:
        """Submit a run, and return it at once; `stops` says whether a failure lets no further step begin.

        If the caller `waits` for its end, return as `_core.Program.replay` does: the number of steps run, or the run if
        it may fail. A task must not.
        """
        started, steps = None, count(steps)
        while started is None:
            if self._unsettled:
                self.settle(if_due=True)
            if self.runs in _LINKED or self.shared is not None:
                if waits and _core.serving():
                    raise ContractError(f"replay inside a task: {MUST_NOT_WAIT}")
                with nullcontext() if self.shared is None else self.shared.part():
                    core, run = self._submit_in_turn(steps, after, priority, stops, params, traced)
                started = core.follow(run) if waits and run is not None else run
            else:
                start = self.core.replay if waits else self.core.submit
                values, objects = self.values(params)
                given = self._given(after, params)
                started = start(steps, priority, stops, values, objects, given, traced)
                adapter = self.adapter
                if started is None and waits and adapter is not None:
                    started = adapter.replay(steps, priority, stops, values, objects, given, traced)
            if started is None:
                self.catch_up()
        return started

    def trace(self, run: _core.Run) -> Trace:
        """Return the trace of a traced run that has ended."""
        from ostinato.runtime.trace import make_trace

        return make_trace(run, self.executable, self.workers)

    @property
    def shared_messages(self) -> frozenset[tuple[bool, int]]:
        """Whether messages are sent, and the other rank, of those that memory carries; none once it is closed."""
        lowered: Lowered | None = self.lowered
        if lowered is None or lowered.traffic is None or self.group is None:
            return frozenset()
        channels, alone = lowered.traffic.channels(), self.group.size == 1
        return frozenset((each.sends, each.peer) for each in channels if each.is_shared or alone)

    def trace_of_ranks(self, run: _core.Run) -> Trace:
        """Return the trace of a run that all ranks have traced; all call it."""
        own = self.trace(run)
        if self.shared is None:
            return own
        from ostinato.runtime.trace import gather_traces

        assert self.group is not None
        traffic = self.lowered.traffic
        return gather_traces(own, self.executable.step.nodes, self.group, traffic.channels() if traffic else ())

    def note_run(self) -> None:
        """Take note of a run outside the core; raise if the program may be run once, and has been."""
        with self._submitting:
            self._check_once()
            self._has_run = True

    def number_from(self, step: int) -> bool:
        """Give the next step a number; False if a run is in flight."""
        with self._submitting:
            self._next_step = step
        return all([loaded.core.number_from(step) for loaded in self._loaded])

    def reset(self, step: int) -> None:
        """Give the next step a number; see `Program.reset`."""
        with self._lock:
            self.check_open()
            bodies = (op.body for op in self.executable.step.nodes)
            if any(isinstance(body, Arrive | Await) and isinstance(body.barrier, Barrier) for body in bodies):
                raise RuntimeError(
                    "a program that uses a barrier cannot be reset: the barrier's phases go by step numbers; give the "
                    "barrier as a parameter (ostinato.param)"
                )
            if self.in_flight() or not self.number_from(step):
                raise RuntimeError("a run is in flight: reset the program when its runs have ended")

    def rebind(self, arrays: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Let other arrays stand for those captured; see `Program.rebind`."""
        from ostinato.runtime.rebind import Rebinding, detach

        with self._lock:
            self.check_open()
            _ = self.rings  # which the ops will not know any more
            detached = self.executable if self.binding is not None else detach(self.executable)
            binding = (self.binding or Rebinding.of(self.executable.step.recorded.nodes)).rebound(arrays)
            self.drop_unrolled()
            for loaded in self._loaded:
                loaded.rebind(detached, binding)
            self.binding = binding
            self._use(self._find_active())
            if self._instances is not None:
                with self._submitting:
                    self._instances.rebind(self.lowered.another)

    def statistics(self) -> ProgramStatistics:
        """Return a snapshot of counters."""
        with self._submitting:
            instances = [] if self._instances is None else self._instances.statistics()
        with self._lock:
            unrolled = [] if self.unrolled is None else [self.unrolled]
            present = [loaded.statistics() for loaded in (*self._loaded, *unrolled)]
            return ProgramStatistics.sum([*present, *self._retired, *instances])

    def outcome_of(self, run: _core.Run) -> int | BaseException:
        own = ended(self.executable, run)
        return own if self.shared is None else self.shared.outcome_of(run, own)

    def deliver(self, run: _core.Run) -> int:
        """Return how many steps a run made that has ended, or raise what it ended with."""
        return deliver(run, self.outcome_of(run))

    def drop(self, run: _core.Run) -> None:
        """Nobody holds a run any more: its failure is raised at the end of a block, or logged."""
        if self.workers.core.forked:
            return  # the run is the parent's
        if self.in_block or self.workers.in_block:
            self.unretrieved.drop(run, self.outcome_of)
        elif not run.done:
            report_at_end(self.workers, run, partial(ended, self.executable))

    def take_failures(self) -> list[BaseException]:
        """Return the failures that nobody has retrieved; from then on they count as retrieved."""
        return self.unretrieved.take(self.outcome_of)

    def close(self, cancel: bool) -> None:
        """Wait for the runs, cancelled before if `cancel`, and let go of the arrays."""
        try:
            self._close(cancel)
        except BaseException:  # interrupted: other ranks do not wait for this one
            if self.closed and self.shared is not None and not self.workers.core.forked:
                self.shared.close(wait=False)
            raise

    def _close(self, cancel: bool) -> None:
        forked = self.workers.core.forked
        with self._lock:
            if self._ended:
                return
            if _core.serving() or (not forked and any(core.in_own_task for core in self.cores)):
                raise ContractError("a task cannot close a program: that waits for its runs, of which it may be part")
            self.closed = True
            self.direct = None
        if not forked:
            unrolled = [] if self.unrolled is None else [self.unrolled]
            for loaded in (*self._loaded, *unrolled):  # before looking which there are: other threads may be submitting
                loaded.core.refuse_runs()
            if self._instances is not None:
                with self._submitting:
                    self._instances.close()
            if self.adapter is not None:
                self.adapter.wait(cancel)
            if cancel:
                for run in self.in_flight():
                    run.cancel()
            wait_for_all(self.in_flight(), cancel)  # interrupted, this may be called again
        for core in self.cores:
            core.close()
        if self.unrolled is not None:
            self.unrolled.release(keep_counters=not forked)
        for loaded in self._loaded:
            loaded.release(keep_counters=not forked)
        self.binding = self.adapter = None
        self._ended = True
        if self.shared is not None and not forked:
            self.shared.close(wait=not cancel)

    def __del__(self) -> None:
        if self.workers.core.forked:
            return
        for error in self.take_failures():
            self.workers.keep_failure(error)
        in_flight = self.unretrieved.in_flight()
        if not in_flight:
            return  # perhaps it was never compiled
        from ostinato.runtime.rebind import detach

        explain = partial(ended, detach(self.executable))  # arrays end with their runs
        for run in in_flight:
            report_at_end(self.workers, run, explain)

    # For retuning. An executable takes the place of another one where neither has runs in flight, at once: a run that
    # is submitted to the other one meanwhile is not taken, and submitted to this one.

    def begin_retuning(self) -> None:
        """Leave to this retuning what an earlier one left to be done, and what adapting would do."""
        if self.adapter is not None:
            self.adapter.stop()
            self.adapter = None
        with self._lock:
            self._unsettled = False

    def add(self, executable: Executable) -> LoadedExecutable:
        """Load another schedule of the same nodes; it is passive."""
        with self._lock:
            self.check_open()
            executable = executable.on_nodes_of(self.kept.executable)
            self._loaded.append(LoadedExecutable(self.workers, executable, self.binding, self.runs, self._loaded[0]))
            return self._loaded[-1]

    def learn(self, costs: Costs, step_seconds: float) -> None:
        """Let the executable that is to stay know what its ops take, and what its step should take."""
        with self._lock:
            self.check_open()
            self.kept.executable = self.kept.executable.with_costs(costs, step_seconds)
            self._use(self._find_active())

    def switch(self, loaded: LoadedExecutable) -> bool:
        """Have an executable take runs from now on; False if it cannot, since runs are in flight, or it is closed."""
        with self._lock:
            if self.closed:
                return False
            active = self._find_active()
            if active is not loaded and not loaded.core.switch_from(active.core):
                return False
            self._use(loaded)
            return True

    def settle(self, if_due: bool = False) -> None:
        """Drop all executables but the one that is to stay: now, or as soon as that can be switched to."""
        with self._lock:
            if self.closed or (if_due and not self._unsettled):  # done meanwhile, or another retuning has begun
                return
            self._unsettled = not self.switch(self.kept)
            if not self._unsettled:
                for loaded in [each for each in self._loaded if each is not self.kept]:
                    self.unload(loaded)
            self._find_plain()

    def unload(self, loaded: LoadedExecutable) -> None:
        """Forget an executable that is neither active nor to stay."""
        with self._lock:
            self._loaded.remove(loaded)
            ended = {**loaded.statistics(), "core_bytes": 0}
            self._retired = [ProgramStatistics.sum([*self._retired, ended])._asdict()]
            loaded.core.close()

    def unroll(self, executable: Executable) -> bool:
        """Load several steps as one; False if other arrays stand for those captured."""
        with self._lock:
            self.check_open()
            if self.binding is None:
                self.unrolled = LoadedExecutable(self.workers, executable, None, self.runs, None)
            return self.binding is None

    def drop_unrolled(self) -> None:
        """Forget several steps as one; a replay that is running them goes on to its end."""
        with self._lock:
            if self.unrolled is not None:
                ended = {**self.unrolled.statistics(), "core_bytes": 0}
                self._retired = [ProgramStatistics.sum([*self._retired, ended])._asdict()]
                self.unrolled = None

    def catch_up(self) -> None:
        """A run was not taken, since another executable is active: use that."""
        with self._lock:
            self._use(self._find_active())

    def _use(self, loaded: LoadedExecutable) -> None:
        """Submit further runs to this executable."""
        self._active, self.core, self.executable = loaded, loaded.core, loaded.executable
        self.direct = loaded.core if self._is_plain else None

    def _find_active(self) -> LoadedExecutable:
        self.check_open()
        return next(loaded for loaded in self._loaded if loaded.core.takes_runs)

    def _find_plain(self) -> None:
        prepares, traced = self.workers.prepare_caller, self.process_trace
        options = self.shared is not None or self._needs_events or self.executable.step.params or prepares or traced
        self._is_plain = not (self._unsettled or self.runs in _LINKED or options)
        self.direct = self.core if self._is_plain and not self.closed else None
        self.gives_plainly = not (self._unsettled or self.runs == "once" or self.shared is not None or traced)

    def _given(self, after: After, params: Mapping[str, Any]) -> _Given | None:
        """What a run is given of what is outside."""
        if after is None and not self._needs_events:
            return None
        start, events = resolve_conditions(self.executable.preconditions, after)
        return start, events, self._barriers(params), -1, None

    def _barriers(self, params: Mapping[str, Any]) -> tuple[_core.Barrier, ...]:
        """Return the barriers among a run's parameters; another thread may have closed the program meanwhile."""
        lowered: Lowered | None = self._active.lowered
        if lowered is None:
            raise RuntimeError(_CLOSED)
        return resolve_barriers(lowered, params) if lowered.barriers else ()

    def _submit_in_turn(
        self, steps: int, after: After, priority: int, stops: bool, params: Mapping[str, Any], traced: bool
    ) -> tuple[_core.Program, _core.Run | None]:
        """Submit a run, and return the program of the core that it is a run of, too."""
        values, objects = self.values(params)
        barriers = self._barriers(params)
        if self.shared is not None and params:
            self.shared.check_parameters(params)
        start, events = resolve_conditions(self.executable.preconditions, after)
        with self._submitting:
            if self._has_run:
                self._check_once()
            core, first = self.core, -1
            if self._instances is not None:
                waits = self._always_waits or (start is not None and not start.done)
                for event in events:
                    if event is not None and not event.done:
                        waits = True
                core, first = self._instances.take(waits), self._next_step
            given = (start, events, barriers, first, None)
            run = self._submit(core, steps, priority, stops, values, objects, given, traced)
            if run is not None:
                self._has_run = True
                self._next_step += steps
            return core, run

    def _submit(self, core: _core.Program, steps: int, priority: int, stops: bool, *more: Any) -> _core.Run | None:
        if self.shared is None:
            return core.submit(steps, priority, stops, *more)
        return self.shared.begin(lambda: cast("_core.Run", core.submit(steps, priority, stops, *more)), steps, stops)

    def _check_once(self) -> None:
        if self.runs == "once" and self._has_run:
            raise RuntimeError('this program was compiled with runs="once", and has been run')
