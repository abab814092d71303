"""What copies to devices and back take: measured once per host, device and driver, and remembered with its machine."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

import ostinato
from ostinato.cache_directory import cache_directory
from ostinato.compiler.device_model import DeviceModel
from ostinato.devices.array import empty
from ostinato.devices.transfers import move, planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostinato.devices.device import Device
    from ostinato.graph.arrays import Array

__all__ = ["measured", "remembered"]

FORMAT = 1
"""Of what is remembered; another one for another meaning of a number."""

SMALL, LARGE = 64, 4 << 20
"""Bytes of the copies that tell what one takes by itself, and what its bytes take."""

SAMPLES = 25

_known: dict[str, DeviceModel] = {}  # by path


def remembered(device: Device) -> DeviceModel:
    """Return the model of the way to a device, as remembered; nothing is measured."""
    path, identity = _place(device)
    if path not in _known and (model := _read(path, identity)) is not None:
        _known[path] = model
    return _known.get(path) or DeviceModel()


def measured(device: Device) -> DeviceModel:
    """Return the model of the way to a device; measure what is not remembered."""
    path, identity = _place(device)
    if path not in _known:
        model = _read(path, identity)
        if model is None:
            model = _measure(device)
            _write(path, identity, model)
        _known[path] = model
    return _known[path]


def _measure(device: Device) -> DeviceModel:
    small, large = (np.zeros(size, np.uint8) for size in (SMALL, LARGE))
    there = empty(device, LARGE, np.uint8)

    def copied(source: Array, target: Array) -> None:
        move(device, planned(source, target))

    pinned = [device.pin(array.ctypes.data, array.ctypes.data + array.nbytes) for array in (small, large)]
    latency = _seconds(lambda: copied(small, there[:SMALL].shadow))
    into = _seconds(lambda: copied(large, there.shadow))
    out = _seconds(lambda: copied(there.shadow, large))
    del pinned
    return DeviceModel(
        latency=latency,
        into=LARGE / into,
        out=LARGE / out,
        source=f"measured {time.strftime('%Y-%m-%d')}",
    )


def _seconds(copy: Callable[[], object]) -> float:
    """Return the least that a copy takes: what comes in between only makes it longer."""
    copy()
    least = float("inf")
    for _ in range(SAMPLES):
        begin = time.perf_counter()
        copy()
        least = min(least, time.perf_counter() - begin)
    return least


def _place(device: Device) -> tuple[str, dict[str, Any]]:
    identity = {
        "format": FORMAT,
        "device": device.identity,
        "model": device.model,
        "driver": device.driver,
        "cores": sorted(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "ostinato": ostinato.__version__,
    }
    return os.path.join(cache_directory(), f"device-{zlib.crc32(repr(identity).encode()):08x}.json"), identity


def _read(path: str, identity: dict[str, Any]) -> DeviceModel | None:
    """Return what the file says; None if there is none, or none that is right."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        numbers = {name: content["model"][name] for name in ("latency", "into", "out")}
        right = content["device"] == identity and all(type(each) is float and each > 0 for each in numbers.values())
        return DeviceModel(**numbers, source=str(content["model"]["source"])) if right else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(path: str, identity: dict[str, Any], model: DeviceModel) -> None:
    """Replace the file in one go; where that is not possible, this process alone remembers."""
    said = {"latency": model.latency, "into": model.into, "out": model.out, "source": model.source}
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".device-")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"device": identity, "model": said}, file, indent=1)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
