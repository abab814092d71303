"""The arrays of a plan that uses devices: what stands for captured ones, memory for mirrors, what is page-locked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ostinato import _core
from ostinato.devices.registry import address_of, allocation_at, bytes_at, view_of
from ostinato.errors import DeviceError
from ostinato.graph.arrays import Array

if TYPE_CHECKING:
    from ostinato.compiler.coherence.mirrors import Mirror
    from ostinato.compiler.lower.tables import Substitution
    from ostinato.compiler.streams.staging import Staged
    from ostinato.devices.device import Device

__all__ = ["PlanArrays"]

_PAGE = 4096


class PlanArrays:
    """What stands for captured arrays, and for what made-up addresses stand for: mirrors, which get their memory here.

    Attributes
    ----------
    kept
        What must live as long as the plan.
    """

    def __init__(self, staged: Staged, substitute: Substitution | None) -> None:
        self._substitute = substitute
        # Copies know addresses only.
        recorded = [array for op in staged.recorded for operand in op.operands for array in operand.arrays]
        self.kept: list[object] = [substitute, recorded]
        self._mirrors: list[tuple[int, int, Array]] = []  # addresses, how many, and the bytes that they stand for
        for mirror in sorted(staged.coherent.mirrors, key=lambda each: each.base):
            size = mirror.high - mirror.low
            if mirror.memory >= 0:
                try:
                    allocation = staged.devices[mirror.memory].allocate(size)
                except DeviceError as error:
                    error.args = (f"{error}; {_needed(staged, mirror)}",)
                    raise
                self._mirrors.append((mirror.base, size, bytes_at(allocation.address, size, allocation)))
            else:
                memory = np.empty(size + _PAGE, np.uint8)
                address = -(-address_of(memory) // _PAGE) * _PAGE
                self._mirrors.append((mirror.base, size, bytes_at(address, size, memory)))
        self._bases = [base for base, *_ in self._mirrors]
        self._pinned: set[tuple[str, int, int]] = set()

    def substitute(self, array: Array) -> Array:
        """Return what stands for an array of an op."""
        if self._mirrors:
            address = address_of(array)
            place = bisect_right(self._bases, address) - 1
            if place >= 0:
                base, size, raw = self._mirrors[place]
                if address <= base + size:
                    return view_of(raw, address - base, array.shape, array.dtype, array.strides)
        return array if self._substitute is None else self._substitute.substitute(array)

    def value(self, value: object) -> object:
        """Return what stands for a token or an array of another library."""
        return value if self._substitute is None else self._substitute.value(value)

    def pin(self, pairs: Iterable[tuple[Array, Array]], device: Device) -> None:
        """Page-lock what of these arrays is host memory."""
        extents = []
        for pair in pairs:
            for array in pair:
                if array.size:
                    begin, end = _core.passes.extent(array)
                    if (device.name, begin, end) not in self._pinned and allocation_at(begin) is None:
                        self._pinned.add((device.name, begin, end))
                        extents.append((begin, end))
        low = high = 0
        for begin, end in [*sorted(extents), (2**64, 2**64)]:
            if begin > high:
                if high > low:
                    self.kept.append(device.pin(low, high))
                low = begin
            high = max(high, end)


def _needed(staged: Staged, mirror: Mirror) -> str:
    """Say what a mirror is for."""
    for op in staged.ops:
        for array in (array for operand in op.operands for array in operand.arrays):
            if mirror.base <= address_of(array) <= mirror.base + mirror.high - mirror.low:
                return f"they are to hold what {op.name!r} at {op.call_site} uses of an array that lies elsewhere"
    return "they are to hold a copy of an array that lies elsewhere"
