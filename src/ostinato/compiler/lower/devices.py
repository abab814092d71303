"""Lower, where a graph uses devices: streams, plans of transfers, memory of instances, and what waits for what."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import OUT, Edges, IntArray, Step
from ostinato.compiler.lower.lowerings import lowering_of
from ostinato.compiler.lower.tables import Lowered, Outside, Substitution, Tables
from ostinato.devices.array import DeviceArray
from ostinato.devices.registry import address_of, allocation_at, allocation_under, bytes_at, view_of
from ostinato.devices.transfers import plan_together
from ostinato.errors import DeviceError, GraphError
from ostinato.graph.access import STREAM
from ostinato.graph.arrays import READ, Array, Operand
from ostinato.graph.body import PythonCall
from ostinato.graph.op import Op

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable
    from ostinato.compiler.memories import Instance
    from ostinato.devices.array import Allocation
    from ostinato.devices.device import Device

_PAGE = 4096


class _Views(list[Array]):
    """The arrays of a plan, which the core keeps; and what else must live as long."""

    kept: Sequence[object] = ()


class DeviceTables(Tables):
    """The flat arrays, filled op by op; and what streams and their ops are. The plan has memory of its own for
    instances, and keeps host memory that copies use page-locked for as long as it lives."""

    def __init__(
        self, executable: Executable, streams: list[_core.devices.Stream], substitute: Substitution | None
    ) -> None:
        step = executable.step
        arrays = _PlanArrays(step, substitute)
        super().__init__(step.summary, executable.slots, arrays)
        self._views: _Views = _Views()
        self._executable, self._arrays = executable, arrays
        self._devices, self._numbering, self._coherence = step.devices, step.streams, step.coherence
        self._of_device: list[int] = step.device.tolist()
        self._issued = step.streams.issued
        self._stream_of: list[int] = np.where(self._issued, step.streams.of, -1).tolist()
        self._streams = streams
        self._replacements = [
            self._devices[device].stream(stream.handle)
            for device, stream in zip(step.streams.device, streams, strict=True)
        ]
        self._entries: list[tuple[Any, ...]] = []
        self._waits_on: dict[int, list[tuple[int, int]]] = {}
        self._recorded: set[int] = set()
        # By id of pairs of arrays, with these: many copies are of the same.
        self._transfers: dict[tuple[int, str], tuple[object, _core.devices.Transfer]] = {}
        self._fences: Outside = []
        self._worked_on: set[Allocation] = set()
        self._device: Device | None = None  # of the op that is being added
        self._stream = -1
        self._after = _within(step.ordering, step.streams.of, len(step.nodes) - len(step.streams.fences))
        self._find_waits()
        self._find_fences()

    def add(self, op: Op) -> None:
        """Add an op; they come in order."""
        index, device = op.index, self._of_device[op.index]
        self._stream = self._stream_of[index]
        self._device = self._devices[device] if device >= 0 else None
        if self._stream >= 0:
            self._issue(op)
        elif self._device is not None:  # it does not keep a stream's order: a thread of its own waits for the device
            self._begin(op)
            assert isinstance(op.body, PythonCall)
            function = _finishing(op.body.function, self._device)
            self.wait_outside(index, "blocking", self.add_python(index, function, op.body.args, op.body.keywords))
        else:
            super().add(op)

    def build_all(self, outside: Outside | None) -> Lowered:
        """Return the plan."""
        self._views.kept = self._arrays.kept
        purpose, device_of = self._numbering.purpose, self._numbering.device.tolist()
        outward: dict[int, _core.devices.Stream] = {}  # by device, a stream to the host if it has one
        for number in sorted(range(len(self._streams)), key=lambda number: purpose[number] != OUT):
            outward.setdefault(device_of[number], self._streams[number])
        write_backs = [
            (back.flag, outward[back.device], self.plan_between_instances(back.pairs, self._devices[back.device]))
            for back in self._coherence.write_backs
        ]
        lowered = self.build(
            self._executable.core,
            outside,
            fences=self._fences,
            device=self._entries,
            write_back=write_backs,
            fenced=bool(self._coherence.instances),
            memory=[(each.address, each.address + each.nbytes) for each in self._worked_on],
        )
        lowered.streams = self._streams
        lowered.stream_names = [self._devices[device].name for device in device_of]
        return lowered

    def _find_waits(self) -> None:
        """Between streams of one device, what waits for an op's issue waits on the device for its work, too."""
        waits = self._executable.step.waits
        issued = np.zeros(self._executable.slots, np.bool_)
        issued[: len(self._issued)] = self._issued
        after = np.repeat(np.arange(len(waits.start) - 1), np.diff(waits.start))
        both = issued[after] & issued[waits.op]
        self._waits_on = {op: [] for op in np.flatnonzero(issued).tolist()}
        columns = (each[both].tolist() for each in (after, waits.op, waits.distance))
        for op, before, distance in zip(*columns, strict=True):
            self._waits_on[op].append((before, distance))
            self._recorded.add(before)

    def _find_fences(self) -> None:
        """A fence waits for the device event after the last of its ops; at once only if anything comes after it."""
        step = self._executable.step
        followed = set(step.ordering.src.tolist()) if not step.serial else None
        positions = np.empty(self._executable.slots, np.int64)
        for lane in self._executable.lane_ops:
            positions[lane] = np.arange(len(lane))
        order = positions.tolist()
        for index, fence in self._numbering.fences:
            if fence.waits:
                last = max(fence.of, key=order.__getitem__)
                self._recorded.add(last)
                lazy = followed is not None and index not in followed
                self._fences.append((index, "fence", (last, True) if lazy else (last,)))

    def _issue(self, op: Op) -> None:
        """Add an op that puts work on its stream."""
        index, coherence = op.index, self._coherence
        self._begin(op)
        self._period[index] = self._period_class[index]
        device = self._devices[int(self._numbering.device[self._stream])]
        self._entries.append(
            (
                index,
                self._streams[self._stream],
                lowering_of(op.body).issue(self, op, op.body, device),
                self._waits_on[index],
                index in self._recorded,
                coherence.activity.get(index),
                coherence.sets.get(index, ()),
                coherence.clears.get(index, ()),
                self._after[index],
            )
        )

    def phases_of(self, op: Op) -> range:
        """Return the phases after which an op does the same again."""
        return range(self._periods[self._period_class[op.index]])

    def plan_between_instances(self, pairs: Sequence[tuple[Array, Array]], device: Device) -> _core.devices.Transfer:
        """Plan a copy between arrays, some of which are at made-up addresses."""
        key = id(pairs), device.name
        if key not in self._transfers:
            real = [(self._arrays.substitute(source), self._arrays.substitute(target)) for source, target in pairs]
            self._transfers[key] = pairs, self.plan_copy(real, device)
        return self._transfers[key][1]

    def plan_copy(self, pairs: Sequence[tuple[Array, Array]], device: Device) -> _core.devices.Transfer:
        """Plan a copy of arrays of the plan, as one."""
        if not pairs:
            return _core.devices.Transfer((0, 0, False), (0, 0, False), [])
        self.work_on(*pairs[0])
        self._arrays.pin(pairs, device)
        self._arrays.kept.append(pairs)
        return plan_together(pairs)

    def work_on(self, *arrays: Array) -> None:
        """Say that streams work on the memory of these arrays."""
        self._worked_on.update(filter(None, map(allocation_under, arrays)))

    def array_of(self, operand: Operand, phase: int) -> Array:
        """Return the array of an operand in steps of a phase."""
        views = operand.arrays
        offset = operand.ring.offset if operand.ring is not None else 0
        return self._arrays.substitute(views[(phase + offset) % len(views)])

    def _argument(self, arg: object, phase: int) -> object:
        if arg is STREAM:
            return self._replacements[self._stream]
        if not isinstance(arg, Operand) or not arg.arrays:
            return super()._argument(arg, phase)
        array = self.array_of(arg, phase)
        foreign = arg.ring is None and not isinstance(arg.value, np.ndarray | DeviceArray)
        allocation = allocation_under(array)
        there = allocation is not None
        if not (array.size or foreign) and there != (self._device is not None):  # it has no instance
            return self._nothing_like(array)
        if allocation is None:
            return super()._argument(arg, phase)
        self._worked_on.add(allocation)
        if foreign:
            return self._arrays.value(arg.value)
        if arg.mode == READ:
            array = array.view()
            array.flags.writeable = False
        return allocation.view(array)

    def _nothing_like(self, array: Array) -> Array | DeviceArray:
        """Return an array without elements where the op runs."""
        if self._device is None:
            return np.empty(array.shape, array.dtype)
        return self._device.allocate(1).array(array.shape, array.dtype)

    def add_scalar(self, index: int, value: object, kind: type) -> None:
        if value is STREAM:
            self._scalars.append(self._streams[self._stream].handle)
        else:
            super().add_scalar(index, value, kind)

    def _add_view(self, array: Array) -> int:
        if self._stream < 0:
            return super()._add_view(array)
        array = self._arrays.substitute(array)
        allocation = allocation_at(address_of(array))
        if allocation is not None:
            self._worked_on.add(allocation)
        if allocation is not None and allocation.base != allocation.address:
            if address_of(array) != allocation.address:
                raise GraphError(
                    f"a native task on {allocation.device.name} gets arrays as handles, which have no offsets: pass "
                    "arrays that begin where their memory does"
                )
            self._arrays.kept.append(array)
            array = view_of(
                bytes_at(allocation.base, allocation.nbytes, allocation), 0, array.shape, array.dtype, array.strides
            )
        self._views.append(array)
        return len(self._views) - 1


def _within(ordering: Edges, stream: IntArray, n: int) -> list[list[int]]:
    """By op, the ops of its own stream that it comes after in the same step: a device may overlap all others."""
    kept = (ordering.distance == 0) & (ordering.src < n) & (ordering.dst < n)
    kept &= (stream[ordering.src] >= 0) & (stream[ordering.src] == stream[ordering.dst])
    src, dst = ordering.src[kept], ordering.dst[kept]
    begin = np.searchsorted(dst, np.arange(n + 1))
    sources: list[int] = src.tolist()
    return [sources[low:high] for low, high in itertools.pairwise(begin.tolist())]


def _finishing(function: Callable[..., Any], device: Device) -> Callable[..., None]:
    """Return a function that returns when the device is done, too."""

    def call(*args: Any, **keywords: Any) -> None:
        try:
            function(*args, **keywords)
        finally:
            device.finish()

    return call


class _PlanArrays:
    """The arrays of a plan: replacements of captured ones, memory of its own for instances, page-locked memory.

    Attributes
    ----------
    kept
        What must live as long as the plan.
    """

    def __init__(self, step: Step, substitute: Substitution | None) -> None:
        self._substitute = substitute
        # Copies know addresses only.
        recorded = [array for op in step.recorded.nodes for operand in op.operands for array in operand.arrays]
        self.kept: list[object] = [substitute, recorded]
        self._instances: list[tuple[int, int, Array]] = []  # made-up address, size, and the bytes
        for instance in sorted(step.coherence.instances, key=lambda each: each.base):
            size = instance.high - instance.low
            if instance.memory >= 0:
                try:
                    allocation = step.devices[instance.memory].allocate(size)
                except DeviceError as error:
                    error.args = (f"{error}; {_needed(step, instance)}",)
                    raise
                self._instances.append((instance.base, size, bytes_at(allocation.address, size, allocation)))
            else:
                memory = np.empty(size + _PAGE, np.uint8)
                address = -(-address_of(memory) // _PAGE) * _PAGE
                self._instances.append((instance.base, size, bytes_at(address, size, memory)))
        self._bases = [base for base, *_ in self._instances]
        self._pinned: set[tuple[str, int, int]] = set()

    def substitute(self, array: Array) -> Array:
        """Return the replacement of an array of an op."""
        if self._instances:
            address = address_of(array)
            number = bisect_right(self._bases, address) - 1
            if number >= 0:
                base, size, raw = self._instances[number]
                if address <= base + size:
                    return view_of(raw, address - base, array.shape, array.dtype, array.strides)
        return array if self._substitute is None else self._substitute.substitute(array)

    def value(self, value: object) -> object:
        """Return the replacement of a token or an array of another library."""
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


def _needed(step: Step, instance: Instance) -> str:
    """Say what an instance is for."""
    for op in step.nodes:
        for array in (array for operand in op.operands for array in operand.arrays):
            if instance.base <= address_of(array) <= instance.base + instance.high - instance.low:
                return f"they are to hold what {op.name!r} at {op.call_site} uses of an array that lies elsewhere"
    return "they are to hold a copy of an array that lies elsewhere"
