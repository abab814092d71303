"""The key of a stored result: what must be the same for the store to answer, and which part of it was not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ostinato.tune.canonical import canonical
from ostinato.tune.lease.device import Device
from ostinato.tune.store.versions import versions

__all__ = ["Context", "contexts", "differing", "environment", "miss"]

_ORDER = ("source", "device", "driver", "versions", "policy", "key")
"""The fields that a miss names, the first of several that differ. Operation and configuration are what it asks for."""


class Context(NamedTuple):
    """The part of a key that all candidates of a search share on devices of one model, each field as JSON."""

    operation: str
    key: str
    device: str
    driver: str
    versions: str
    policy: str


def environment(devices: Sequence[Device]) -> dict[str, Any]:
    """Return what results on these devices hold for, as `Report.environment` and `contexts` have it.

    Examples
    --------
    >>> found = environment([Device(name="sim:a", kind="sim", identities=("sim:a",), model="simulated")])
    >>> found["devices"]
    {'sim:a': {'model': 'simulated', 'driver': ''}}
    >>> "python" in found["versions"]
    True
    """
    return {
        "devices": {device.name: {"model": device.model, "driver": device.driver} for device in devices},
        "versions": versions(),
    }


def contexts(op: str, key: object, environment: Mapping[str, Any], policy: object) -> dict[str, Context]:
    """Return the context of each device of an environment, by the device's name."""
    shared = canonical(op), canonical(key)
    rest = canonical(environment["versions"]), canonical(policy)
    return {
        name: Context(*shared, canonical(device["model"]), canonical(device["driver"]), *rest)
        for name, device in environment["devices"].items()
    }


def differing(stored: Context, asked: Context) -> frozenset[str]:
    """Return the names of the fields that differ."""
    return frozenset(name for name, one, other in zip(Context._fields, stored, asked, strict=True) if one != other)


def miss(differences: Iterable[frozenset[str]]) -> str | None:
    """Say which field kept stored results from answering.

    Parameters
    ----------
    differences
        The fields in which each stored result of the same operation and configuration differs from what is asked.

    Returns
    -------
    str or None
        Of the result that differs in the fewest fields the first of these; None if there is no result that differs.

    Examples
    --------
    >>> miss([frozenset({"key", "policy"}), frozenset({"versions"})])
    'versions'
    >>> miss([frozenset({"key", "policy"})])
    'policy'
    """
    named = [sorted(_ORDER.index(name) for name in fields) for fields in differences if fields]
    return _ORDER[min(named, key=lambda places: (len(places), places))[0]] if named else None
