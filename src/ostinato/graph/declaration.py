"""The declaration of a variant: what is checked when it is made."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import MappingProxyType
from typing import Any

import numpy as np

from ostinato.devices.discovery import usable
from ostinato.graph.access import signature_of
from ostinato.graph.formal import ACCESS, Formal
from ostinato.graph.kernel import Kernel
from ostinato.graph.native import NativeTask
from ostinato.graph.python_task import PythonTask
from ostinato.graph.recordable import Recordable
from ostinato.graph.task import Task
from ostinato.graph.variant import CPU, Variant, Variants, takes_stream
from ostinato.one_line import brief, one_line

__all__ = ["KINDS", "Declaration"]

KINDS = (CPU, "cuda", "opencl")
"""Kinds of processors."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_KIND_OF = {Task: "python", NativeTask: "native", Kernel: "kernel"}


class Declaration:
    """What `Recordable.variant` is given, checked.

    Parameters
    ----------
    task
        The task that gets a variant.
    on, name, config
        As for `Recordable.variant`.
    """

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
            name = f"{_KIND_OF[type(implementation)]} {name}"
        variant = Variant(implementation, name, self._on, MappingProxyType(config), MappingProxyType(passed))
        found = Variants.of(task)
        same = found.add(variant, lambda a, b: a.name == b.name and _text(a.config) == _text(b.config))
        if same is not None:
            which = "is the task itself" if same is found.all[0] else "is declared already"
            raise ValueError(f"{one_line(task.name)}: variant {variant.label!r} {which}; give another name= or config=")


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
        access = {key: each for key, each in task.access.items() if _has_parameter(function, key)}
        return Task(function, None, task.releases_gil, task.blocking, task.launch_only, local_names, access, task.pure)
    return Task(function, local_names=local_names)


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    return name in signature_of(function).parameters


def _may_wait(task: Recordable) -> bool:
    return isinstance(task, PythonTask) and task.blocking


def _check_access(task: Recordable, own: Formal, given: object) -> None:
    """Raise unless a parameter is used as what it is given: a parameter of the task, or something else."""
    mode = given.mode if isinstance(given, Formal) else 0
    if own.mode != mode and not (own.kind is Parameter.VAR_POSITIONAL and given == ()):
        what = f"{given.label} is {ACCESS[mode]}" if isinstance(given, Formal) else f"{task.called} has no such array"
        raise TypeError(f"{own.label} is {ACCESS[own.mode]}, but {what}: a variant has the accesses of its task")
