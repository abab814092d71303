"""A slot on a leased device."""

from __future__ import annotations

import dataclasses
from typing import Any

from ostinato.tune.lease.device import Device
from ostinato.tune.lease.foreign import ForeignProcesses, descendants
from ostinato.tune.lease.lease import Lease
from ostinato.tune.outcome import Outcome
from ostinato.tune.process.loop import Loop
from ostinato.tune.process.reaper import Reaper
from ostinato.tune.slots.simulated_command import SimulatedCommands
from ostinato.tune.slots.slot import Slot
from ostinato.tune.status import Status
from ostinato.tune.trial import Task

__all__ = ["Station"]


class Station(Slot):
    """A slot on a device: what runs there has the device to itself, as long as it is leased.

    Parameters
    ----------
    loop, memory, allow
        As for `Slot`.
    device
        The device.
    """

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
        others = self._foreign.pids(self._ours) if outcome.status is Status.OK else []
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
