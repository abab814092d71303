"""Devices of this process as the tuner knows them: what results hold for, and what is leased to measure them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ostinato.tune.lease.device import Device
from ostinato.tune.lease.opencl import opencl_device

if TYPE_CHECKING:
    from ostinato.devices.device import Device as UsableDevice

__all__ = ["leased", "on_record"]


def on_record(device: UsableDevice) -> Device:
    """Return a device with what results on it hold for.

    Examples
    --------
    >>> from ostinato.devices import fake
    >>> with fake.install() as (device,):
    ...     on_record(device).identities, on_record(device).driver
    (('fake:0',), '1')
    """
    return Device(
        name=device.name, kind=device.kind, identities=(device.identity,), model=device.model, driver=device.driver
    )


def leased(device: UsableDevice, processor: Device) -> Device:
    """Return what is leased while a device is measured: itself, and the processor whose thread gives it work.

    An OpenCL device that is the processor is leased with all the cores that it computes on.
    """
    found = opencl_device(device.name) if device.kind == "opencl" else on_record(device)
    identities = dict.fromkeys((*found.identities, *processor.identities))
    return dataclasses.replace(on_record(device), identities=tuple(identities))
