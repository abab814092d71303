"""Runs that are independent of each other: each on an instance of the program of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ostinato import _core

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
        self, machine: _core.Machine, schedule: _core.Schedule, another: Callable[[], _core.Plan], enough: int
    ) -> None:
        self._machine = machine
        self._schedule = schedule
        self._another = another
        self._enough = enough
        self._all: deque[_Instance] = deque()
        self._closed = False
        self._forgotten = {"operations": 0, "blocked": 0, "runs_submitted": 0, "runs_done": 0}

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
        instance = _Instance(_core.Program(self._machine, self._schedule, self._another(), "concurrent"), waits)
        self._all.append(instance)
        return instance.core

    def rebind(self, another: Callable[[], _core.Plan]) -> None:
        """Let later runs use other plans."""
        self._another = another
        for instance in self._all:
            instance.core.rebind(another())

    def close(self) -> None:
        """Refuse further runs."""
        self._closed = True
        for instance in self._all:
            instance.core.refuse_runs()

    @property
    def cores(self) -> list[_core.Program]:
        """All instances; other threads may be submitting."""
        return [instance.core for instance in list(self._all)]

    def statistics(self) -> list[dict[str, int]]:
        """Return the counters of all instances, those that are no more included."""
        return [{**self._forgotten, "core_bytes": 0}, *(instance.core.statistics() for instance in self._all)]

    def _forget_one(self) -> None:
        """After many runs at once, get back to few instances."""
        if len(self._all) > self._enough and self._all[0].core.idle and self._all[1].core.idle:
            core = self._all.popleft().core
            counted = core.statistics()
            for name in self._forgotten:
                self._forgotten[name] += counted[name]
            core.close()


class _Instance:
    __slots__ = ("core", "waits")

    def __init__(self, core: _core.Program, waits: bool) -> None:
        self.core = core
        self.waits = waits
