"""Runs that are independent of each other: each on an instance of the program of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ostinato import _core
from ostinato.runtime.results import ProgramStatistics, counters

if TYPE_CHECKING:
    from ostinato.compiler.lower.tables import Lowered

__all__ = ["Instances"]

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
