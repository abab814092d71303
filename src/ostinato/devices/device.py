"""What a device is to the rest of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.devices.array import Allocation, DeviceArray
    from ostinato.devices.stream import Stream

__all__ = ["Device"]


class Device(Protocol):
    """A device, one object for each and process.

    Attributes
    ----------
    name
        As processors are called: ``"opencl:0"``.
    kind
        ``"cuda"``, ``"opencl"``.
    identity
        What names the device for all processes of this host: a UUID, or platform and device.
    model
        What devices that are equally fast have in common: what was measured on one counts for the others.
    driver
        Its version: what was measured with another may no longer be true.
    core
        What the core asks of it.
    arrays
        The class of the arrays in its memory.
    """

    name: str
    kind: str
    identity: str
    model: str
    driver: str

    @property
    def core(self) -> _core.devices.Device: ...

    @property
    def arrays(self) -> type[DeviceArray]: ...

    def allocate(self, nbytes: int) -> Allocation:
        """Return new memory. `DeviceError`: there is not so much."""
        ...

    def adopt(self, obj: object) -> DeviceArray | None:
        """Return the array in its memory that an object of another library is, without a copy; None where it is none.

        Objects that share memory get arrays of one allocation.
        """
        ...

    def stream(self, handle: int) -> Stream:
        """Return what a task's `Stream` parameter receives."""
        ...

    def in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls a function that puts work on a stream; where libraries need it, one call at a time."""
        ...

    def pin(self, low: int, high: int) -> object | None:
        """Page-lock the host memory between two addresses for as long as what is returned lives; None: cannot."""
        ...

    def finish(self) -> None:
        """Wait for all work of the device, without the GIL."""
        ...
