"""Devices that candidates are measured on, and their names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields


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
        Relative growth of the times it reports per second.
    crash, hang
        Probabilities that a candidate dies, or never ends, on it; the same candidate always fares the same.

    Raises
    ------
    ValueError
        If a value is negative or not finite, or a probability is above 1.

    Examples
    --------
    >>> Simulation(latency=0.01, crash=0.05)
    Simulation(latency=0.01, noise=0.0, drift=0.0, crash=0.05, hang=0.0)
    """

    latency: float = 0.0
    noise: float = 0.0
    drift: float = 0.0
    crash: float = 0.0
    hang: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency", "noise", "drift"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value!r}")
        for name in ("crash", "hang"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be a probability, from 0 to 1, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device.

    Attributes
    ----------
    name
        As it was asked for, such as ``"cpu:0"`` or ``"cuda:1"``.
    kind
        ``"cpu"``, ``"cuda"``, ``"hip"``, ``"opencl"`` or ``"sim"``.
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
    host
        The host of a fleet that it belongs to; empty for this one.
    """

    name: str
    kind: str
    identities: tuple[str, ...]
    model: str
    driver: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    cores: frozenset[int] | None = None
    simulation: Simulation | None = None
    host: str = ""

    def apart(self, other: Device) -> bool:
        """Return whether both are of one model, and what runs on one does not disturb what runs on the other.

        Cores share caches and the memory's bandwidth; an OpenCL device may be made of them.

        Examples
        --------
        >>> one, other = (Device(name=f"sim:{n}", kind="sim", identities=(f"sim:{n}",), model="m") for n in "ab")
        >>> one.apart(other)
        True
        """
        alike = (self.model, self.driver, self.simulation) == (other.model, other.driver, other.simulation)
        return self.kind == other.kind and (self.kind in ("cuda", "hip", "sim") or self.host != other.host) and alike


_PARAMETERS = tuple(field.name for field in fields(Simulation))


def simulated_device(name: str) -> Device:
    """Return the device that ``sim:NAME?parameter=value&...`` declares.

    Two that differ in their parameters only are the same device: one at a time may be leased.

    Raises
    ------
    ValueError
        If there is no such parameter, it is there twice, or its value is outside its range.

    Examples
    --------
    >>> device = simulated_device("sim:a?latency=0.01&noise=0.1")
    >>> device.identities
    ('sim:a',)
    >>> device.simulation
    Simulation(latency=0.01, noise=0.1, drift=0.0, crash=0.0, hang=0.0)
    """
    identity, question, declared = name.partition("?")
    if not re.fullmatch(r"sim:[A-Za-z0-9_.-]+", identity):
        raise ValueError(
            f"a simulated device must be sim:NAME, of letters, digits, dots, dashes and underscores, got {name!r}"
        )
    values: dict[str, float] = {}
    for parameter in declared.split("&") if question else ():
        key, _, value = parameter.partition("=")
        if key not in _PARAMETERS:
            raise ValueError(
                f"{name!r}: a parameter of a simulated device must be one of {', '.join(_PARAMETERS)}, got {key!r}"
            )
        if key in values:
            raise ValueError(f"{name!r}: each parameter must be given once, got {key} twice")
        try:
            values[key] = float(value)
        except ValueError:
            raise ValueError(f"{name!r}: {key} must be a number, got {value!r}") from None
    try:
        simulation = Simulation(**values)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    # What is declared is what results hold for, as they do for a model of processor; the name is not.
    said = [f"{parameter}={value!r}" for parameter, value in asdict(simulation).items() if value]
    model = " ".join(["simulated", *said])
    return Device(name=name, kind="sim", identities=(identity,), model=model, simulation=simulation)
