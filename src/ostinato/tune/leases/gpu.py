"""GPUs as masks select them: the rules that CUDA and HIP share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ostinato.errors import DeviceError


class Gpu(NamedTuple):
    """A GPU, or a MIG instance of one."""

    number: int  # what an index in a mask means; MIG instances share that of their GPU
    uuid: str  # empty if the driver does not say
    identity: str  # what is leased
    model: str
    driver: str


def resolve(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return what an entry of a mask means: an index, or the beginning of one UUID; None if it means nothing.

    An index of a GPU in MIG mode means its first instance: a process gets no more of it.
    """
    if re.fullmatch(r"[0-9]{1,9}", entry):
        return next((gpu for gpu in gpus if gpu.number == int(entry)), None)
    found = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def masked(mask: str | None, gpus: Sequence[Gpu], variable: str) -> list[Gpu]:
    """Return the GPUs that a mask leaves, in its order; None: there is no mask.

    As for the drivers, the first entry that means nothing ends the list, so ``""`` and ``"-1"`` hide everything. Raises
    `DeviceError` if the mask names a GPU twice.
    """
    if mask is None:
        return list(gpus)
    found: list[Gpu] = []
    for entry in mask.split(","):
        gpu = resolve(entry.strip(), gpus)
        if gpu is None:
            break
        if gpu in found:
            raise DeviceError(f"{variable}={mask} names a GPU twice: {entry.strip()}")
        found.append(gpu)
    return found


def pick(name: str, visible: Sequence[Gpu], nothing: str) -> Gpu:
    """Return the visible GPU that ``kind:INDEX`` or ``kind:UUID`` names; `nothing` says why there are none.

    Raises `ValueError` for another name, and `DeviceError` if there is no such GPU, or more than one.
    """
    kind, _, text = name.partition(":")
    if re.fullmatch(r"[0-9]+", text):
        found = list(visible[int(text) :][:1]) if len(text) < 10 else []
    elif re.fullmatch(r"(GPU|MIG)-[\w/-]*", text, re.ASCII):
        found = [gpu for gpu in visible if gpu.uuid.startswith(text)]
    else:
        raise ValueError(f"a GPU must be {kind}:INDEX or {kind}:GPU-..., with the beginning of a UUID, got {name!r}")
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{kind}:{index} ({gpu.model}, {gpu.uuid or 'no UUID'})" for index, gpu in enumerate(visible))
    if found:
        raise DeviceError(f"{name!r} is the beginning of several UUIDs; there are {there}")
    raise DeviceError(f"there is no {name!r}; " + (f"there are {there}" if there else nothing))
