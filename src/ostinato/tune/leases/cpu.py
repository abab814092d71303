"""CPU devices: sets of cores."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ostinato.environment import usable_cores
from ostinato.errors import DeviceError
from ostinato.text import counted
from ostinato.tune.leases.device import Device

CPUINFO = Path("/proc/cpuinfo")
SYSTEM_DEVICES = Path("/sys/devices")


def cpu_devices() -> list[Device]:
    """Return a device for each core that this process may use and its control group's quota pays for."""
    return [_device(f"cpu:{index}", [core]) for index, core in enumerate(usable_cores())]


def cpu_device(name: str) -> Device:
    """Return the device that ``cpu:0``, ``cpu:0-3`` or ``cpu:0,2`` names.

    Numbers count the cores of this process's affinity mask, so ``cpu:0`` is the first usable core.

    Examples
    --------
    >>> len(cpu_device("cpu:0").cores)
    1
    """
    usable = sorted(os.sched_getaffinity(0))
    indices: list[int] = []
    for part in name.removeprefix("cpu:").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"cores must be written as cpu:0, cpu:0-3 or cpu:0,2, got {name!r}")
        if last >= len(usable):
            names = "cpu:0 only" if len(usable) == 1 else f"cpu:0 to cpu:{len(usable) - 1}"
            raise DeviceError(f"{name!r}: there is no cpu:{last}; the cores that this process may use are {names}")
        indices += range(first, last + 1)
    if len(set(indices)) < len(indices):
        raise ValueError(f"a core must be named once, got {name!r}")
    return _device(name, [usable[index] for index in sorted(indices)])


def _device(name: str, cores: list[int]) -> Device:
    return Device(
        name=name,
        kind="cpu",
        identities=tuple(f"cpu-core-{core}" for core in cores),
        model=_model(cores),
        cores=frozenset(cores),
    )


def _model(cores: Iterable[int]) -> str:
    """Return the processor's model, and how many cores there are if it is not one: results hold for so many."""
    models = _models(CPUINFO, SYSTEM_DEVICES)
    found = [models.get(core, platform.machine()) for core in cores]
    text = " and ".join(sorted(set(found)))
    return text if len(found) == 1 else f"{text}, {counted(len(found), 'core')}"


@lru_cache
def _models(cpuinfo: Path, system_devices: Path) -> dict[int, str]:
    """Return the model of each core, after what the kernel writes for this architecture."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return {}
    models = {}
    kinds = _kinds_of_cores(system_devices)
    for block in text.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        number = fields.get("processor", "")
        if not number.isdecimal():
            continue
        model = fields.get("model name") or fields.get("cpu")
        if model is None and "cpu part" in fields:
            model = f"implementer {fields.get('cpu implementer')} part {fields['cpu part']}"
        if model is not None:
            models[int(number)] = " ".join([model, *kinds.get(int(number), ())])
    return models


def _kinds_of_cores(system_devices: Path) -> dict[int, list[str]]:
    """Return which cores are fast ones and which are economical, on processors that have both under one model name."""
    kinds: dict[int, list[str]] = {}
    for kind in ("cpu_core", "cpu_atom"):
        try:
            text = (system_devices / kind / "cpus").read_text()
        except OSError:
            continue
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
            for core in range(int(first), int(last or first) + 1):
                kinds.setdefault(core, []).append(f"({kind})")
    return kinds
