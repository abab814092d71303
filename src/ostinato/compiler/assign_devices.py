"""Which ops run on devices, and on which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from ostinato.compiler.ir import HOST, IntArray, Step, Target
from ostinato.compiler.memories import Homes
from ostinato.devices.array import DeviceArray
from ostinato.devices.device import format_reasons
from ostinato.devices.transfers import overlap
from ostinato.errors import GraphError
from ostinato.graph.arrays import Array
from ostinato.graph.body import Copy, Fill, NativeCall, PythonCall
from ostinato.graph.variant import CPU

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.graph.arrays import Operand
    from ostinato.graph.op import Op


def assign_devices(step: Step, target: Target) -> Step:
    """Return the step with the device that each node runs on: see `find_devices`."""
    found = find_devices(step.nodes, target.devices, target.processors)
    for op in step.nodes:
        if found[op.index] == HOST and isinstance(op.body, PythonCall | NativeCall) and op.body.takes_stream:
            raise GraphError(
                f"{op.name!r} at {op.call_site} takes the stream of a device, so it cannot run on a CPU; a variant of "
                "it that takes none can"
            )
    return replace(step, devices=target.devices, device=found)


def find_devices(ops: Sequence[Op], devices: Sequence[Device], cpus: int = 1, homes: Homes | None = None) -> IntArray:
    """Return the device that each op runs on: its index, or `HOST`.

    On a device run tasks with a stream, Python tasks that are bound to one or work on nothing but arrays of other
    libraries in its memory, and plain copies and fills of arrays in its memory. All else runs on the host.

    `ops`: the ops, with the bodies of the variants that were chosen.
    `devices`: those of the machine.
    `cpus`: how many CPUs it has.
    `homes`: where arrays are.
    """
    assigning = _Assigning(devices, cpus, homes or Homes(devices))
    return np.fromiter((assigning.device_of(op) for op in ops), np.int32, len(ops))


def is_plain(body: Copy | Fill) -> bool:
    """Whether a copy or a fill is one that devices can do: bytes move elsewhere, or one value is repeated."""
    if isinstance(body, Fill):
        return isinstance(body.value, np.ndarray) and body.value.size == 1 and _repeats(body.value)
    if body.reduce is not None or body.indices is not None or body.scatter is not None:
        return False
    return bool(body.source.arrays[0].dtype == body.target.arrays[0].dtype) and not _overlap(body)


def _overlap(body: Copy) -> bool:
    """Whether source and target have memory in common in some step: devices copy one element before another."""
    source, target = body.source, body.target
    first, second = (0 if each.ring is None else each.ring.offset for each in (source, target))
    for phase in range(lcm(len(source.arrays), len(target.arrays))):
        one, other = source.arrays, target.arrays
        if overlap(one[(phase + first) % len(one)], other[(phase + second) % len(other)]):
            return True
    return False


_LONGEST_PATTERN = 16  # Bytes; no device repeats more.


def _repeats(value: Array) -> bool:
    size = value.itemsize
    data = value.tobytes()
    if len(set(data)) == 1:
        return True
    return size <= _LONGEST_PATTERN and size & (size - 1) == 0


class _Assigning:
    def __init__(self, devices: Sequence[Device], cpus: int, homes: Homes) -> None:
        self._devices = devices
        self._cpus = cpus
        self._homes = homes
        self._home_of: dict[int, int] = {}  # by id of an array; the ops keep them
        self._named: dict[str, list[int]] = {}  # devices by a name or a kind

    def device_of(self, op: Op) -> int:
        body = op.body
        if isinstance(body, Copy | Fill):
            return self._of_transfer(op, body)
        if not isinstance(body, PythonCall | NativeCall):
            self._refuse_bound(op, "runs on the host")
            return HOST
        wanted = self._wanted(op)
        if body.takes_stream:
            if wanted is None:
                return self._pick(op, range(len(self._devices)), "takes a stream")
            return HOST if wanted == CPU else self._pick(op, self._called(wanted), f"is bound to {wanted!r}")
        if isinstance(body, NativeCall):
            self._refuse_bound(op, "is native and takes no stream, so it runs on the host")
            return HOST
        if wanted is None:
            return self._of_foreign(op)
        return HOST if wanted == CPU else self._pick(op, self._called(wanted), f"is bound to {wanted!r}")

    def _of_transfer(self, op: Op, body: Copy | Fill) -> int:
        wanted = self._wanted(op)
        if wanted == CPU:
            return HOST
        if wanted is not None:
            if is_plain(body):
                return self._pick(op, self._called(wanted), f"is bound to {wanted!r}")
            self._refuse_bound(op, "is no plain copy or fill, so it runs on the host")
        if not is_plain(body) or self._holds_objects(op):
            return HOST
        sides = (body.target,) if isinstance(body, Fill) else (body.target, body.source)
        found = [home for side in sides if (home := self._home(side, op)) != HOST]
        return found[0] if found else HOST

    def _of_foreign(self, op: Op) -> int:
        """The device of an op all of whose arrays are another library's, in the memory of one."""
        homes = Counter[int]()
        for operand in op.operands:
            if operand.arrays:
                home = self._home(operand, op)
                if home == HOST or not _is_foreign(operand):
                    return HOST
                homes[home] += 1
        return homes.most_common(1)[0][0] if homes else HOST

    def _wanted(self, op: Op) -> str | None:
        """The name of the processor, or the kind, that an op is bound to; all CPUs are one here."""
        on = getattr(op.on, "name", op.on)
        if on is None:
            return op.variant.on if op.variant is not None else None
        return CPU if str(on).partition(":")[0] == CPU else str(on)

    def _called(self, wanted: str) -> list[int]:
        if wanted not in self._named:
            self._named[wanted] = [
                index for index, device in enumerate(self._devices) if wanted in (device.name, device.kind)
            ]
        return self._named[wanted]

    def _pick(self, op: Op, among: Sequence[int], why: str) -> int:
        """The device on which most bytes of an op's arrays are, or else the first."""
        if not among:
            raise GraphError(f"{op.name!r} at {op.call_site} {why}, but this machine has only {self._there()}")
        if self._holds_objects(op):
            raise GraphError(
                f"{op.name!r} at {op.call_site} {why}, but is given an array of Python objects, which have no place "
                "in the memory of a device"
            )
        if len(among) == 1:
            return among[0]
        there = dict.fromkeys(among, 0)
        for operand in op.operands:
            for array in operand.arrays:
                home = self._home_of_array(array, op)
                if home in there:
                    there[home] += array.nbytes
        return max(among, key=there.__getitem__)

    def _refuse_bound(self, op: Op, why: str) -> None:
        wanted = self._wanted(op)
        if wanted is not None and wanted != CPU:
            if self._called(wanted):
                raise GraphError(f"{op.name!r} at {op.call_site} is bound to {wanted!r}, but {why}")
            self._pick(op, (), f"is bound to {wanted!r}")

    def _there(self) -> str:
        names = [*(f"{CPU}:{i}" for i in range(self._cpus)), *(device.name for device in self._devices)]
        return ", ".join(names) + format_reasons()

    def _home(self, operand: Operand, op: Op) -> int:
        return next((home for array in operand.arrays if (home := self._home_of_array(array, op)) != HOST), HOST)

    def _home_of_array(self, array: Array, op: Op) -> int:
        home = self._home_of.get(id(array))
        if home is None:
            home = self._home_of[id(array)] = self._homes.of(array, op)
        return home

    def _holds_objects(self, op: Op) -> bool:
        return any(operand.arrays and operand.arrays[0].dtype.hasobject for operand in op.operands)


def _is_foreign(operand: Operand) -> bool:
    """Whether tasks get something of another library."""
    values = (operand.value,) if operand.ring is None else operand.ring.ring.values
    return not any(isinstance(value, np.ndarray | DeviceArray) for value in values)
