"""Copies in the memory of the host of arrays that lie in that of devices: what these hold, for whoever reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostinato.devices.registry import address_of, allocation_under
from ostinato.devices.shadow import view_of
from ostinato.graph.operand import Operand
from ostinato.runtime.memory import extent_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ostinato.devices.array import Allocation

__all__ = ["hosted"]


def hosted(operands: Iterable[Operand]) -> dict[int, Operand]:
    """Return operands by the ids of those given: of arrays of devices, copies that overlap as they do.

    Rings are none of theirs. Others stand for themselves.
    """
    given = list(operands)
    extents: dict[int, tuple[Allocation, int, int]] = {}
    lying: dict[int, Allocation] = {}
    for operand in given:
        allocation = None if operand.array is None else allocation_under(operand.array)
        if allocation is None or operand.array is None:
            continue
        lying[id(operand)] = allocation
        if operand.array.size:
            low, high = extent_of(operand.array)
            _, least, most = extents.get(id(allocation), (allocation, low, high))
            extents[id(allocation)] = allocation, min(low, least), max(high, most)
    copies = {
        key: (low, allocation.array(high - low, np.uint8, low - allocation.shadow).get())
        for key, (allocation, low, high) in extents.items()
    }
    found = {}
    for operand in given:
        found[id(operand)] = operand
        array = operand.array
        if array is None or id(operand) not in lying:
            continue
        if array.size:
            low, copied = copies[id(lying[id(operand)])]
            view = view_of(copied, address_of(array) - low, array.shape, array.dtype, array.strides)
        else:
            view = np.empty(array.shape, array.dtype)
        view.flags.writeable = array.flags.writeable
        found[id(operand)] = Operand(view, view, None, operand.mode)
    return found
