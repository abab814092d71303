"""The declaration of a variant: what is checked when it is made."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import Parameter
from types import MappingProxyType
from typing import Any

import numpy as np

from ostinato.devices.device import KINDS as DEVICE_KINDS
from ostinato.devices.device import usable
from ostinato.errors import GraphError
from ostinato.graph.access import ACCESS, STREAM, Formal, signature_of
from ostinato.graph.arrays import Operand
from ostinato.graph.body import Body, NativeCall, PythonCall
from ostinato.graph.native import NativeTask
from ostinato.graph.param import Converted, Param
from ostinato.graph.recorder import Recordable
from ostinato.graph.task import PythonTask, Task
from ostinato.text import brief, one_line

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
        with suppress(*_REFUSALS):
            return self.implement(default, {})
        return None

    def refusal(self, default: Body) -> str | None:
        """Say why it cannot take the arguments recorded; None where it can."""
        try:
            self.implement(default, {})
        except _REFUSALS as error:
            return str(error)
        return None

    def implement(self, default: Body, known: dict[object, Any]) -> Body:
        """Return what an op does with this implementation; raise if it cannot take the arguments recorded.

        `known` is filled with what many ops can share.
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


def held(task: Recordable) -> tuple[Variant, ...]:
    """Return the variants of a task: itself, made once, and those that were declared."""
    found: tuple[Variant, ...] = getattr(task, "variants_held", ())
    if not found:
        with _lock:
            found = task.variants_held = getattr(task, "variants_held", ()) or (Variant(task, task.name),)
    return found


def default_variant(body: Body) -> Variant | None:
    """Return the task of a call as a variant of itself; None for what is no call of a task."""
    task = _task_of(body)
    return None if task is None else held(task)[0]


def variants_of(body: Body) -> tuple[Variant, ...]:
    """Return the variants of the task of a call: itself first, then those declared, in that order."""
    task = _task_of(body)
    return () if task is None else held(task)


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


KINDS = (CPU, *DEVICE_KINDS)
"""Kinds of processors."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Declaration:
    """What `Recordable.variant` is given for a task, checked."""

    def __init__(self, task: Recordable, on: object, name: object, config: object) -> None:
        self._task = task
        self._on = _kind(on)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a variant must be a str, got {brief(name)}")
        if name == "":
            raise ValueError("the name of a variant must not be empty")
        self._name = name
        self._config = _plain(config)

    def add(self, function: object, local_names: Mapping[str, object]) -> None:
        """Declare a function or a task; `local_names` are what its annotations may mention besides global names."""
        task, config = self._task, self._config
        if isinstance(function, Recordable):
            implementation = function.source
        elif callable(function):
            implementation = _task_like(task, function, local_names)
        else:
            raise TypeError(f"a variant must be a function or a task, got {brief(function)}")
        if self._on == CPU and takes_stream(implementation):
            raise TypeError(
                f"{implementation.called} takes the stream of a device, which processors of kind 'cpu' lack"
            )
        passed = _passed(task, implementation, config)
        _check(task, implementation, passed)
        name = implementation.name if self._name is None else self._name
        if self._name is None and name == task.name:  # as a C function often has
            name = f"{_kind_of(implementation)} {name}"
        variant = Variant(implementation, name, self._on, MappingProxyType(config), MappingProxyType(passed))
        default = held(task)[0]
        with _lock:
            for other in task.variants_held:
                if other.name == name and _text(other.config) == _text(config):
                    which = "is the task itself" if other is default else "is declared already"
                    raise ValueError(
                        f"{one_line(task.name)}: variant {variant.label!r} {which}; give another name= or config="
                    )
            task.variants_held = (*task.variants_held, variant)


def _kind_of(task: Recordable) -> str:
    if isinstance(task, Task):
        return "python"
    return "native" if isinstance(task, NativeTask) else "kernel"


def _kind(on: object) -> str | None:
    if on is None or (isinstance(on, str) and (on in KINDS or usable(on))):  # there may be devices of a test
        return on
    if not isinstance(on, str):
        raise TypeError(f"on must be a kind of processor, as {KINDS[0]!r}, got {on!r}")
    raise ValueError(f"on must be a kind of processor, one of {', '.join(map(repr, KINDS))}, got {on!r}")


def _plain(config: object) -> dict[str, Any]:
    """Return a configuration as a dict of our own."""
    if not isinstance(config, Mapping | None):
        raise TypeError(f"config must be a dict of names and values, got {brief(config)}")
    values = copy.deepcopy(dict(config or {}))
    for key in values:
        if not isinstance(key, str):
            raise TypeError(f"the names in config must be str, got {key!r}")
        if key == "variant":
            raise ValueError("config= cannot hold 'variant': reports say by it which variant it is")
    _text(values)
    return values


def _text(config: Mapping[str, Any]) -> str:
    """Return what equal configurations have in common, and no others."""
    import json  # not with ostinato: most programs need none

    try:
        return json.dumps(_as_json(config), sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise ValueError(f"config must hold plain values: {error}") from None
    except (TypeError, RecursionError) as error:
        raise TypeError(f"config must hold plain values (numbers, text, lists, dicts with str keys): {error}") from None


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the keys of a dict must be str, got {key!r}")
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _passed(task: Recordable, implementation: Recordable, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a configuration goes to the implementation as arguments."""
    own = {each.name for each in implementation.formals() if each.kind in _NAMED}
    of_task = {each.name for each in task.formals()}
    for key in config:
        if key in own & of_task:
            raise ValueError(
                f"config= gives {key!r}, which is an argument of {task.called}: calls give it; a parameter of a "
                "configuration has a name of its own"
            )
    return {key: value for key, value in config.items() if key in own}


def _check(task: Recordable, implementation: Recordable, passed: Mapping[str, Any]) -> None:
    """Raise unless an implementation takes a task's arguments, in the way the task does."""
    of_task, own = task.formals(), implementation.formals()
    positional = [each for each in of_task if each.kind in _POSITIONAL]
    named = [each for each in of_task if each.kind is Parameter.KEYWORD_ONLY]
    by_name = {each.name: each for each in named}
    for each in of_task:
        if each.kind is Parameter.VAR_POSITIONAL:
            taken = {*by_name, *passed}
            places = sum(other.kind in _POSITIONAL and other.name not in taken for other in own)
            places -= len(positional) + (0 if implementation.takes_names else len(named))
            more = any(other.kind is Parameter.VAR_POSITIONAL for other in own)
            positional += [each] * (max(places, 0) + more)
    if not implementation.takes_names:
        positional += named
        by_name = {}
    try:
        signature = inspect.Signature([each.parameter for each in own])
        bound = signature.bind(*positional, **by_name, **passed).arguments
    except TypeError as error:
        raise TypeError(
            f"{implementation.called} cannot be called as {task.called} is: {error}. A variant takes the task's "
            "arguments; what else it takes has a default, or a value in config="
        ) from None
    names = {each.name for each in of_task if each.kind in _NAMED}
    options = next((each for each in of_task if each.kind is Parameter.VAR_KEYWORD), None)
    for each in own:
        given = bound.get(each.name, ())
        values = given if each.kind is Parameter.VAR_POSITIONAL else (given,)
        if each.kind is Parameter.VAR_KEYWORD:
            values = (*(given or {}).values(), *[options] * (options is not None))
        for value in values:
            _check_access(task, each, value)
        if each.name in names and getattr(given, "name", None) != each.name:
            raise TypeError(
                f"{each.label} does not stand where {task.called} has {each.name!r}: a variant takes the arguments of "
                "its task in the same places"
            )
    if _may_wait(implementation) != _may_wait(task):
        which = f"{task.called} may" if _may_wait(task) else f"{implementation.called} may"
        raise TypeError(f"only {which} wait (blocking=True); a variant may if its task may")
    for name, value in passed.items():
        implementation.check_config(name, value)


def _task_like(task: Recordable, function: Callable[..., Any], local_names: Mapping[str, object]) -> Task[Any, Any]:
    """Make a task of a function; what is said of `task` holds for it too."""
    if isinstance(task, Task):
        names = signature_of(function).parameters
        access = {key: each for key, each in task.access.items() if key in names}
        return Task(function, None, task.releases_gil, task.blocking, task.launch_only, local_names, access, task.pure)
    return Task(function, local_names=local_names)


def _may_wait(task: Recordable) -> bool:
    return isinstance(task, PythonTask) and task.blocking


def _check_access(task: Recordable, own: Formal, given: object) -> None:
    """Raise unless a parameter is used as what it is given: a parameter of the task, or something else."""
    mode = given.mode if isinstance(given, Formal) else 0
    if own.mode != mode and not (own.kind is Parameter.VAR_POSITIONAL and given == ()):
        what = f"{given.label} is {ACCESS[mode]}" if isinstance(given, Formal) else f"{task.called} has no such array"
        raise TypeError(f"{own.label} is {ACCESS[own.mode]}, but {what}: a variant has the accesses of its task")
