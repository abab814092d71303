"""What devices tell of failures, as `DeviceError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ostinato import _core
from ostinato.devices.discovery import lose
from ostinato.errors import DeviceError

if TYPE_CHECKING:
    from ostinato.devices.device import Device

__all__ = ["failure", "failures_told"]


def failure(device: Device, message: str, usable: bool) -> DeviceError:
    """Return the error that tells of a failure; note a device that cannot be used afterwards.

    Parameters
    ----------
    device
        The device that failed.
    message, usable
        As its driver tells: ``device.core.diagnose(code)``.
    """
    error = DeviceError(f"{device.name}: {message}")
    error.device, error.usable = device.name, usable
    if not usable:
        lose(device)
    return error


@contextmanager
def failures_told(device: Device, doing: str = "") -> Iterator[None]:
    """Within this, failures that the driver reports at once are raised as `DeviceError`.

    Parameters
    ----------
    device
        The device that is called.
    doing
        What the message begins with.
    """
    try:
        yield
    except _core.devices.Failure as told:
        raise failure(device, f"{doing}{told}", told.usable) from told
