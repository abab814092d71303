"""GPUs by the ids that go into a child's mask as they stand: the rule of the profiler runner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile

from ostinato.errors import DeviceError
from ostinato.tune.lease import cuda, hip
from ostinato.tune.lease.device import Device
from ostinato.tune.lease.gpu import Gpu, resolve

__all__ = ["mask"]


def mask(ids: Sequence[int | str] | None = None) -> tuple[Device, ...]:
    """Return a device for each id; each selects its GPU in a child's environment by the id as it stands.

    A GPU that is not known here, because there is no driver or none of that id, is leased by the id.

    Parameters
    ----------
    ids
        Indices or UUIDs. None or empty: those of this process's mask, or ``"0"`` if it has none.

    Raises
    ------
    ValueError
        If a GPU is there twice, or an id cannot be one.
    DeviceError
        If one is not in this process's mask, where it has one.

    Examples
    --------
    >>> [device.name for device in mask(["0", "1"])]
    ['cuda:0', 'cuda:1']
    """
    if isinstance(ids, str):
        raise TypeError(f"ids must be a list, got {ids!r}")
    kind, variable, allowed, gpus = _parent()
    names = [_id(value) for value in ids or ()]
    if not names:
        names = ["0"] if allowed is None else allowed
        if not names:
            raise DeviceError(f"{variable} hides every GPU from this process")
    devices: dict[str, Device] = {}
    for name in names:
        gpu = resolve(name, gpus)
        if allowed is not None and not _allows(allowed, name, gpu, gpus):
            raise DeviceError(f"{name!r} is not in {variable}={','.join(allowed)}, the GPUs of this process")
        device = _device(kind, variable, name, gpu)
        other = devices.setdefault(device.identities[0], device)
        if other is not device:
            raise ValueError(f"a GPU must not be named twice, got {name!r} and {other.environment[variable]!r}")
    return tuple(devices.values())


def _parent() -> tuple[str, str, list[str] | None, list[Gpu]]:
    """Return the kind of GPU, the variable of its mask, the ids that this process may use, and all GPUs."""
    gpus = cuda.host_gpus()
    # Where no driver answers, the mask that is set says whose it is.
    masked_for_hip = hip.MASK in os.environ and cuda.MASK not in os.environ
    if not gpus and (hip.host_gpus() or masked_for_hip):
        amd = hip.runtime_gpus()
        text = hip.runtime_mask()
        if text is None and hip.RUNTIME_MASK in os.environ:
            text = ",".join(str(gpu.number) for gpu in amd)
        return "hip", hip.MASK, _entries(text), amd
    return "cuda", cuda.MASK, _entries(os.environ.get(cuda.MASK)), gpus


def _entries(text: str | None) -> list[str] | None:
    """Return the entries of a mask, up to one that hides what follows, such as ``-1``; None: there is no mask."""
    if text is None:
        return None
    return list(takewhile(lambda entry: entry and not entry.startswith("-"), map(str.strip, text.split(","))))


def _allows(allowed: list[str], name: str, gpu: Gpu | None, gpus: list[Gpu]) -> bool:
    return name in allowed or (gpu is not None and gpu in [resolve(entry, gpus) for entry in allowed])


def _device(kind: str, variable: str, name: str, gpu: Gpu | None) -> Device:
    environment = {variable: name}
    if kind == "cuda" and cuda.ORDER not in os.environ:
        environment[cuda.ORDER] = "PCI_BUS_ID"  # else CUDA counts by speed, and the id means another GPU than here
    if gpu is None or not gpu.uuid:
        unknown = f"{kind}:{name}"
        return Device(name=unknown, kind=kind, identities=(unknown,), model="unknown", environment=environment)
    described = cuda.described if kind == "cuda" else hip.described
    return described(f"{kind}:{name}", gpu, environment)


def _id(value: int | str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"a GPU's id must be an index or a UUID, got {value!r}")
    text = str(value)
    if not text or text != text.strip() or not text.isprintable() or "," in text or text.startswith("-"):
        raise ValueError(f"a GPU's id must be an index or a UUID, got {value!r}")
    return text
