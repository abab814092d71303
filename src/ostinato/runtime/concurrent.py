"""Runs whose submission depends on other runs of the program: concurrent ones, and a single one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ostinato import _core
from ostinato.arguments import Runs
from ostinato.runtime.results import ProgramStatistics, counters

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable
    from ostinato.compiler.lower.tables import Lowered

__all__ = ["Instances", "LinkedRuns", "linked_runs"]

_LOOKED_AT = 8
"""So many instances are asked whether they are idle; where all runs wait, asking each would take ever longer."""


class Instances:
    """Instances of one schedule: lanes and calls of their own, on the same arrays.

    A run that may wait for something outside gets an instance that is idle: whatever it waits for may be another run.
    Others are spread over a few instances; more than threads can serve would gain nothing. The caller sees to it that
    only one thread at a time is in here.

    Parameters
    ----------
    machine, schedule
        What instances are made of.
    another
        Makes a plan that can be used besides others.
    enough
        How many instances keep the machine busy.
    """

    def __init__(
        self, machine: _core.Machine, schedule: _core.Schedule, another: Callable[[], Lowered], enough: int
    ) -> None:
        self._machine = machine
        self._schedule = schedule
        self._another = another
        self._enough = enough
        self._all: deque[_Instance] = deque()
        self._closed = False
        self._forgotten: dict[str, Any] = {}

    def take(self, waits: bool) -> _core.Program:
        """Return the instance for one more run, which is submitted next; `waits`: it may wait for something outside."""
        if self._closed:
            raise RuntimeError("this program is closed")
        self._forget_one()
        for _ in range(min(len(self._all), _LOOKED_AT)):  # those used longest ago
            instance = self._all[0]
            self._all.rotate(-1)
            if instance.core.idle or not (waits or instance.waits or len(self._all) < self._enough):
                instance.waits = waits
                return instance.core
        lowered = self._another()
        core = _core.Program(self._machine, self._schedule, lowered.plan, "concurrent")
        instance = _Instance(core, lowered, waits)
        self._all.append(instance)
        return instance.core

    def rebind(self, another: Callable[[], Lowered]) -> None:
        """Let later runs use other plans."""
        self._another = another
        for instance in self._all:
            self._remember(instance, ended=False)
            instance.lowered = another()
            instance.core.rebind(instance.lowered.plan)

    def close(self) -> None:
        """Refuse further runs."""
        self._closed = True
        for instance in self._all:
            instance.core.refuse_runs()

    @property
    def cores(self) -> list[_core.Program]:
        """All instances; other threads may be submitting."""
        return [instance.core for instance in list(self._all)]

    @property
    def plans(self) -> list[_core.Plan]:
        """Those of all instances."""
        return [instance.lowered.plan for instance in list(self._all)]

    def statistics(self) -> list[dict[str, Any]]:
        """Return the counters of all instances, those that are no more included."""
        forgotten = [self._forgotten] if self._forgotten else []
        return [*forgotten, *(counters(instance.core, instance.lowered) for instance in self._all)]

    def _forget_one(self) -> None:
        """After many runs at once, get back to few instances."""
        if len(self._all) > self._enough and self._all[0].core.idle and self._all[1].core.idle:
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
        self.core = core
        self.lowered = lowered
        self.waits = waits


Conditions: TypeAlias = "tuple[_core.Event | None, tuple[_core.Event | None, ...]]"


def linked_runs(
    core: _core.Program, machine: _core.Machine, executable: Executable, lowered: Lowered, runs: Runs, processors: int
) -> LinkedRuns | None:
    """Return what submits the runs of a program, if it must know of its earlier ones."""
    if runs not in ("concurrent", "once"):
        return None
    instances = None
    if runs == "concurrent":
        instances = Instances(machine, executable.core, lowered.another, enough=2 * processors)
    return LinkedRuns(core, instances, runs == "once", bool(executable.step.operations.outside.any()))


class LinkedRuns:
    """Submits runs, one at a time."""

    def __init__(
        self,
        core: _core.Program,
        instances: Instances | None,
        once: bool,
        waits_outside: bool,
    ) -> None:
        self._core = core
        self._instances = instances
        self._once = once
        self._waits_outside = waits_outside
        self._next_step = 0
        self._submitted = False
        self._lock = threading.Lock()

    def submit(
        self,
        steps: int,
        priority: int,
        stops: bool,
        values: list[float] | None,
        objects: list[object] | None,
        after: Conditions,
        barriers: tuple[_core.Barrier, ...],
        traced: bool,
    ) -> tuple[_core.Program, _core.Run | None]:
        """Submit a run, and return the instance of the program that it is a run of, too.

        The run is None where another program of the core has taken over.

        Raises
        ------
        RuntimeError
            The program may be run once, and has been; or it is closed.
        """
        with self._lock:
            self._check_once()
            core, first = self._core, -1
            if self._instances is not None:
                waits = after[0] is not None or bool(after[1]) or self._waits_outside
                core, first = self._instances.take(waits), self._next_step
            run = core.submit(steps, priority, stops, values, objects, (*after, barriers, first, None), traced)
            if run is None:
                return core, None
            self._submitted = True
            self._next_step += steps
            return core, run

    @property
    def next_step(self) -> int | None:
        """The number of the next step, where runs get their numbers when they are submitted; else None."""
        return None if self._instances is None else self._next_step

    def number_from(self, step: int) -> None:
        """Give the next step a number."""
        with self._lock:
            self._next_step = step

    def note_run(self) -> None:
        """Take note of a run that needs no submission.

        Raises
        ------
        RuntimeError
            The program may be run once, and has been.
        """
        with self._lock:
            self._check_once()
            self._submitted = True

    def _check_once(self) -> None:
        if self._once and self._submitted:
            raise RuntimeError('this program was compiled with runs="once", and has been run')

    def go_on_with(self, core: _core.Program) -> None:
        """Submit later runs to another program of the core."""
        self._core = core

    def rebind(self, lowered: Lowered) -> None:
        """Let later runs use another plan."""
        with self._lock:
            if self._instances is not None:
                self._instances.rebind(lowered.another)

    def refuse_runs(self) -> None:
        """Let no more runs be submitted."""
        with self._lock:
            if self._instances is not None:
                self._instances.close()

    def statistics(self) -> list[dict[str, Any]]:
        """Return the counters of the instances of the program besides the first."""
        with self._lock:
            return [] if self._instances is None else self._instances.statistics()

    @property
    def cores(self) -> list[_core.Program]:
        """The instances of the program besides the first."""
        return [] if self._instances is None else self._instances.cores

    @property
    def plans(self) -> list[_core.Plan]:
        """The plans of those."""
        return [] if self._instances is None else self._instances.plans
