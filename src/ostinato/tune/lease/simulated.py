"""Simulated devices: candidates really run, with a latency, noise and failures that are declared."""

from __future__ import annotations

import re
from dataclasses import asdict, fields

from ostinato.tune.lease.device import Device, Simulation

__all__ = ["simulated_device"]

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
