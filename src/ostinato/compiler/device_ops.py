"""What has to do with devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ostinato.devices.registry import any_allocations
from ostinato.graph.arrays import HOST, memory_of
from ostinato.graph.body import NativeCall, PythonCall

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["uses_devices"]


def uses_devices(ops: Sequence[Op]) -> bool:
    """Whether any op takes a stream, is bound to what is no CPU, or uses an array of a device."""
    bound = (op.on for op in ops if op.on is not None)
    if any(not str(getattr(on, "name", on)).startswith("cpu") for on in bound):
        return True
    called = {op.body.task for op in ops if type(op.body) is PythonCall or type(op.body) is NativeCall}
    if any(task.stream is not None for task in called):
        return True
    return any_allocations() and any(
        memory_of(array) != HOST for op in ops for each in op.operands for array in each.arrays
    )
