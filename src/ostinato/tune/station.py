"""A slot on a leased device."""

from __future__ import annotations

import dataclasses
from typing import Any

from ostinato.tune.device import Device
from ostinato.tune.lease import Lease
from ostinato.tune.loop import Loop
from ostinato.tune.reaper import Reaper
from ostinato.tune.simulated_command import SimulatedCommands
from ostinato.tune.slot import Slot

__all__ = ["Station"]


class Station(Slot):
    """A slot on a device: what runs there has the device to itself, as long as it is leased.

    Parameters
    ----------
    loop, memory
        As for `Slot`.
    device
        The device.
    """

    def __init__(self, loop: Loop, device: Device, *, memory: int | None) -> None:
        super().__init__(loop, device.name, environment=device.environment, memory=memory)
        self.device = device
        self.lease = Lease(device)
        self.leased = False
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
            for reaper in self._reapers:
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
        for reaper in self._reapers:
            reaper.hold(())
        self.lease.release()
        self.leased = False

    def close(self) -> None:
        super().close()
        self.lease.release()
        self.leased = False

    def new_reaper(self) -> Reaper:
        # The reaper holds the lease too: if this process dies, the device is free when everything on it is gone.
        return Reaper(leases=self.lease.files, cores=self.device.cores)
