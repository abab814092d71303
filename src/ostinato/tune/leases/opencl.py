"""OpenCL's devices, as pyopencl lists them. Nothing here makes a context."""

from __future__ import annotations

import re
import uuid
from importlib import import_module
from typing import Any

from ostinato.environment import usable_cores
from ostinato.errors import DeviceError
from ostinato.text import counted
from ostinato.tune.leases.device import Device

SELECTED = "PYOPENCL_CTX"
"""What pyopencl's ``create_some_context`` goes by: ``platform:device``, by number."""


def opencl_devices() -> list[Device]:
    """Return the devices of all platforms that can be used, in OpenCL's order."""
    try:
        cl = import_module("pyopencl")
    except ImportError:
        return []
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # none is installed
        return []
    found: list[Device] = []
    alike: dict[str, int] = {}
    for number, platform in enumerate(platforms):
        for place, device in enumerate(platform.get_devices()):
            if not device.available:
                continue
            identity = f"opencl:{platform.name.strip()}/{device.name.strip()}"
            alike[identity] = alike.get(identity, -1) + 1
            identity += f"/{alike[identity]}" if alike[identity] else ""
            # A processor computes on all cores that this process may use: who measures one of them is in its way.
            cores = usable_cores() if device.type & cl.device_type.CPU else ()
            identities = (_of_nvidia(device) or identity, *(f"cpu-core-{core}" for core in cores))
            model = (
                f"{device.name.strip()}, {counted(device.max_compute_units, 'compute unit')}, {platform.name.strip()}"
            )
            found.append(
                Device(
                    name=f"opencl:{len(found)}",
                    kind="opencl",
                    identities=identities,
                    model=model,
                    driver=str(device.driver_version),
                    environment={SELECTED: f"{number}:{place}"},
                )
            )
    return found


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
        return "pyopencl is not installed: pip install 'ostinato[opencl]'"
    return "OpenCL lists none"
