"""The distinct signatures of a graph: what is measured once, however many ops are like it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from ostinato.devices.array import DeviceArray
from ostinato.devices.registry import any_allocations
from ostinato.graph.arrays import HOST, Operand
from ostinato.graph.body import Body, Copy, Fill, NativeCall, PythonCall
from ostinato.graph.op import Op
from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.recorder import Recordable
from ostinato.graph.ring import RingElement
from ostinato.graph.task import PythonTask, Task
from ostinato.graph.variant import CPU, Variant, default_variant, variants_of
from ostinato.tune.graphs.call_context import CallContexts, probe, representatives
from ostinato.tune.graphs.names import name_in_store

_MODES = ("", "r", "w", "rw")


@dataclass(frozen=True, eq=False)
class Signature:
    """Ops that differ in nothing that should change their time: they are measured once, on one of them."""

    label: str
    """Its name in the dict that ``graph.tune`` returns."""
    key: dict[str, Any]
    """The task, its arrays (dtype, shape and access) and the kind of processor, as JSON has them."""
    kind: str
    op: Op
    """The first op whose parameters have defaults: its arguments and arrays are measured."""
    declared: tuple[Variant, ...]
    """The variants for this kind, the default first if it is for it; none of a copy or a fill."""
    reference: Variant | None
    """The default, with whose results those of others are compared, whatever it is for; None of a copy or a fill."""
    checked: tuple[Op, ...]
    """`op`, and others that stand for all call contexts in which the variants are compared."""

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Those of `declared` that may be called and can take the op's arguments; kernels are compiled to find out."""

        def fits(variant: Variant) -> bool:
            return variant is self.reference or (_is_pure(variant.task) and variant.body(self.op.body) is not None)

        return tuple(filter(fits, self.declared))

    @property
    def has_default(self) -> bool:
        """Whether the default itself is measured: it is for this kind of processor."""
        return not self.declared or self.declared[0] is self.reference

    @property
    def compared(self) -> tuple[Variant, ...]:
        """All variants that what is found depends on: `declared`, after the default that they are compared with."""
        return self.declared if self.has_default or self.reference is None else (self.reference, *self.declared)

    @property
    def refusal(self) -> str:
        """Why it is never measured: what it does cannot be done on copies; empty where it can."""
        body, why = self.op.body, ""
        calls = isinstance(body, PythonCall | NativeCall)
        for operand in self.op.operands:
            if operand.memory != HOST and not isinstance(operand.value, np.ndarray | DeviceArray | RingElement):
                kind = type(operand.value).__name__
                why = f"an argument, a {kind}, is another library's in the memory of {operand.memory}"
                break
        else:
            if isinstance(body, Copy) and body.reduce is not None and not body.reduce.built_in:
                why = "its reduction is a function that was given as reduce="
            elif isinstance(body, PythonCall) and not body.task.pure:
                why = "it does more than what its arguments show (pure=False)"
            elif isinstance(body, PythonCall) and body.blocking:
                why = "it may wait for others (blocking=True)"
            elif calls and not self.op.operands:
                why = "what it acts on is not declared, and so cannot be copied"
        return why and f"it is not called to be measured, since {why}"

    @property
    def is_on_request(self) -> bool:
        """Whether it is measured only if the user asks for everything: it is a Python task without variants.

        Such a task may act on more than its arguments, and there is nothing to choose.
        """
        others = variants_of(self.op.body)[1:]
        return isinstance(self.op.body, PythonCall) and not any(_is_pure(each.task) for each in others)

    @property
    def unfit(self) -> str:
        """Why none of its variants can be measured, for which kernels are compiled; empty where one can."""
        lacks = self.declared and not self.variants
        return f"no variant for processors of kind {self.kind!r} takes its arguments" if lacks else ""


def _is_pure(task: Recordable) -> bool:
    """Whether a task may be called besides replays; native tasks and kernels always may."""
    return not isinstance(task, PythonTask) or task.pure


def kind_of(on: object) -> str | None:
    """Return the kind of processor that an op is bound to by ``on=``; None for any."""
    name = getattr(on, "name", on)
    return None if name is None else str(name).partition(":")[0]


class Groups(NamedTuple):
    first: list[Op]
    """The first op of each signature."""
    numbers: list[int]
    """By op, which signature it is of; -1 for none."""


def kinds_for(ops: Iterable[Op]) -> frozenset[str] | None:
    """Return the kinds of devices, besides CPUs, that ops have variants for, or are for themselves; None for any."""
    found: set[str] = set()
    calls: dict[int, Body] = {}
    for op in ops:
        body = op.body
        if isinstance(body, PythonCall | NativeCall):
            calls[id(body.task)] = body
            if op.on is not None and (kind := kind_of(op.on)) not in (None, CPU):
                found.add(str(kind))
    for body in calls.values():
        for variant in variants_of(body):
            if variant.on is None and variant.takes_stream:
                return None
            if variant.on not in (None, CPU):
                found.add(str(variant.on))
    return frozenset(found)


def group(ops: Iterable[Op], kind: str) -> Groups:
    """Return which ops that may run on a kind of processor, and are tasks if that is a device, are of one signature."""
    arrays_there = any_allocations()
    sign = _OperandNumbers().__getitem__
    by_look: dict[tuple[object, ...], int] = {}  # what can be told at a glance
    by_identity: dict[tuple[object, ...], int] = {}
    first: list[Op] = []
    numbers = []
    for op in ops:
        body = op.body
        if type(body) is PythonCall:
            task = body.task
            called: object = id(task if isinstance(task, Task) else task.function)
            if body.packing is not None:
                called = called, body.packing.shape
        elif type(body) is NativeCall:
            called = id(body.task)
        elif kind != CPU or (arrays_there and any(operand.memory != HOST for operand in op.operands)):
            numbers.append(-1)
            continue
        elif type(body) is Copy:
            called = _combining(body), body.indices is None, body.scatter is None
        elif type(body) is Fill:
            called = None
        else:
            numbers.append(-1)
            continue
        look = called, op.on, *map(sign, op.operands)
        number = by_look.get(look)
        if number is None:
            if kind_of(op.on) not in (None, kind) or not _is_measurable(op, kind):
                number = -1
            else:
                packing = body.packing if isinstance(body, PythonCall) else None
                identity = (_identity(body), packing and packing.shape, *look[2:])
                number = by_identity.setdefault(identity, len(first))
                if number == len(first):
                    first.append(op)
            by_look[look] = number
        numbers.append(number)
    return Groups(first, numbers)


def _is_measurable(op: Op, kind: str) -> bool:
    """Whether there is anything to measure on processors of a kind."""
    body = op.body
    if not isinstance(body, PythonCall | NativeCall):
        return True
    if kind == CPU:  # a task with a stream is for devices, whatever variants it has
        return not variants_of(body)[0].takes_stream
    return bool(for_kind(op, kind))


def signatures_of(ops: Sequence[Op], kinds: Iterable[str] = (CPU,)) -> list[Signature]:
    """Return the signatures of a flat graph's ops on processors of these kinds, in program order of their first ops."""
    found = []
    for kind in kinds:
        first, numbers = group(ops, kind)
        alike: list[list[Op]] = [[] for _ in first]
        for op, number in zip(ops, numbers, strict=True):
            if number >= 0:
                alike[number].append(op)
        found += [(kind, same) for same in alike]
    labels = _labels(found)
    return [_signature(label, kind, alike) for label, (kind, alike) in zip(labels, found, strict=True)]


def _signature(label: str, kind: str, alike: list[Op]) -> Signature:
    alike = [op for op in alike if not _needs_params(op.body)] or alike
    op = alike[0]
    signature = Signature(label, key_of(op, kind), kind, op, for_kind(op, kind), default_variant(op.body), (op,))
    if len(signature.compared) > 1:
        other = probe(op)
        checked = representatives(alike if other is None else (*alike, other), CallContexts())
        signature = dataclasses.replace(signature, checked=checked)
    return signature


def _needs_params(body: Body) -> bool:
    """Whether it has a parameter whose value only a run gives."""
    values = (body.value,) if isinstance(body, Fill) else getattr(body, "args", ())
    return any(isinstance(value, Param) and value.value_in({}) is REQUIRED for value in values)


def for_kind(op: Op, kind: str) -> tuple[Variant, ...]:
    """Return the variants for a kind of processor, the default first if it is for it.

    On devices run those that take a stream, and those that are declared for devices of the kind; where there are none,
    the task itself of an op that is bound to the kind.
    """
    every = variants_of(op.body)
    found = tuple(variant for variant in every if variant.is_for(kind))
    if kind == CPU:
        return found
    there = tuple(each for each in found if each.takes_stream or each.on == kind)
    return there or (every[:1] if kind_of(op.on) == kind else ())


def key_of(op: Op, kind: str) -> dict[str, Any]:
    """Return what the ops of a signature have in common, as JSON has it."""
    arrays = [[_type_of(operand), list(_shape(operand)), _MODES[operand.mode]] for operand in op.operands]
    key = {"task": name_in_store(op.body), "arrays": arrays, "kind": kind}
    packing = op.body.packing if isinstance(op.body, PythonCall) else None
    return key if packing is None else {**key, "containers": [packing.text, list(packing.keywords)]}


def _type_of(operand: Operand) -> str:
    return str(operand.arrays[0].dtype) if operand.arrays else f"token {type(operand.value).__name__}"


def _shape(operand: Operand) -> tuple[int, ...]:
    return operand.arrays[0].shape if operand.arrays else ()


class _OperandNumbers(dict[Operand, int]):
    """Numbers of operands, equal for those of one dtype, shape and access."""

    def __init__(self) -> None:
        self._by_look: dict[tuple[object, ...], int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def __missing__(self, operand: Operand) -> int:
        array = operand.array
        if array is None:
            array = operand.arrays[0] if operand.ring is not None else None
        if array is None:
            number = self._number(type(operand.value), operand.mode)
        else:
            look = id(array.dtype), array.shape, operand.mode  # a dtype takes longer to hash than all the rest
            number = self._by_look.get(look, -1)
            if number < 0:
                number = self._by_look[look] = self._number(array.dtype, array.shape, operand.mode)
        self[operand] = number
        return number

    def _number(self, *kind: object) -> int:
        return self._numbers.setdefault(kind, len(self._numbers))


def _identity(body: Body) -> tuple[object, ...]:
    """Equal for calls of what is one task: of one object, or of functions made of the same parts."""
    if isinstance(body, Copy):
        return "copy", _combining(body), body.indices is None, body.scatter is None
    if isinstance(body, Fill):
        return ("fill",)
    task: Recordable = variants_of(body)[0].task
    if isinstance(body, PythonCall) and not isinstance(task, Task):
        return ("function", *_parts(body.task.function))  # made for one call, by access=
    return "task", id(task)


def _parts(function: Any) -> tuple[object, ...]:
    if isinstance(function, MethodType):
        return id(function.__self__), *_parts(function.__func__)
    if not isinstance(function, FunctionType):
        return (id(function),)
    cells = tuple(map(_content_id, function.__closure__ or ()))
    defaults = tuple(map(id, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())))
    return id(function.__code__), id(function.__globals__), cells, defaults


def _combining(body: Copy) -> object:
    """How a copy combines: equal for copies by one of our reductions, or by one object."""
    return None if body.reduce is None else body.reduce.name if body.reduce.built_in else id(body.reduce)


def _content_id(cell: Any) -> int | None:
    try:
        return id(cell.cell_contents)
    except ValueError:  # it is empty
        return None


def _labels(signatures: list[tuple[str, list[Op]]]) -> list[str]:
    """Names of tasks, and kinds of devices; with arrays, and more, where these do not tell signatures apart."""
    on = ["" if kind == CPU else f" on {kind}" for kind, _ in signatures]
    names = [f"{_name(alike[0].body)}{there}" for there, (_, alike) in zip(on, signatures, strict=True)]
    several = Counter(names)
    labels = [
        f"{name.removesuffix(there)}[{', '.join(map(_array_label, alike[0].operands))}]{there}"
        if several[name] > 1
        else name
        for name, there, (_, alike) in zip(names, on, signatures, strict=True)
    ]
    several = Counter(labels)
    labels = [
        f"{label.removesuffix(there)} as {name_in_store(alike[0].body)} on {kind}" if several[label] > 1 else label
        for label, there, (kind, alike) in zip(labels, on, signatures, strict=True)
    ]
    several, used = Counter(labels), Counter[str]()
    for place, label in enumerate(labels):
        if several[label] > 1:
            used[label] += 1
            labels[place] = f"{label} ({used[label]})"
    return labels


def _name(body: Body) -> str:
    return type(body).__name__.lower() if isinstance(body, Copy | Fill) else variants_of(body)[0].name


def _array_label(operand: Operand) -> str:
    return f"{'x'.join(map(str, _shape(operand)))} {_type_of(operand)}".strip()
