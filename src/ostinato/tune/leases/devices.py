"""Devices by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ostinato.errors import DeviceError
from ostinato.tune.leases.cpu import cpu_device, cpu_devices
from ostinato.tune.leases.cuda import cuda_device, cuda_devices
from ostinato.tune.leases.device import Device, simulated_device
from ostinato.tune.leases.hip import hip_device, hip_devices
from ostinato.tune.leases.opencl import opencl_device

_KINDS: dict[str, Callable[[str], Device]] = {
    "cpu": cpu_device,
    "cuda": cuda_device,
    "hip": hip_device,
    "opencl": opencl_device,
    "sim": simulated_device,
}
_ALL_OF: dict[str, Callable[[], list[Device]]] = {"cpu": cpu_devices, "cuda": cuda_devices, "hip": hip_devices}


def all_of(kind: str) -> list[str]:
    """Return the names of all devices of a kind, or `kind` itself if it is none.

    Raises
    ------
    DeviceError
        This host has none.

    Examples
    --------
    >>> all_of("cpu")[0], all_of("sim:a")
    ('cpu:0', ['sim:a'])
    """
    if kind not in _ALL_OF:
        return [kind]
    found = _ALL_OF[kind]()
    if not found:
        raise DeviceError(f"{kind!r}: this host has no such device")
    return [device.name for device in found]


def devices(names: str | Sequence[str]) -> tuple[Device, ...]:
    """Return the devices of these names.

    Parameters
    ----------
    names
        A list of names, or a `str` of one or several with commas between:

        * ``cpu:0``, ``cpu:0-3``, ``cpu:0,2``: cores of this process's affinity mask, counted from 0;
        * ``cuda:0``: a GPU of the mask ``CUDA_VISIBLE_DEVICES``, counted from 0, or ``cuda:GPU-...``,
          ``cuda:MIG-...``: by the beginning of its UUID;
        * ``hip:0``: a GPU of the masks ``ROCR_VISIBLE_DEVICES`` and ``HIP_VISIBLE_DEVICES``, or ``hip:GPU-...``;
        * ``opencl:0``: a device of OpenCL, in the order in which it lists platforms and their devices. One that is the
          processor computes on all usable cores, so it is leased with these;
        * ``sim:NAME?latency=0.01&noise=0.1``: a simulated device, with any of the parameters of `Simulation`;
        * ``all``: the GPUs of this process's masks if there are any, else one device for each usable core. OpenCL's
          devices are named: they are mostly these once more.

    Raises
    ------
    ValueError
        If a name means nothing, there are none, or two have something in common.
    DeviceError
        If a device is not there.

    Examples
    --------
    >>> [device.name for device in devices("sim:a?latency=0.01,sim:b")]
    ['sim:a?latency=0.01', 'sim:b']
    """
    found = [device for name in list_names(names) for device in _named(name)]
    if not found:
        raise ValueError("at least one device must be named")
    owners: dict[str, Device] = {}
    for device in found:
        for identity in device.identities:
            other = owners.setdefault(identity, device)
            if other is not device:
                both = "twice" if other.name == device.name else f"and {other.name!r}, which have {identity} in common"
                raise ValueError(f"devices name {device.name!r} {both}")
    return tuple(found)


def list_names(names: str | Sequence[str]) -> list[str]:
    """Return names of devices one by one.

    Examples
    --------
    >>> list_names("cpu:0,1, sim:a")
    ['cpu:0,1', 'sim:a']
    """
    if not isinstance(names, Iterable):
        raise TypeError(f"devices must be named by str, as 'cpu:0', got {names!r}")
    # A comma within a name is followed by a number, one between names by a kind.
    listed = re.split(r"\s*,\s*(?=[A-Za-z])", names.strip()) if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"devices must be named by str, got {name!r}")
    return listed


def _named(name: str) -> list[Device]:
    if name == "all":
        return cuda_devices() + hip_devices() or cpu_devices()
    kind, colon, _ = name.partition(":")
    if kind not in _KINDS or not colon:
        raise ValueError(
            "a device must be cpu:0, cpu:0-3, cpu:0,2, cuda:0, cuda:GPU-..., cuda:MIG-..., hip:0, "
            f"hip:GPU-..., opencl:0, sim:NAME or all, got {name!r}"
        )
    return [_KINDS[kind](name)]
