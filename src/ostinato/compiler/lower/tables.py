"""Lower: what the ops call, and on which arrays, as the flat arrays of a core plan."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import Kind
from ostinato.compiler.lower.host_transfers import host_transfer, words
from ostinato.graph.arrays import Array
from ostinato.graph.body import (
    Acquire,
    Arrive,
    Await,
    Body,
    Copy,
    Fill,
    Inserted,
    Join,
    NativeCall,
    Postcondition,
    Precondition,
    PythonCall,
    Release,
    Until,
)
from ostinato.graph.op import Op
from ostinato.graph.operand import READ, Operand
from ostinato.graph.padding import used_bytes
from ostinato.graph.param import STEP, Param

if TYPE_CHECKING:
    from ostinato.events import Barrier

__all__ = ["Lowered", "Outside", "Substitution", "Tables", "kinds_of", "lower", "needs_gil", "periods_of"]


class Substitution(Protocol):
    """What stands for the captured arrays."""

    def substitute(self, array: Array) -> Array:
        """Return what stands for a captured array or a view of one."""

    def value(self, value: object) -> object:
        """Return what stands for a token or for an array of another library, which tasks get as it was passed."""


Outside: TypeAlias = list[tuple[int, str, tuple[Any, ...]]]
"""What ops do outside of the program: op, kind and what goes with it, as the core wants it said."""


@dataclass
class Lowered:
    """A plan, and the values that each run must bring for it, in order."""

    plan: _core.Plan
    native_values: list[tuple[Param, type]] = field(default_factory=list)
    objects: list[Param] = field(default_factory=list)
    fills: list[tuple[Param, Array]] = field(default_factory=list)  # what a parameter fills, to check its values by
    counts: list[Param] = field(default_factory=list)  # of arrivals
    barriers: list[Param] = field(default_factory=list)
    outside: Outside = field(default_factory=list)
    streams: list[_core.devices.Stream] = field(default_factory=list)
    stream_names: list[str] = field(default_factory=list)  # of their devices
    again: Callable[[], Lowered] | None = None  # where devices are used: it has streams and memory of its own

    def another(self) -> Lowered:
        """Return one on the same arrays that can be used at the same time."""
        return replace(self, plan=self.plan.copy()) if self.again is None else self.again()


def kinds_of(ops: Sequence[Op]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return how the core runs each op."""
    kinds = np.empty(len(ops), np.uint8)
    for op in ops:
        body = op.body
        if isinstance(body, NativeCall):
            kinds[op.index] = Kind.NATIVE
        elif isinstance(body, PythonCall):
            kinds[op.index] = Kind.EXTERNAL if body.blocking else Kind.PYTHON
        elif isinstance(body, Until):
            kinds[op.index] = Kind.UNTIL
        elif isinstance(body, Copy | Fill):
            kinds[op.index] = Kind.NATIVE if host_transfer(body).native is not None else Kind.PYTHON
        else:
            kinds[op.index] = _OTHER.get(type(body), Kind.EXTERNAL)
    return kinds


_OTHER = {Join: Kind.NOTHING, Precondition: Kind.PRECONDITION, Postcondition: Kind.POSTCONDITION}


def needs_gil(body: Body, kind: int) -> bool:
    """Whether an op that the core runs as Python, as external or on a device holds the GIL while it does."""
    if isinstance(body, PythonCall):
        return not (body.releases_gil or kind == Kind.EXTERNAL)
    if kind == Kind.DEVICE:
        return False
    if isinstance(body, Arrive):
        return body.value is not Arrive.NO_VALUE
    return isinstance(body, Copy | Fill)


def periods_of(ops: Sequence[Op]) -> tuple[list[int], list[int]]:
    """Return the distinct ring periods, 1 first, and for each op which of them is its own."""
    classes = {1: 0}
    of = [0] * len(ops)
    for op in ops:
        lengths = [len(operand.ring.views) for operand in op.operands if operand.ring is not None]
        if isinstance(op.body, Inserted):
            lengths.append(op.body.period)
        if lengths:
            of[op.index] = classes.setdefault(math.lcm(*lengths), len(classes))
    return list(classes), of


def lower(
    ops: Sequence[Op],
    schedule: _core.Schedule,
    n_slots: int,
    substitute: Substitution | None = None,
    outside: Outside | None = None,
) -> Lowered:
    """Return the plan of `ops` under `schedule`, of `n_slots` operations, on their arrays or on substitutes.

    `outside` is what they do outside, from an earlier plan: phases of barriers count from where that was made. What is
    left out of it is not done.
    """
    tables = Tables(ops, n_slots, substitute)
    for op in ops:
        tables.add(op)
    return tables.build(schedule, outside)


class Tables:
    """The flat arrays, filled op by op."""

    def __init__(self, ops: Sequence[Op], n_slots: int, substitute: Substitution | None) -> None:
        self._substitute = substitute
        self._function = np.zeros(n_slots, np.uint64)
        self._user = np.zeros(n_slots, np.uint64)
        self._n_arrays = np.zeros(n_slots, np.int32)
        self._period = np.zeros(n_slots, np.int32)
        self._table_begin = np.zeros(n_slots + 1, np.int64)
        self._scalar_begin = np.zeros(n_slots + 1, np.int64)
        self._n_ops = len(ops)
        self._periods, self._period_class = periods_of(ops)
        self._table: list[int] = []
        self._scalars: list[int] = []
        self._views: list[Array] = []
        self._view_index: dict[int, int] = {}  # by id of the operand, for operands that are one array
        self._value_patches: list[tuple[int, int, int]] = []
        self._step_patches: list[tuple[int, int]] = []
        self._python: list[tuple[Any, ...]] = []
        self._native_values: dict[tuple[int, type], int] = {}
        self._objects: dict[int, int] = {}
        self._lowered_natives: list[tuple[Param, type]] = []
        self._lowered_objects: list[Param] = []
        self._fills: list[tuple[Param, Array]] = []
        self._outside_table: Outside = []
        self._preconditions = self._postconditions = 0
        self._counts: list[Param] = []
        self._barriers: list[Param] = []
        self._phases: dict[int, int] = {}
        self._holdings: dict[int, int] = {}

    def add(self, op: Op) -> None:
        """Add an op; they come in order."""
        body = op.body
        index = op.index
        self._table_begin[index] = len(self._table)
        self._scalar_begin[index] = len(self._scalars)
        if type(body) is NativeCall:
            self._function[index] = body.task.address
            self._user[index] = body.task.user_address
            for value, kind in zip(body.args, body.task.kinds, strict=True):
                if type(value) is not Operand:
                    self._add_scalar(index, value, kind)
            self._add_operands(index, op.operands)
        elif type(body) is PythonCall:
            self._add_python(index, body.function, body.args, body.keywords)
            if body.blocking:
                self._outside_table.append((index, "blocking", (len(self._python) - 1,)))
        elif isinstance(body, Until):
            bits = _telling_bits(body.flag.arrays[0].dtype)
            self._function[index] = _core.builtin_task("until")
            self._scalars += [body.every, len(bits), *words(bits)]
            self._add_operands(index, op.operands)
        elif isinstance(body, Copy | Fill):
            how = host_transfer(body)
            if isinstance(body, Fill) and isinstance(body.value, Param):
                self._fills.append((body.value, body.target.arrays[0]))
            if how.native is None:
                assert how.function is not None
                self._add_python(index, how.function, how.args, ())
            else:
                self._function[index] = _core.builtin_task(how.native)
                self._scalars += how.scalars
                self._add_operands(index, how.operands)
        elif not isinstance(body, Join | Inserted):
            self._outside_table.append((index, *self._outside(body)))

    def _outside(self, body: Body) -> tuple[str, tuple[Any, ...]]:
        """What an op does outside, as the core wants it said."""
        if isinstance(body, Precondition):
            self._preconditions += 1
            return "precondition", (self._preconditions - 1,)
        if isinstance(body, Postcondition):
            self._postconditions += 1
            return "postcondition", (self._postconditions - 1,)
        if isinstance(body, Await):
            return "await", self._barrier(body.barrier)
        if isinstance(body, Arrive):
            return "arrive", (*self._barrier(body.barrier), *self._count(body.count), *self._value(body.value))
        assert isinstance(body, Acquire | Release)
        holding = self._holdings.setdefault(id(body.reservation), len(self._holdings))
        if isinstance(body, Acquire):
            return "acquire", (body.reservation._core, holding, body.exclusive)
        return "release", (body.reservation._core, holding)

    def _count(self, count: int | Param) -> tuple[int, int]:
        """Return a count of arrivals, or the number of the run's value that is one."""
        if not isinstance(count, Param):
            return count, -1
        self._counts.append(count)
        return 0, self._native_value(count, int)

    def _value(self, value: object) -> tuple[object, int]:
        """Return the value of an arrival, or the number of the run's object that is one."""
        if isinstance(value, Param):
            return None, self._object(value)
        return None if value is Arrive.NO_VALUE else value, -1

    def _barrier(self, barrier: Barrier | Param) -> tuple[object, int, int]:
        """Return a barrier with the phase of step 0, or the number of the parameter that is one."""
        if not isinstance(barrier, Param):
            return barrier._core, self._phases.setdefault(id(barrier), barrier.phase), -1
        if not any(barrier is known for known in self._barriers):
            self._barriers.append(barrier)
        return None, 0, next(place for place, known in enumerate(self._barriers) if known is barrier)

    def build(self, schedule: _core.Schedule, outside: Outside | None, **more: Any) -> Lowered:
        """Return the plan; `more` goes to the core, too."""
        outside = self._outside_table if outside is None else outside
        self._table_begin[self._n_ops :] = len(self._table)
        self._scalar_begin[self._n_ops :] = len(self._scalars)
        values = np.array(self._value_patches, np.int32).reshape(-1, 3)
        steps = np.array(self._step_patches, np.int32).reshape(-1, 2)
        plan = _core.Plan.build(
            schedule=schedule,
            function=self._function,
            user=self._user,
            table_begin=self._table_begin,
            table=np.array(self._table, np.int32),
            n_arrays=self._n_arrays,
            period_class=self._period,
            views=self._views,
            scalar_begin=self._scalar_begin,
            scalars=np.array(self._scalars, np.int64).view(np.uint64),
            value_op=np.ascontiguousarray(values[:, 0]),
            value_slot=np.ascontiguousarray(values[:, 1]),
            value_index=np.ascontiguousarray(values[:, 2]),
            step_op=np.ascontiguousarray(steps[:, 0]),
            step_slot=np.ascontiguousarray(steps[:, 1]),
            python=self._python,
            external=[*outside, *more.pop("completions", ())],
            **more,
        )
        return Lowered(
            plan, self._lowered_natives, self._lowered_objects, self._fills, self._counts, self._barriers, outside
        )

    def _add_scalar(self, index: int, value: object, kind: type) -> None:
        slot = len(self._scalars) - int(self._scalar_begin[index])
        if type(value) is float:
            self._scalars.append(_bits(value))
        elif type(value) is int:
            self._scalars.append(value)
        elif value is STEP:
            self._step_patches.append((index, slot))
            self._scalars.append(0)
        else:
            assert isinstance(value, Param)
            self._value_patches.append((index, slot, self._native_value(value, kind)))
            self._scalars.append(0)

    def _native_value(self, param: Param, kind: type) -> int:
        key = (id(param), kind)
        if key not in self._native_values:
            self._native_values[key] = len(self._lowered_natives)
            self._lowered_natives.append((param, kind))
        return self._native_values[key]

    def _object(self, param: Param) -> int:
        if id(param) not in self._objects:
            self._objects[id(param)] = len(self._lowered_objects)
            self._lowered_objects.append(param)
        return self._objects[id(param)]

    def _add_operands(self, index: int, operands: Sequence[Operand]) -> None:
        self._n_arrays[index] = len(operands)
        period_class = self._period_class[index]
        if period_class == 0:
            known, table = self._view_index, self._table
            for operand in operands:
                place = known.get(id(operand))
                if place is None:
                    place = known[id(operand)] = self._add_view(operand.arrays[0])
                table.append(place)
            return
        self._period[index] = period_class
        places = [[self._add_view(view) for view in operand.arrays] for operand in operands]
        for phase in range(self._periods[period_class]):
            for operand, own in zip(operands, places, strict=True):
                offset = operand.ring.offset if operand.ring is not None else 0
                self._table.append(own[(phase + offset) % len(own)])

    def _add_view(self, array: Array) -> int:
        self._views.append(array if self._substitute is None else self._substitute.substitute(array))
        return len(self._views) - 1

    def _add_python(
        self, index: int, function: Callable[..., Any], args: Sequence[object], keywords: tuple[str, ...]
    ) -> None:
        period_class = self._period_class[index]
        steps = tuple(position for position, arg in enumerate(args) if arg is STEP)
        values = tuple((position, self._object(arg)) for position, arg in enumerate(args) if isinstance(arg, Param))
        rows = tuple(tuple(self._argument(arg, phase) for arg in args) for phase in range(self._periods[period_class]))
        self._python.append((index, function, keywords or None, rows, period_class, steps, values))

    def _argument(self, arg: object, phase: int) -> object:
        if arg is STEP or isinstance(arg, Param):
            return None  # set in every step, or by every run
        if not isinstance(arg, Operand):
            return arg
        if arg.ring is not None:
            array = arg.ring.views[(phase + arg.ring.offset) % len(arg.ring.views)]
        elif arg.array is None or not isinstance(arg.value, np.ndarray):
            # A token, or an array of another library.
            return arg.value if self._substitute is None else self._substitute.value(arg.value)
        else:
            array = arg.array
        view = (array if self._substitute is None else self._substitute.substitute(array)).view(np.ndarray)
        if arg.mode == READ:
            view.flags.writeable = False
        return view


def _telling_bits(dtype: np.dtype[Any]) -> bytes:
    """The bits of which none is set in zero and any in another number: not the signs, and no padding."""
    zero = np.zeros(1, dtype)
    signs = (-zero).astype(dtype) if dtype.kind in "fc" else zero
    return bytes(np.where(used_bytes(dtype), ~signs.view(np.uint8), 0).astype(np.uint8))


def _bits(value: float) -> int:
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits
