"""CUDA devices: NVIDIA's GPUs and their MIG instances. Nothing here makes a CUDA context."""

from __future__ import annotations

import importlib
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from ostinato.errors import DeviceError
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.gpu import Gpu, masked, pick


def nvml() -> Any:
    """Return the module `pynvml`, initialised; None if it or a driver is missing."""
    return _initialised(os.getpid())


def text(value: str | bytes) -> str:
    """Return what the library calls a string: bytes in older versions."""
    return value.decode() if isinstance(value, bytes) else value


@lru_cache(maxsize=1)
def _initialised(pid: int) -> Any:  # once per process: what is initialised does not survive a fork
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module


DRIVER = Path("/proc/driver/nvidia")
MASK = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"


def cuda_devices() -> list[Device]:
    """Return the devices of this process's mask."""
    return [_device(f"cuda:{index}", gpu) for index, gpu in enumerate(visible_gpus())]


def cuda_device(name: str) -> Device:
    """Return the device that ``cuda:0`` (an index in this process's mask) or the beginning of a UUID names."""
    return _device(name, pick(name, visible_gpus(), _why_none()))


def visible_gpus() -> list[Gpu]:
    """Return the GPUs of this process's mask, in its order; `DeviceError` if the mask is ambiguous."""
    gpus = host_gpus()
    mask = os.environ.get(MASK)
    if mask is None or not gpus:
        return gpus
    by_index = re.search(r"(^|,)\s*[0-9]", mask)
    if by_index and len({gpu.model for gpu in gpus}) > 1 and os.environ.get(ORDER) != "PCI_BUS_ID":
        raise DeviceError(
            f"{MASK}={mask} is ambiguous: the GPUs of this host differ, and CUDA counts them by speed unless {ORDER} "
            f"is PCI_BUS_ID. Set that, or give UUIDs (nvidia-smi -L)"
        )
    entries = [entry.strip() for entry in mask.split(",")]
    if not any(gpu.uuid.startswith("MIG-") for gpu in gpus):
        # Without its library the driver does not list MIG instances; a mask that has them is all that is known. Nothing
        # tells how large they are, so results hold for each alone.
        gpus += [Gpu(-1, entry, entry, entry, gpus[0].driver) for entry in entries if entry.startswith("MIG-")]
    return masked(mask, gpus, MASK)


def host_gpus() -> list[Gpu]:
    """Return all GPUs, in the order of the PCI bus; instead of one in MIG mode its instances."""
    module = nvml()
    return _from_driver() if module is None else _from_library(module)


def described(name: str, gpu: Gpu, environment: dict[str, str]) -> Device:
    """Return the device that a GPU is."""
    if not gpu.uuid:
        raise DeviceError(
            f"{name}: the driver does not tell the UUID of this {gpu.model} before it was used; run nvidia-smi once, "
            "or install its library: pip install 'ostinato[nvidia]'"
        )
    return Device(
        name=name, kind="cuda", identities=(gpu.identity,), model=gpu.model, driver=gpu.driver, environment=environment
    )


def _device(name: str, gpu: Gpu) -> Device:
    return described(name, gpu, {MASK: gpu.uuid, ORDER: "PCI_BUS_ID"})


def _from_library(module: Any) -> list[Gpu]:
    driver = text(module.nvmlSystemGetDriverVersion())
    gpus = []
    for number in range(module.nvmlDeviceGetCount()):
        try:
            handle = module.nvmlDeviceGetHandleByIndex(number)
            for part in _instances(module, handle) or [handle]:
                uuid = text(module.nvmlDeviceGetUUID(part))
                gpus.append(Gpu(number, uuid, uuid, text(module.nvmlDeviceGetName(part)), driver))
        except module.NVMLError:  # a GPU that fell off the bus, or that is not for us
            continue
    return gpus


def _instances(module: Any, handle: Any) -> list[Any]:
    try:
        if module.nvmlDeviceGetMigMode(handle)[0] != module.NVML_DEVICE_MIG_ENABLE:
            return []
        most = module.nvmlDeviceGetMaxMigDeviceCount(handle)
    except module.NVMLError:  # has no MIG mode
        return []
    found = []
    for index in range(most):
        try:
            found.append(module.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except module.NVMLError:  # no instance in this place
            continue
    return found


def _from_driver() -> list[Gpu]:
    gpus = []
    for number, path in enumerate(sorted(DRIVER.glob("gpus/*/information"))):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        uuid = fields.get("GPU UUID", "")
        if not re.fullmatch(r"GPU-[0-9a-f-]+", uuid):  # question marks until the GPU was used
            uuid = ""
        gpus.append(Gpu(number, uuid, uuid, fields.get("Model", "NVIDIA GPU"), _driver_version()))
    return gpus


def _driver_version() -> str:
    try:
        found = re.search(r"\s(\d+(\.\d+)+)\s", (DRIVER / "version").read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def _why_none() -> str:
    if not host_gpus():
        return f"this host has no NVIDIA GPU with a driver ({DRIVER / 'gpus'} lists none)"
    return f"{MASK}={os.environ.get(MASK)} leaves none"
