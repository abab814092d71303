"""The machine to compile for in numbers: what its cores pay for working together, and the way to its devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ostinato.text import counted


@dataclass(frozen=True, kw_only=True)
class MachineModel:
    """A machine in numbers: how many cores, and what they pay for working together. All times are seconds.

    Placements are compared by it, and `Program.simulate` runs programs on it. What it says of a real machine is
    measured once per host; without that, the numbers are those of a common server.

    Parameters
    ----------
    cores
        How many threads run at once, on each node.
    transfer
        What a cache line takes from one core to another.
    poll
        A look at another lane's timeline that has long reached the value.
    switch
        From an op of one lane to an op of another lane, which another thread served last.
    wake
        From the notification of a sleeping thread until it runs.
    notify
        The part of `wake` for which the notifying thread is busy.
    native_call
        What a native task takes beside its own work.
    python_call
        What a Python task takes beside its own work.
    hand_over
        What a Python task takes longer where tasks of several threads take Python's global interpreter lock.
        Placements count it, `Program.simulate` does not.
    nodes
        How many such machines there are; lanes are spread over them in turn.
    link_latency
        What a message takes from one node to another, beside its bytes.
    link_bandwidth
        Bytes per second between two nodes.
    source
        How the numbers are known, in words; models that differ in nothing else are equal.

    Raises
    ------
    ValueError
        A number is negative, not finite, or there is nothing of what there must be.

    Examples
    --------
    >>> import ostinato as ost
    >>> model = ost.MachineModel(cores=64)
    >>> model.transfer
    1e-07
    """

    cores: int
    transfer: float = 100e-9
    poll: float = 4e-9
    switch: float = 200e-9
    wake: float = 10e-6
    notify: float = 3e-6
    native_call: float = 5e-9
    python_call: float = 0.3e-6
    hand_over: float = 3e-6
    nodes: int = 1
    link_latency: float = 2e-6
    link_bandwidth: float = 10e9
    source: str = field(default="assumed", compare=False)

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.compare):
            value = getattr(self, name)
            if name in _COUNTS:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
            elif not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a number, finite and not negative, got {value!r}")
        if self.link_bandwidth == 0:
            raise ValueError(f"link_bandwidth must be positive, got {self.link_bandwidth!r}")

    def __repr__(self) -> str:
        of_each = f"{counted(self.nodes, 'node')} of {counted(self.cores, 'core')}"
        return f"<MachineModel of {of_each}, {self.source}>"

    if TYPE_CHECKING:  # `ostinato.api` adds this: machines lie above their models

        @staticmethod
        def of(machine: Any = None) -> MachineModel: ...


_COUNTS = ("cores", "nodes")


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """The way to a device and back in numbers; all times are seconds.

    What is not measured is that of a common card.

    Parameters
    ----------
    latency
        What a copy takes beside its bytes.
    into
        Bytes per second to the device.
    out
        Bytes per second from it.
    source
        How the numbers are known, in words.

    Examples
    --------
    >>> model = DeviceModel(latency=10e-6, into=10e9, out=5e9)
    >>> f"{model.copy(1_000_000, into=False) * 1e6:.0f} us"
    '210 us'
    """

    latency: float = 20e-6
    into: float = 6e9
    out: float = 6e9
    source: str = field(default="assumed", compare=False)

    def copy(self, nbytes: int, into: bool) -> float:
        """Return the seconds that a copy of so many bytes takes, to the device or from it."""
        return self.latency + nbytes / (self.into if into else self.out)
