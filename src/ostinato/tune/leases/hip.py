"""HIP devices: AMD's GPUs, as the kernel's driver lists them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ostinato.tune.leases.device import Device
from ostinato.tune.leases.gpu import Gpu, masked, pick

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
MODULE = Path("/sys/module/amdgpu")
RUNTIME_MASK = "ROCR_VISIBLE_DEVICES"
MASK = "HIP_VISIBLE_DEVICES"


def hip_devices() -> list[Device]:
    """Return the devices of this process's masks."""
    return [_device(f"hip:{index}", gpu) for index, gpu in enumerate(_visible_gpus())]


def hip_device(name: str) -> Device:
    """Return the device that ``hip:0`` (an index in this process's masks) or ``hip:GPU-...`` names."""
    none = f"this host has no AMD GPU with a driver ({NODES} lists none)"
    return _device(name, pick(name, _visible_gpus(), f"{RUNTIME_MASK} and {MASK} leave none" if host_gpus() else none))


def runtime_gpus() -> list[Gpu]:
    """Return the GPUs that ROCm's runtime shows to HIP, numbered as HIP counts them."""
    gpus = masked(os.environ.get(RUNTIME_MASK), host_gpus(), RUNTIME_MASK)
    return [gpu._replace(number=number) for number, gpu in enumerate(gpus)]


def runtime_mask() -> str | None:
    """Return HIP's own mask; where there is none it reads CUDA's."""
    return os.environ.get(MASK, os.environ.get("CUDA_VISIBLE_DEVICES"))


def described(name: str, gpu: Gpu, environment: dict[str, str]) -> Device:
    """Return the device that a GPU is."""
    return Device(
        name=name, kind="hip", identities=(gpu.identity,), model=gpu.model, driver=gpu.driver, environment=environment
    )


def _visible_gpus() -> list[Gpu]:
    return masked(runtime_mask(), runtime_gpus(), MASK)


def _device(name: str, gpu: Gpu) -> Device:
    # A child inherits ROCR_VISIBLE_DEVICES, and this counts what that leaves.
    return described(name, gpu, {MASK: str(gpu.number)})


def host_gpus() -> list[Gpu]:
    """Return all GPUs that this process may see, in the runtime's order."""
    gpus: list[Gpu] = []
    for node in sorted((node for node in NODES.glob("*") if node.name.isdecimal()), key=lambda node: int(node.name)):
        try:
            if int((node / "gpu_id").read_text()) == 0:  # a CPU
                continue
            lines = (node / "properties").read_text().splitlines()
            name = (node / "name").read_text().strip()
        except (OSError, ValueError):  # a GPU that this container may not use
            continue
        values = {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value.isdecimal()}
        gpus.append(_gpu(len(gpus), name, values))
    return gpus


def _gpu(number: int, name: str, values: Mapping[str, int]) -> Gpu:
    unique = values.get("unique_id", 0)
    # Partitions of one GPU share its unique number, and some GPUs have none: the place on the bus tells them apart.
    identity = f"hip-{unique:016x}-{values.get('domain', 0):04x}-{values.get('location_id', 0):04x}"
    version = values.get("gfx_target_version", 0)
    target = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    model = f"{name or 'AMD GPU'} {target}, {values.get('simd_count', 0)} SIMDs"
    return Gpu(number, f"GPU-{unique:016x}" if unique else "", identity, model, _driver_version())


def _driver_version() -> str:
    try:
        return (MODULE / "version").read_text().strip()
    except OSError:  # the kernel's own driver has its version
        return f"Linux {os.uname().release}"
