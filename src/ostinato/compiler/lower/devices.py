"""Lower, where a graph uses devices: streams, plans of transfers, and what waits for what."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato import _core
from ostinato.compiler.coherence.coherent_ops import Noted, Transferred
from ostinato.compiler.ir import Edges, IntArray
from ostinato.compiler.lower.plan_arrays import PlanArrays
from ostinato.compiler.lower.tables import Lowered, Outside, Substitution, Tables
from ostinato.compiler.streams.assign_streams import OUT
from ostinato.compiler.streams.fences import Completion, completions_of
from ostinato.devices.array import DeviceArray
from ostinato.devices.device import failures_told
from ostinato.devices.registry import address_of, allocation_at, allocation_under, bytes_at, view_of
from ostinato.devices.transfers import joined, pattern
from ostinato.errors import GraphError
from ostinato.graph.access import STREAM
from ostinato.graph.arrays import READ, Array, Operand
from ostinato.graph.body import Body, Copy, Fill, Join, NativeCall, PythonCall
from ostinato.graph.op import Op
from ostinato.graph.param import STEP

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable
    from ostinato.compiler.streams.staging import Staged
    from ostinato.devices.array import Allocation
    from ostinato.devices.device import Device

__all__ = ["lower_on_devices"]


def lower_on_devices(
    executable: Executable,
    processors: int,
    substitute: Substitution | None = None,
    outside: Outside | None = None,
    streams: list[_core.devices.Stream] | None = None,
) -> Lowered:
    """Return the plan of a schedule that uses devices; else like `lower`.

    The plan has streams of its own, and memory of its own for mirrors. It keeps host memory that is copied from or to
    page-locked for as long as it lives.

    Parameters
    ----------
    executable
        The schedule.
    processors
        How many CPUs the machine has; devices are numbered on from there.
    substitute, outside
        As of `lower`.
    streams
        Those of an earlier plan for this schedule, to be used again; None: it gets streams of its own.

    Raises
    ------
    DeviceError
        A device has not enough memory.
    """
    assert executable.step.staged is not None
    arrays = PlanArrays(executable.step.staged, substitute)
    if streams is None:
        streams = _opened(executable.step.staged, processors)
    tables = _DeviceTables(executable, executable.step.staged, arrays, streams)
    for op in executable.step.nodes:
        tables.add(op)
    lowered = tables.build_all(outside)
    lowered.again = partial(lower_on_devices, executable, processors, substitute, lowered.outside)
    return lowered


def _opened(staged: Staged, processors: int) -> list[_core.devices.Stream]:
    streams = []
    for number in staged.streams.device.tolist():
        device = staged.devices[number]
        with failures_told(device):
            streams.append(_core.devices.Stream(device.core, device.name, processors + number))
    return streams


class _Views(list[Array]):
    """The arrays of a plan, which the core keeps; and what else must live as long."""

    kept: Sequence[object] = ()


class _DeviceTables(Tables):
    """The flat arrays, filled op by op; and what streams and their ops are."""

    def __init__(
        self, executable: Executable, staged: Staged, arrays: PlanArrays, streams: list[_core.devices.Stream]
    ) -> None:
        super().__init__(executable.step.nodes, executable.slots, arrays)
        self._views: _Views = _Views()
        self._executable, self._staged, self._arrays = executable, staged, arrays
        self._of_device: list[int] = staged.device.tolist()
        self._stream_of: list[int] = staged.streams.of.tolist()
        self._streams = streams
        self._faces = [
            staged.devices[device].stream(stream.handle)
            for device, stream in zip(staged.streams.device, self._streams, strict=True)
        ]
        self._entries: list[tuple[Any, ...]] = []
        self._waits_on: dict[int, list[tuple[int, int]]] = {}
        self._recorded: set[int] = set()
        # By id of pairs of arrays, with these: many copies are of the same.
        self._transfers: dict[tuple[int, str], tuple[object, _core.devices.Transfer]] = {}
        self._completions: Outside = []
        self._worked_on: set[Allocation] = set()
        self._device: Device | None = None  # of the op that is being added
        self._stream = -1
        self._after = _within(staged.ordering, staged.streams.of, len(staged.coherent.ops))
        self._find_waits()
        self._find_completions()

    def add(self, op: Op) -> None:
        """Add an op; they come in order."""
        stream = self._stream_of[op.index]
        device = self._of_device[op.index]
        if isinstance(op.body, Completion):
            stream = -1
        self._stream = stream
        self._device = self._staged.devices[device] if device >= 0 else None
        if stream < 0 and self._device is not None:
            self._add_waiting(op)
        elif stream < 0:
            super().add(op)
        else:
            self._add_device_op(op)

    def build_all(self, outside: Outside | None) -> Lowered:
        """Return the plan."""
        self._views.kept = self._arrays.kept
        coherent = self._staged.coherent
        write_backs = []
        stream_of: dict[int, _core.devices.Stream] = {}
        for number in self._outward:
            stream_of.setdefault(int(self._staged.streams.device[number]), self._streams[number])
        for back in coherent.write_backs:
            transfer = self._transfer(back.pairs, self._staged.devices[back.device])
            write_backs.append((back.flag, stream_of[back.device], transfer))
        lowered = self.build(
            self._executable.core,
            outside,
            completions=self._completions,
            device=self._entries,
            write_back=write_backs,
            fenced=bool(coherent.mirrors),
            memory=[(each.address, each.address + each.nbytes) for each in self._worked_on],
        )
        lowered.streams = self._streams
        lowered.stream_names = [self._staged.devices[device].name for device in self._staged.streams.device]
        return lowered

    @property
    def _outward(self) -> list[int]:
        """Streams, those for copies to the host first."""
        purpose = self._staged.streams.purpose
        return sorted(range(len(self._streams)), key=lambda number: purpose[number] != OUT)

    def _find_waits(self) -> None:
        """Between streams of one device, what waits for an op's issue waits on the device for its work, too."""
        waits, streams = self._executable.step.waits, self._staged.streams
        n = len(self._staged.coherent.ops)
        issued = np.zeros(max(len(streams.of), self._executable.slots), np.bool_)
        issued[:n] = streams.of[:n] >= 0
        after = np.repeat(np.arange(len(waits.start) - 1), np.diff(waits.start))
        both = issued[after] & issued[waits.op]
        self._waits_on = {op: [] for op in np.flatnonzero(issued).tolist()}
        for op, before, distance in zip(
            *(each[both].tolist() for each in (after, waits.op, waits.distance)), strict=True
        ):
            self._waits_on[op].append((before, distance))
            self._recorded.add(before)

    def _find_completions(self) -> None:
        followed = set(self._executable.step.ordering.src.tolist()) if not self._executable.step.serial else None
        places = np.empty(self._executable.slots, np.int64)
        for lane in self._executable.lane_ops:
            places[lane] = np.arange(len(lane))
        order = places.tolist()
        for index, completion in completions_of(self._executable.step.nodes):
            if completion.waits:
                last = max(completion.of, key=order.__getitem__)
                self._recorded.add(last)
                lazy = followed is not None and index not in followed
                self._completions.append((index, "completion", (last, True) if lazy else (last,)))

    def _add_waiting(self, op: Op) -> None:
        """A task that does not keep a stream's order: a thread of its own waits until the device is done."""
        body, device = op.body, self._device
        assert isinstance(body, PythonCall)
        assert device is not None
        self._begin(op)
        number = self.add_python(op.index, _Finished(body.function, device), body.args, body.keywords)
        self.wait_outside(op.index, "blocking", number)

    def _begin(self, op: Op) -> None:
        self._table_begin[op.index] = len(self._table)
        self._scalar_begin[op.index] = len(self._scalars)
        self._period[op.index] = self._period_class[op.index]

    def _add_device_op(self, op: Op) -> None:
        index, coherent = op.index, self._staged.coherent
        device = self._staged.devices[int(self._staged.streams.device[self._stream])]
        entry: tuple[Any, ...]
        if isinstance(op.body, NativeCall):
            super().add(op)
            self._period[index] = self._period_class[index]
            handle = [
                at for at, value in enumerate(v for v in op.body.args if not isinstance(v, Operand)) if value is STREAM
            ]
            entry = ("native", handle[0] if handle else -1)
        else:
            self._begin(op)
            entry = self._body(op, op.body, device)
        self._entries.append(
            (
                index,
                self._streams[self._stream],
                entry,
                self._waits_on[index],
                index in self._recorded,
                coherent.activity.get(index),
                coherent.sets.get(index, ()),
                coherent.clears.get(index, ()),
                self._after[index],
            )
        )

    def _body(self, op: Op, body: Body, device: Device) -> tuple[Any, ...]:
        """What a device op does, as the core wants it said."""
        phases = range(self._periods[self._period_class[op.index]])
        if isinstance(body, PythonCall):
            self.add_python(op.index, device.in_turn(body.function), body.args, body.keywords)
            if body.launch_only and STEP not in body.args:
                positions = tuple(at for at, value in enumerate(body.args) if value is STREAM)
                return "captured", device.stream, positions
            return ("python",)
        if isinstance(body, Transferred):
            transfers = [self._transfer(body.pairs[phase % body.period], device) for phase in phases]
            return "copy", transfers
        if isinstance(body, Copy):
            pairs = [[(self._at(body.source, phase), self._at(body.target, phase))] for phase in phases]
            return "copy", [self._planned(each, device) for each in pairs]
        if isinstance(body, Fill):
            value = np.asarray(body.value).reshape(-1)[0]
            targets = [self._at(body.target, phase) for phase in phases]
            self._worked_on.update(filter(None, map(allocation_under, targets)))
            patterns = [pattern(target, value) for target in targets]
            assert all(each is not None for each in patterns)
            return "fill", patterns
        assert isinstance(body, Noted | Join)
        return ("nothing",)

    def _transfer(self, pairs: Sequence[tuple[Array, Array]], device: Device) -> _core.devices.Transfer:
        """Plan a copy between arrays of which some are at made-up addresses."""
        key = id(pairs), device.name
        if key not in self._transfers:
            stand_ins = [(self._arrays.substitute(source), self._arrays.substitute(target)) for source, target in pairs]
            self._transfers[key] = pairs, self._planned(stand_ins, device)
        return self._transfers[key][1]

    def _planned(self, pairs: Sequence[tuple[Array, Array]], device: Device) -> _core.devices.Transfer:
        if not pairs:
            return _core.devices.Transfer((0, 0, False), (0, 0, False), [])
        self._worked_on.update(filter(None, (allocation_under(array) for pair in pairs[:1] for array in pair)))
        self._arrays.pin(pairs, device)
        self._arrays.kept.append(pairs)
        return joined(pairs)

    def _at(self, operand: Operand, phase: int) -> Array:
        """The array that an operand stands for in steps of a phase."""
        views = operand.arrays
        offset = operand.ring.offset if operand.ring is not None else 0
        return self._arrays.substitute(views[(phase + offset) % len(views)])

    def _argument(self, arg: object, phase: int) -> object:
        if arg is STREAM:
            return self._faces[self._stream]
        if not isinstance(arg, Operand) or not arg.arrays:
            return super()._argument(arg, phase)
        array = self._at(arg, phase)
        foreign = arg.ring is None and not isinstance(arg.value, np.ndarray | DeviceArray)
        allocation = allocation_under(array)
        there = allocation is not None
        if not (array.size or foreign) and there != (self._device is not None):  # nothing has no mirror
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
    """By op, the ops of its own stream that it comes after in the same step. A device is told what it may overlap."""
    kept = (ordering.distance == 0) & (ordering.src < n) & (ordering.dst < n)
    kept &= (stream[ordering.src] >= 0) & (stream[ordering.src] == stream[ordering.dst])
    src, dst = ordering.src[kept], ordering.dst[kept]
    begin = np.searchsorted(dst, np.arange(n + 1))
    sources: list[int] = src.tolist()
    return [sources[low:high] for low, high in itertools.pairwise(begin.tolist())]


class _Finished:
    """Calls a function, and returns when the device is done."""

    __slots__ = ("_device", "_function")

    def __init__(self, function: Callable[..., Any], device: Device) -> None:
        self._function = function
        self._device = device

    def __call__(self, *args: Any, **keywords: Any) -> None:
        try:
            self._function(*args, **keywords)
        finally:
            self._device.finish()
