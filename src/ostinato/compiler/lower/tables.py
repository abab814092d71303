"""Lower: what the ops call, and on which arrays, as the flat arrays of a core plan."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ostinato import _core
from ostinato.compiler.lower.lowerings import lowering_of
from ostinato.graph.arrays import READ, Array, Operand
from ostinato.graph.body import Arrive, Inserted, NativeCall, PythonCall
from ostinato.graph.containers import PLAIN
from ostinato.graph.messages import Message
from ostinato.graph.op import Op
from ostinato.graph.param import STEP, Param

if TYPE_CHECKING:
    from ostinato.compiler.ir import IntArray
    from ostinato.compiler.summary import Summary
    from ostinato.events import Barrier, Reservation


class Substitution(Protocol):
    """What stands for the captured arrays."""

    def substitute(self, array: Array) -> Array:
        """Return what stands for a captured array or a view of one."""

    def value(self, value: object) -> object:
        """Return what stands for a token or for an array of another library, which tasks get as it was passed."""


Outside: TypeAlias = list[tuple[int, str, tuple[Any, ...]]]
"""What ops do outside of the program: op, kind and what goes with it, as the core wants it said."""


@dataclass(eq=False, repr=False)
class Lowered:
    """A plan, and the values that each run must bring for it, in order."""

    plan: _core.Plan
    native_values: list[tuple[Param, type]] = field(default_factory=list)
    objects: list[Param] = field(default_factory=list)
    fills: list[tuple[Param, Array]] = field(default_factory=list)  # what a parameter fills, to check its values by
    counts: list[Param] = field(default_factory=list)  # of arrivals
    barriers: list[Param] = field(default_factory=list)
    outside: Outside = field(default_factory=list)
    traffic: _core.messages.Traffic | None = None  # of its channels, if it has any of its own
    streams: list[_core.devices.Stream] = field(default_factory=list)
    stream_names: list[str] = field(default_factory=list)  # of their devices
    again: Callable[[], Lowered] | None = None  # where devices are used: it has streams and memory of its own

    def another(self) -> Lowered:
        """Return one on the same arrays that can be used at the same time."""
        return replace(self, plan=self.plan.copy()) if self.again is None else self.again()


def periods_of(summary: Summary) -> tuple[IntArray, IntArray]:
    """Return the distinct ring periods, 1 first, and for each op which of them is its own."""
    ops, periods = summary.ops, summary.period.copy()
    for index in summary.others.tolist():
        body = ops[index].body
        if isinstance(body, Inserted):
            periods[index] = math.lcm(int(periods[index]), body.period)
    classes, of = np.unique(np.append(periods, np.int32(1)), return_inverse=True)  # so 1 is among them, and the first
    return classes, of[:-1].astype(np.int32)


def lower_nodes(
    summary: Summary,
    schedule: _core.Schedule,
    n_slots: int,
    substitute: Substitution | None = None,
    outside: Outside | None = None,
) -> Lowered:
    """Return the plan of nodes under `schedule`, of `n_slots` operations, on their arrays or on substitutes.

    `outside` is what they do outside, from an earlier plan: phases of barriers count from where that was made. What is
    left out of it is not done.
    """
    tables = Tables(summary, n_slots, substitute)
    for op in summary.ops if substitute else tables.add_calls(summary):
        tables.add(op)
    return tables.build(schedule, outside)


class Tables:
    """The flat arrays, filled op by op."""

    def __init__(self, summary: Summary, n_slots: int, substitute: Substitution | None) -> None:
        self._substitute = substitute
        self._function = np.zeros(n_slots, np.uint64)
        self._user = np.zeros(n_slots, np.uint64)
        self._n_arrays = np.zeros(n_slots, np.int32)
        self._period = np.zeros(n_slots, np.int32)
        self._table_begin = np.zeros(n_slots, np.int64)
        self._scalar_begin = np.zeros(n_slots, np.int64)
        self._n_scalars = np.zeros(n_slots, np.int32)
        classes, period_class = periods_of(summary)
        self._ring_columns = classes, period_class
        self._periods: list[int] = classes.tolist()
        self._period_class: list[int] = period_class.tolist()
        self._op = -1  # that is being added
        # What `add_calls` has found comes before what single ops add.
        self._first_table, self._first_scalars = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self._table: list[int] = []
        self._scalars: list[int] = []
        self._views: list[Array] = []
        self._view_index: dict[int, int] = {}  # by id of the operand, for operands that are one array
        self._value_patches: list[tuple[int, int, int]] = []
        self._step_patches: list[tuple[int, int]] = []
        self._python: list[tuple[Any, ...]] = []
        # What each run must bring, with its number.
        self._native_values: dict[tuple[Param, type], int] = {}
        self._objects: dict[Param, int] = {}
        self._barriers: dict[Param, int] = {}
        self._counts: list[Param] = []
        self._fills: list[tuple[Param, Array]] = []
        self._outside_table: Outside = []
        self._conditions: dict[str, int] = {}
        self._phases: dict[int, int] = {}
        self._holdings: dict[int, int] = {}
        self._channels: dict[tuple[bool, int], int] = {}  # by direction and rank, how many there are
        self._traffic: _core.messages.Traffic | None = None

    def add_calls(self, summary: Summary) -> list[Op]:
        """Add the calls whose arguments are arrays, tokens and plain values; return the ops that are left.

        It says the same of a call as its lowering does, for all of them in one loop.
        """
        left: list[Op]
        self._first_table, self._first_scalars, self._views, self._python, left = _core.passes.lower_calls(
            summary.ops,
            (NativeCall, PythonCall),
            tuple(PLAIN),
            Operand,
            *self._ring_columns,
            summary.task,
            summary.tasks,
            summary.operands,
            summary.first_operand,
            summary.simple,
            self._function,
            self._user,
            self._n_arrays,
            self._n_scalars,
            self._period,
            self._table_begin,
            self._scalar_begin,
        )
        return left

    def add(self, op: Op) -> None:
        """Add an op; they come in order."""
        self._begin(op)
        lowering_of(op.body).add(self, op, op.body)

    def _begin(self, op: Op) -> None:
        self._end()
        self._op = op.index
        self._table_begin[op.index] = len(self._first_table) + len(self._table)
        self._scalar_begin[op.index] = len(self._first_scalars) + len(self._scalars)

    def _end(self) -> None:
        if self._op >= 0:
            self._n_scalars[self._op] = self._next_slot(self._op)

    def _next_slot(self, index: int) -> int:
        return len(self._first_scalars) + len(self._scalars) - int(self._scalar_begin[index])

    def call(self, index: int, function: int, user: int = 0) -> None:
        """Let an op call a C function at an address."""
        self._function[index] = function
        self._user[index] = user

    def add_words(self, words: Iterable[int]) -> None:
        """Add scalars of the op that is being added, as they go to C."""
        self._scalars += words

    def add_filled(self, param: Param, array: Array) -> None:
        """Have values of a parameter checked by an array that they fill."""
        self._fills.append((param, array))

    def wait_outside(self, index: int, kind: str, *what: Any) -> None:
        """Say what an op does outside, as the core wants it said."""
        self._outside_table.append((index, kind, what))

    def add_condition(self, index: int, kind: str) -> None:
        """Add a precondition or a postcondition; they are numbered in order, by kind."""
        number = self._conditions.get(kind, 0)
        self._conditions[kind] = number + 1
        self.wait_outside(index, kind, number)

    def holding(self, reservation: Reservation) -> int:
        """Return the number of a reservation among those that the ops hold."""
        return self._holdings.setdefault(id(reservation), len(self._holdings))

    def channel(self, message: Message) -> _core.messages.Channel:
        """Return a channel for the messages of an op; those between two ranks are numbered in order, by direction."""
        if self._traffic is None:
            self._traffic = _core.messages.Traffic(message.group.messenger)
        direction = message.sends, message.peer
        number = self._channels[direction] = self._channels.get(direction, -1) + 1
        return self._traffic.channel(message.sends, message.peer, number, message.operand.arrays[0].nbytes)

    def count(self, count: int | Param) -> tuple[int, int]:
        """Return a count of arrivals, or the number of the run's value that is one."""
        if not isinstance(count, Param):
            return count, -1
        self._counts.append(count)
        return 0, self._native_value(count, int)

    def value(self, value: object) -> tuple[object, int]:
        """Return the value of an arrival, or the number of the run's object that is one."""
        if isinstance(value, Param):
            return None, self._object(value)
        return None if value is Arrive.NO_VALUE else value, -1

    def barrier(self, barrier: Barrier | Param) -> tuple[object, int, int]:
        """Return a barrier with the phase of step 0, or the number of the parameter that is one."""
        if not isinstance(barrier, Param):
            return barrier._core, self._phases.setdefault(id(barrier), barrier.phase), -1
        return None, 0, self._barriers.setdefault(barrier, len(self._barriers))

    def build(self, schedule: _core.Schedule, outside: Outside | None, **more: Any) -> Lowered:
        """Return the plan; `more` goes to the core, too."""
        outside = self._outside_table if outside is None else outside
        self._end()
        values = np.array(self._value_patches, np.int32).reshape(-1, 3)
        steps = np.array(self._step_patches, np.int32).reshape(-1, 2)
        plan = _core.Plan.build(
            schedule=schedule,
            function=self._function,
            user=self._user,
            table_begin=self._table_begin,
            table=np.concatenate([self._first_table, np.array(self._table, np.int32)]),
            n_arrays=self._n_arrays,
            period_class=self._period,
            views=self._views,
            scalar_begin=self._scalar_begin,
            n_scalars=self._n_scalars,
            scalars=np.concatenate([self._first_scalars, np.array(self._scalars, np.int64)]).view(np.uint64),
            value_op=np.ascontiguousarray(values[:, 0]),
            value_slot=np.ascontiguousarray(values[:, 1]),
            value_index=np.ascontiguousarray(values[:, 2]),
            step_op=np.ascontiguousarray(steps[:, 0]),
            step_slot=np.ascontiguousarray(steps[:, 1]),
            python=self._python,
            external=[*outside, *more.pop("fences", ())],
            **more,
        )
        natives, objects, barriers = list(self._native_values), list(self._objects), list(self._barriers)
        return Lowered(plan, natives, objects, self._fills, self._counts, barriers, outside, traffic=self._traffic)

    def add_scalar(self, index: int, value: object, kind: type) -> None:
        """Add a scalar argument of a native op."""
        slot = self._next_slot(index)
        if type(value) is float:
            self._scalars.append(struct.unpack("q", struct.pack("d", value))[0])
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
        return self._native_values.setdefault((param, kind), len(self._native_values))

    def _object(self, param: Param) -> int:
        return self._objects.setdefault(param, len(self._objects))

    def add_operands(self, index: int, operands: Sequence[Operand]) -> None:
        """Add the arrays that a native op gets."""
        self._n_arrays[index] = len(operands)
        period_class = self._period_class[index]
        if period_class == 0:
            known, table = self._view_index, self._table
            for operand in operands:
                view = known.get(id(operand))
                if view is None:
                    view = known[id(operand)] = self._add_view(operand.arrays[0])
                table.append(view)
            return
        self._period[index] = period_class
        views = [[self._add_view(view) for view in operand.arrays] for operand in operands]
        for phase in range(self._periods[period_class]):
            for operand, own in zip(operands, views, strict=True):
                offset = operand.ring.offset if operand.ring is not None else 0
                self._table.append(own[(phase + offset) % len(own)])

    def _add_view(self, array: Array) -> int:
        self._views.append(self._replace(array))
        return len(self._views) - 1

    def _replace(self, array: Array) -> Array:
        return array if self._substitute is None else self._substitute.substitute(array)

    def add_python(
        self, index: int, function: Callable[..., Any], args: Sequence[object], keywords: tuple[str, ...]
    ) -> int:
        """Let an op call a Python function; return the number of the call."""
        period_class = self._period_class[index]
        steps = tuple(position for position, arg in enumerate(args) if arg is STEP)
        values = tuple((position, self._object(arg)) for position, arg in enumerate(args) if isinstance(arg, Param))
        rows = tuple(tuple(self._argument(arg, phase) for arg in args) for phase in range(self._periods[period_class]))
        self._python.append((index, function, keywords or None, rows, period_class, steps, values))
        return len(self._python) - 1

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
        view = self._replace(array).view(np.ndarray)
        if arg.mode == READ:
            view.flags.writeable = False
        return view
