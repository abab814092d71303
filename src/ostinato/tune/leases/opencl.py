"""OpenCL's devices, as pyopencl lists them. Nothing here makes a context."""

from __future__ import annotations

import re
import uuid
from importlib import import_module
from typing import Any, NamedTuple

from ostinato.environment import usable_cores
from ostinato.errors import DeviceError
from ostinato.tune.leases.device import Device

SELECTED = "PYOPENCL_CTX"
"""What pyopencl's ``create_some_context`` goes by: ``platform:device``, by number."""


class _Listed(NamedTuple):
    """A device that is there."""

    device: Any
    identity: str
    place: str  # among the devices of all platforms


def opencl_devices() -> list[Device]:
    """Return the devices of all platforms, in OpenCL's order."""
    return [_device(f"opencl:{index}", listed) for index, listed in enumerate(_listed())]


def opencl_device(name: str) -> Device:
    """Return the device that ``opencl:0`` names: a number in the order in which OpenCL lists platforms and devices."""
    match = re.fullmatch(r"opencl:([0-9]{1,9})", name)
    if match is None:
        raise ValueError(f"an OpenCL device must be opencl:INDEX, got {name!r}")
    found, index = opencl_devices(), int(match[1])
    if index >= len(found):
        there = ", ".join(f"{device.name} ({device.model})" for device in found)
        raise DeviceError(f"there is no {name!r}; " + (f"there are {there}" if there else _why_none()))
    return found[index]


def _device(name: str, listed: _Listed) -> Device:
    device = listed.device
    identities = [listed.identity]
    if _is_cpu(device):  # it computes on all cores that this process may use: who measures one of them is in its way
        identities += [f"cpu-core-{core}" for core in usable_cores()]
    return Device(
        name=name,
        kind="opencl",
        identities=tuple(identities),
        model=_model(device),
        driver=str(device.driver_version),
        environment={SELECTED: listed.place},
    )


def _model(device: Any) -> str:
    units = device.max_compute_units
    return f"{device.name.strip()}, {units} compute unit{'s' * (units != 1)}, {device.platform.name.strip()}"


def _is_cpu(device: Any) -> bool:
    cl = import_module("pyopencl")
    return bool(device.type & cl.device_type.CPU)


def _listed() -> list[_Listed]:
    """Return the devices that can be used, in OpenCL's order, each under the name that all processes know it by."""
    try:
        cl = import_module("pyopencl")
    except ImportError:
        return []
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # none is installed
        return []
    found: list[_Listed] = []
    alike: dict[str, int] = {}
    for number, platform in enumerate(platforms):
        for place, device in enumerate(platform.get_devices()):
            if not device.available:
                continue
            name = f"opencl:{platform.name.strip()}/{device.name.strip()}"
            alike[name] = alike.get(name, -1) + 1
            identity = name if alike[name] == 0 else f"{name}/{alike[name]}"
            found.append(_Listed(device, _of_nvidia(device) or identity, f"{number}:{place}"))
    return found


def _of_nvidia(device: Any) -> str:
    """Return what CUDA calls a GPU that it shares with OpenCL, so that both lease the same; else an empty text."""
    if "nvidia" not in device.platform.name.lower() or "cl_khr_device_uuid" not in device.extensions:
        return ""
    cl = import_module("pyopencl")
    said = device.get_info(cl.device_info.UUID_KHR)
    return f"GPU-{uuid.UUID(bytes=bytes(said))}"


def _why_none() -> str:
    try:
        import_module("pyopencl")
    except ImportError:
        return 'pyopencl is not installed: pip install "ostinato[opencl]"'
    return "OpenCL lists none"
