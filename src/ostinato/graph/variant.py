"""Implementations of a task besides the task itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import numpy as np

from ostinato.errors import GraphError
from ostinato.graph.body import Body, NativeCall, PythonCall
from ostinato.graph.converted import Converted
from ostinato.graph.operand import Operand
from ostinato.graph.param import Param
from ostinato.graph.recordable import Recordable
from ostinato.graph.stream import STREAM
from ostinato.one_line import one_line

__all__ = ["CPU", "Variant", "Variants", "default_variant", "takes_stream", "variants_declared", "variants_of"]

CPU = "cpu"
"""The kind of processors that have no streams."""

_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Variant:
    """One implementation of a task, with one configuration.

    Attributes
    ----------
    task
        The implementation.
    name
        Its name in reports.
    on
        The kind of processor that it is for; None for any.
    config
        Its configuration.
    passed
        That part of the configuration which it gets as arguments.
    """

    task: Recordable
    name: str
    on: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    passed: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Its name with its configuration."""
        config = ", ".join(f"{key}={value}" for key, value in self.config.items())
        return one_line(f"{self.name}({config})" if config else self.name)

    def is_for(self, kind: str) -> bool:
        """Whether it may run on processors of a kind: those that it is declared for, with streams if it takes one."""
        return self.on in (None, kind) and not (kind == CPU and self.takes_stream)

    @property
    def takes_stream(self) -> bool:
        """Whether it puts its work on the stream of a device."""
        return takes_stream(self.task)

    def body(self, default: Body) -> Body | None:
        """Return what an op does with this implementation in place of the one recorded; None if it cannot."""
        try:
            return self.implement(default, {})
        except _REFUSALS:
            return None

    def refusal(self, default: Body) -> str | None:
        """Say why it cannot take the arguments recorded; None where it can."""
        try:
            self.implement(default, {})
        except _REFUSALS as error:
            return str(error)
        return None

    def implement(self, default: Body, known: dict[object, Any]) -> Body:
        """Return what an op does with this implementation.

        `known` is filled with what many ops can share.

        Raises
        ------
        TypeError, ValueError, OverflowError, GraphError, ImportError
            It cannot take the arguments recorded.
        """
        recorded = _task_of(default)
        if recorded is None:
            raise TypeError("what was recorded is no call of a task")
        if recorded is self.task:
            return default
        args, keywords = _arguments(default, known)
        if keywords and not self.task.takes_names:
            named = [each.name for each in recorded.formals() if each.kind is Parameter.KEYWORD_ONLY]
            if [*keywords] != named:
                raise TypeError("native code takes no arguments by names that the task does not declare")
            args, keywords = (*args, *keywords.values()), {}
        if taken := keywords and keywords.keys() & self.passed.keys():
            raise TypeError(f"the call recorded gives {min(taken)!r}, which the configuration gives too")
        return self.task.body_of(args, {**keywords, **self.passed}, known)


_REFUSALS = (TypeError, ValueError, OverflowError, GraphError, ImportError)


class Variants:
    """The variants of one task: itself, and those that were declared."""

    __slots__ = ("all",)

    def __init__(self, task: Recordable) -> None:
        self.all: tuple[Variant, ...] = (Variant(task, task.name),)

    @classmethod
    def of(cls, task: Recordable) -> Variants:
        """Return those of a task."""
        found: Variants | None = getattr(task, "_variants", None)
        if found is None:
            with _lock:
                found = getattr(task, "_variants", None)
                if found is None:
                    found = task._variants = cls(task)
        return found

    def add(self, variant: Variant, same: Callable[[Variant, Variant], bool]) -> Variant | None:
        """Add one that is declared, unless there is one that is the same: that is returned."""
        with _lock:
            for other in self.all:
                if same(variant, other):
                    return other
            self.all = (*self.all, variant)
        return None


def default_variant(body: Body) -> Variant | None:
    """Return the task of a call as a variant of itself; None for what is no call of a task."""
    task = _task_of(body)
    return None if task is None else Variants.of(task).all[0]


def variants_of(body: Body) -> tuple[Variant, ...]:
    """Return the variants of the task of a call: itself first, then those declared, in that order."""
    task = _task_of(body)
    return () if task is None else Variants.of(task).all


def variants_declared(task: Recordable) -> tuple[Variant, ...]:
    """Return the variants of a task, without itself."""
    found: Variants | None = getattr(task.source, "_variants", None)
    return () if found is None else found.all[1:]


def takes_stream(task: Recordable) -> bool:
    """Whether a task puts its work on the stream of a device."""
    return getattr(task, "stream", None) is not None


_CALLS = (PythonCall, NativeCall)  # made once: programs have many ops


def _task_of(body: Body) -> Recordable | None:
    return body.task.source if isinstance(body, _CALLS) else None


def _arguments(body: Body, known: dict[object, Any]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the positional and the keyword values of a call, of native ones as a Python function would get them."""
    if isinstance(body, PythonCall):
        positional, named = body.given()
        values, names = body.task.with_defaults((*positional, *named.values()), tuple(named))
        count = len(values) - len(names)
        return values[:count], dict(zip(names, values[count:], strict=True))
    assert isinstance(body, NativeCall)
    args: list[object] = []
    for value, kind in zip(body.args, body.task.kinds, strict=True):
        if value is STREAM:
            continue
        if isinstance(value, Operand):
            if value.array is not None and not isinstance(value.value, np.ndarray):
                value = _shared(known, value, None, lambda of, _: Operand(of.array, of.array, None, of.mode))
        elif isinstance(value, Param):
            value = _shared(known, value, kind, Converted)
        args.append(value)
    return tuple(args), {}


def _shared(known: dict[object, Any], value: Any, kind: Any, make: Callable[[Any, Any], Any]) -> Any:
    """Make something of a value, once."""
    key = (id(value), kind)
    if key not in known:
        known[key] = value, make(value, kind)  # the value too, so that its id stays its own
    return known[key][1]
