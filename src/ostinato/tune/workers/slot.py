"""A place where one candidate at a time is built or measured."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ostinato.tune.candidate import Command
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.lease import ForeignProcesses, Lease
from ostinato.tune.leases.processes import descendants
from ostinato.tune.outcome import Outcome, Status
from ostinato.tune.policy import inherited
from ostinato.tune.trial import Task
from ostinato.tune.workers.calls import Calls
from ostinato.tune.workers.commands import Commands, SimulatedCommands
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.reaper import Lost, Reaper, Stuck

Finished = Callable[["Slot", Task, Outcome, float, float], None]
Returned = Callable[["Slot", list[Task], bool], None]


class Slot:
    """A place where one candidate at a time is built or measured: in a warm worker, or as a command.

    `environment` is added to what is inherited of this process's, which is all or what the names and patterns of
    `allow` match; `memory` is how many bytes whatever runs may take.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        *,
        environment: Mapping[str, str],
        memory: int | None,
        allow: tuple[str, ...] | None = None,
    ) -> None:
        self.name = name
        self.lost = ""
        """Why it cannot be used any more."""
        self._loop = loop
        self._environment = environment
        self._memory = memory
        self._allow = allow
        self._simulated: SimulatedCommands | None = None
        self._calls: Calls | None = None
        self._commands: Commands | None = None
        self._reapers: dict[str, Reaper] = {}
        self._surroundings: object = None  # of the worker

    def serve(self, finished: Finished, returned: Returned, stop: Callable[[str, Status], None]) -> None:
        """Serve a search, which gets outcomes, when each began and ended, and the tasks that never began."""
        if self.lost:
            self.close()
        elif self._calls is not None and self._surroundings != _surroundings():
            self._drop_calls()  # a worker of an earlier search has the surroundings of then
        if self._calls is not None:
            self._calls.begin()
        self.lost = ""  # whatever still runs since then holds the lease
        self._finished = finished
        self._returned = returned
        self._stop = stop

    @property
    def busy(self) -> bool:
        return (self._calls is not None and self._calls.busy) or (self._commands is not None and self._commands.busy)

    def room(self, call: bool, most: int = 1) -> bool:
        """Whether it takes another call, if it has fewer than `most`, or another command, if it has nothing to do."""
        if self.lost or (self._commands is not None and self._commands.busy):
            return False
        if self._calls is None:
            return True
        return self._calls.room(most) if call else not self._calls.busy

    def start(self, task: Task) -> None:
        """Do `task`, after those that were started before."""
        if task.request:
            if self._calls is None:
                self._calls = self._new_calls()
            self._calls.start(task)
        else:
            assert isinstance(task.trial.candidate, Command)
            if self._commands is None:
                self._commands = self._new_commands()
            self._commands.start(task, task.trial.candidate, {**inherited(self._allow), **self._environment})

    def deadline(self) -> float:
        """When `expire` must be called; infinity if there is no need."""
        return float("inf") if self._calls is None else self._calls.deadline()

    def expire(self) -> None:
        """Kill what is still running past its limit of time."""
        if self._calls is not None:
            self._calls.expire()

    def cancel(self) -> None:
        """Kill what runs; every task that was started is finished or returned."""
        if self._commands is not None:
            self._commands.cancel()
        if self._calls is not None:
            self._calls.cancel()

    def forget(self) -> None:
        """Drop the callables that are kept for the final."""
        if self._calls is not None:
            self._calls.forget()

    def sweep(self) -> bool:
        """Kill what the worker left running; return whether it is gone."""
        return self._calls is None or self._calls.sweep()

    def close(self) -> None:
        """End whatever runs; `lost` says so if something cannot be ended."""
        self._drop_calls()
        self._drop_commands()

    def new_reaper(self) -> Reaper:
        """Return a reaper for what runs here."""
        # What is built must not disturb what is measured on the same processors.
        return Reaper(idle_priority=True)

    def _new_calls(self) -> Calls:
        self._reapers["calls"] = self.new_reaper()
        self._surroundings = _surroundings()
        return Calls(
            self._loop,
            self._reapers["calls"],
            environment={**inherited(self._allow), **self._environment},
            memory=self._memory,
            finished=self._told,
            returned=lambda tasks, blamed: self._returned(self, tasks, blamed),
            lost=partial(self._lose, drop=self._drop_calls),
        )

    def _new_commands(self) -> Commands:
        reaper = self._reapers["commands"] = self.new_reaper()
        lost = partial(self._lose, drop=self._drop_commands)
        return Commands(self._loop, reaper, self._memory, self._simulated, self._told, lost)

    def _told(self, task: Task, outcome: Outcome, began: float) -> None:
        self._finished(self, task, outcome, began, self._loop.now())

    def _lose(self, event: Stuck | Lost, drop: Callable[[], None]) -> None:
        if isinstance(event, Stuck):
            self.lost = str(event)
        else:
            drop()  # another reaper serves as well: what this one ran died with it

    def _drop_calls(self) -> None:
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        self._close_reaper("calls")

    def _drop_commands(self) -> None:
        if self._commands is not None:
            self._commands.close()
            self._commands = None
        self._close_reaper("commands")

    def _close_reaper(self, role: str) -> None:
        if role in self._reapers:  # also if whoever it was for was never made, or an interrupt came in between
            try:
                self._reapers[role].close()
            except TimeoutError as error:
                self.lost = str(error)
            del self._reapers[role]


def _surroundings() -> object:
    """What a worker has of this process as it is now: environment, current directory, path of modules."""
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = ""
    return dict(os.environ), directory, list(sys.path)


class LeasedWorker(Slot):
    """A slot on a device: what runs there has the device to itself, as long as it is leased."""

    least_ahead = 2
    """Candidates that it may have, also when few are left."""

    def __init__(self, loop: Loop, device: Device, *, memory: int | None, allow: tuple[str, ...] | None = None) -> None:
        super().__init__(loop, device.name, environment=device.environment, memory=memory, allow=allow)
        self.device = device
        self.lease = Lease(device)
        self.leased = False
        self._foreign = ForeignProcesses(device)
        self.measuring: dict[str, Any] = {}
        """What a worker must know of the device."""
        if device.simulation is not None:
            self._simulated = SimulatedCommands(device.name, device.simulation, loop.now())
            self.measuring["simulation"] = {"device": device.name, **dataclasses.asdict(device.simulation)}
        if device.kind == "cuda":
            self.measuring["timer"] = "cuda"

    def take_lease(self) -> str:
        """Lease the device if nobody else has it; return who has it, or an empty text."""
        holder = self.lease.try_acquire()
        self.leased = holder is None
        if self.leased:
            for reaper in self._reapers.values():
                reaper.hold(self.lease.files)
        return str(holder or "")

    def room(self, call: bool, most: int = 1) -> bool:
        return self.leased and super().room(call, most)

    def release(self) -> None:
        """Give the device back. The worker of a processor stays, asleep; that of a GPU would hold its memory."""
        if not self.leased:
            return
        if self.lost or self.busy or self.device.kind not in ("cpu", "sim") or not self.sweep():
            self.close()
            return
        for reaper in self._reapers.values():
            reaper.hold(())
        self.lease.release()
        self.leased = False

    def close(self) -> None:
        super().close()
        if self.lost:
            self.lease.abandon()  # the reaper holds it until nothing runs there any more
        else:
            self.lease.release()
        self.leased = False

    def _told(self, task: Task, outcome: Outcome, began: float) -> None:
        took = self._loop.now() - began
        others = self._foreign.pids(self._ours, took) if outcome.status is Status.OK else []
        if others:
            message = f"computed on {self.name} at the same time: {', '.join(f'process {pid}' for pid in others)}"
            ops = tuple(dataclasses.replace(op, status=Status.CONTENDED, message=message) for op in outcome.ops)
            outcome = dataclasses.replace(outcome, status=Status.CONTENDED, ops=ops, message=message)
        super()._told(task, outcome, began)

    def _ours(self) -> set[int]:
        """Return the processes that run on the device for us."""
        return {pid for reaper in self._reapers.values() for pid in descendants(reaper.pid)}

    def new_reaper(self) -> Reaper:
        # The reaper holds the lease too: if this process dies, the device is free when everything on it is gone.
        return Reaper(leases=self.lease.files, cores=self.device.cores)
