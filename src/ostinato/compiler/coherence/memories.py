"""Where arrays live: in the memory of the host, or in that of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ostinato.compiler.ir import HOST
from ostinato.errors import GraphError
from ostinato.graph.arrays import HOST as HOST_NAME
from ostinato.graph.arrays import Array, memory_of

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.graph.op import Op

__all__ = ["HOST", "Homes"]


class Homes:
    """Says in which memory the user's arrays are.

    Parameters
    ----------
    devices
        Those of the machine.
    name_of
        Gives the name of the memory that an array is in.
    """

    def __init__(self, devices: Sequence[Device], name_of: Callable[[Array], str] = memory_of) -> None:
        self._index = {HOST_NAME: HOST} | {device.name: index for index, device in enumerate(devices)}
        self._name_of = name_of

    def of(self, array: Array, op: Op) -> int:
        """Return the memory of an array that an op uses.

        Raises
        ------
        GraphError
            It is that of a device which the machine has not.
        """
        name = self._name_of(array)
        if name not in self._index:
            there = ", ".join(each for each in self._index if each != HOST_NAME) or "no device"
            raise GraphError(
                f"{op.name!r} at {op.call_site} uses an array in the memory of {name!r}, but this machine has {there}"
            )
        return self._index[name]
