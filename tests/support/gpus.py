"""Hosts with GPUs, as files and libraries that this machine does not have."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ostinato.tune.leases import cuda, hip
from ostinato.tune.leases import cuda as nvml

_INITIALISED = nvml._initialised.__wrapped__  # keeps nothing for the next test

MASKS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def host(
    monkeypatch: pytest.MonkeyPatch,
    root: Path,
    *,
    nvidia: dict[str, str] | None = None,
    amd: list[dict[str, int]] | None = None,
    library: ModuleType | None = None,
    **masks: str,
) -> None:
    """Pretend to be on a host with these GPUs: UUIDs with models of NVIDIA's, properties of AMD's nodes."""
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in masks.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cuda, "DRIVER", root / "nvidia")
    monkeypatch.setattr(hip, "NODES", root / "nodes")
    monkeypatch.setattr(hip, "MODULE", root / "amdgpu")
    monkeypatch.setitem(sys.modules, "pynvml", library)  # None: cannot be imported
    monkeypatch.setattr(nvml, "_initialised", _INITIALISED)
    for number, (uuid, model) in enumerate((nvidia or {}).items()):
        # Buses are listed in an order that is not the one in which directories are made.
        place = root / "nvidia" / "gpus" / f"0000:{number + 10:02x}:00.0"
        place.mkdir(parents=True)
        text = f"Model: \t\t {model}\nIRQ:   \t\t 193\nGPU UUID: \t {uuid}\nBus Location: \t {place.name}\n"
        (place / "information").write_text(text)
        (root / "nvidia" / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat\n")
    for number, properties in enumerate(amd or []):
        node = root / "nodes" / str(number)
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{properties.get('gpu_id', number)}\n")
        (node / "name").write_text("aldebaran\n" if properties.get("simd_count") else "\n")
        (node / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))


def amd_node(unique_id: int, location_id: int) -> dict[str, int]:
    values = {"gpu_id": 40000 + location_id, "simd_count": 440, "gfx_target_version": 90010, "domain": 0}
    return values | {"unique_id": unique_id, "location_id": location_id}


AMD_CPU = {"gpu_id": 0, "simd_count": 0, "cpu_cores_count": 64}


class NvmlError(Exception):
    """What the library raises."""


class NotFound(NvmlError):
    """That there are no samples."""


def fake_library(gpus: list[SimpleNamespace], *, fails: bool = False) -> ModuleType:
    """Return a `pynvml` for these GPUs, each with uuid, name, instances (the same again), pids and their work."""
    handles = {each.uuid: each for gpu in gpus for each in [gpu, *gpu.instances]}

    def initialise() -> None:
        if fails:
            raise NvmlError("driver not loaded")

    def known(table: list, index: int) -> SimpleNamespace:
        if index >= len(table) or table[index] is None:
            raise NvmlError("not found")
        return table[index]

    def by_uuid(uuid: str) -> SimpleNamespace:
        if uuid not in handles:
            raise NvmlError("not found")
        return handles[uuid]

    def utilization(handle: SimpleNamespace, since: int) -> list[SimpleNamespace]:
        if handle.computing is None:
            raise NvmlError("not supported")
        if not handle.computing:
            raise NotFound("not found")
        return [SimpleNamespace(pid=pid, smUtil=percent) for pid, percent in handle.computing.items()]

    module = ModuleType("pynvml")
    vars(module).update(
        NVMLError=NvmlError,
        NVMLError_NotFound=NotFound,
        nvmlDeviceGetProcessUtilization=utilization,
        NVML_DEVICE_MIG_ENABLE=1,
        nvmlInit=initialise,
        nvmlSystemGetDriverVersion=lambda: "550.54.15",
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: known(gpus, index),
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetUUID=lambda handle: handle.uuid.encode(),  # as older versions do
        nvmlDeviceGetName=lambda handle: handle.name,
        nvmlDeviceGetMigMode=lambda handle: [1 if handle.instances else 0] * 2,
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda handle, index: known([None, *handle.instances], index),
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in handle.pids],
    )
    return module


def gpu(
    uuid: str,
    name: str = "NVIDIA H100",
    *,
    instances: tuple = (),
    pids: tuple[int, ...] = (),
    computing: dict[int, int] | None = None,  # percent of the device; None: the driver does not tell
) -> SimpleNamespace:
    return SimpleNamespace(uuid=uuid, name=name, instances=list(instances), pids=pids, computing=computing)
