"""Devices: what a candidate runs on, by name and by identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Device", "Simulation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a ``sim:`` device does to the candidates that run on it.

    Parameters
    ----------
    latency
        Seconds added to each call: it really takes them.
    noise
        Relative standard deviation of the times it reports.
    drift
        Relative change of the times it reports per second.
    crash, hang
        Probabilities that a candidate dies, or never ends, on it; the same candidate always fares the same.
    """

    latency: float = 0.0
    noise: float = 0.0
    drift: float = 0.0
    crash: float = 0.0
    hang: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device.

    Attributes
    ----------
    name
        As it was asked for, such as ``"cpu:0"`` or ``"cuda:1"``.
    kind
        ``"cpu"``, ``"cuda"``, ``"hip"`` or ``"sim"``.
    identities
        What is leased: names that are the same for everybody on this host. One per core, GPU or MIG instance.
    model
        What results hold for, such as the processor's model name.
    driver
        Version of the driver; empty if there is none.
    environment
        Variables that select the device in a child process.
    cores
        Cores that a child process is bound to; None: not bound.
    simulation
        For ``sim:`` devices.
    """

    name: str
    kind: str
    identities: tuple[str, ...]
    model: str
    driver: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] | None = None
    simulation: Simulation | None = None
