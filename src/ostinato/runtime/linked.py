"""Runs whose submission depends on other runs of the program: concurrent ones, and a single one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from ostinato.choices import Runs
from ostinato.runtime.instances import Instances

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.lower import Lowered
    from ostinato.compiler.schedule import Scheduled

__all__ = ["LinkedRuns", "linked_runs"]

Conditions: TypeAlias = "tuple[_core.Event | None, tuple[_core.Event | None, ...]]"


def linked_runs(
    core: _core.Program, machine: _core.Machine, scheduled: Scheduled, lowered: Lowered, runs: Runs, processors: int
) -> LinkedRuns | None:
    """Return what submits the runs of a program, if it must know of its earlier ones."""
    if runs not in ("concurrent", "once"):
        return None
    instances = None
    if runs == "concurrent":
        instances = Instances(machine, scheduled.core, lowered.another, enough=2 * processors)
    return LinkedRuns(core, instances, runs == "once", scheduled.waits_outside)


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
