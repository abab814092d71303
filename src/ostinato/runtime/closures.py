"""Arrays that functions use without receiving them: from closures, and from globals that their code names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from ostinato.graph.arrays import Array
from ostinato.graph.body import PythonCall
from ostinato.graph.op import Op
from ostinato.graph.python_task import PythonTask, name_of
from ostinato.graph.ring import Ring

__all__ = ["ClosedOver", "closed_over", "closed_over_by_tasks"]

_MOST_PARTS = 1000  # of a container
_DEPTH = 3  # of containers in containers


class ClosedOver(NamedTuple):
    """An array that a function uses without receiving it."""

    array: Array
    label: str
    """What it is, for messages."""


def closed_over_by_tasks(ops: Iterable[Op]) -> list[ClosedOver]:
    """Return the arrays that the functions of tasks close over, each function looked at once."""
    functions = {
        id(body.task.function): body.task.function
        for op in ops
        for body in (op.body, op.recorded)
        if isinstance(body, PythonCall)
    }
    return closed_over(functions.values())


def closed_over(functions: Iterable[object]) -> list[ClosedOver]:
    """Return the writable arrays that functions close over, each array once.

    Functions and tasks that these use are looked at as well where they are of the same module, and arrays in lists,
    tuples and dicts are found.
    """
    found: dict[int, ClosedOver] = {}
    seen: set[int] = set()
    waiting: list[tuple[object, str | None]] = [(function, None) for function in functions]
    while waiting:
        given, module = waiting.pop()
        function = _plain_function(given)
        if function is None or id(function) in seen or module not in (None, function.__module__):
            continue
        seen.add(id(function))
        for name, value in _outer_values(function):
            for part in _parts(value, _DEPTH):
                if isinstance(part, np.ndarray):
                    if part.flags.writeable and not part.dtype.hasobject and part.size:
                        label = f"array {name!r}, which {name_of(function)}() uses without receiving it"
                        found.setdefault(id(part), ClosedOver(part.view(np.ndarray), label))
                elif callable(part):
                    waiting.append((part, function.__module__))
    return list(found.values())


def _plain_function(given: object) -> FunctionType | None:
    """Return the function that a task, a method or a partial application calls."""
    while True:
        if isinstance(given, PythonTask):
            given = given.function
        elif isinstance(given, functools.partial):
            given = given.func
        elif isinstance(given, MethodType):
            given = given.__func__
        else:
            break
    try:
        given = inspect.unwrap(given)  # type: ignore[arg-type]
    except ValueError:
        return None
    return given if isinstance(given, FunctionType) else None


def _outer_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from (function.__kwdefaults__ or {}).items()
    for place, value in enumerate(function.__defaults__ or ()):
        yield _default_name(function.__code__, place, function.__defaults__ or ()), value


def _default_name(code: CodeType, place: int, defaults: Sequence[object]) -> str:
    return code.co_varnames[code.co_argcount - len(defaults) + place]


def _global_names(code: CodeType) -> set[str]:
    """Return the names that code may look up, that of functions inside it included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _parts(value: Any, depth: int) -> Iterator[Any]:
    """Yield a value, or the parts of a container."""
    if isinstance(value, Ring):
        yield from (each for each in value.values if isinstance(each, np.ndarray))
    elif isinstance(value, list | tuple | dict) and depth and len(value) <= _MOST_PARTS:
        for part in list(value.values()) if isinstance(value, dict) else list(value):
            yield from _parts(part, depth - 1)
    else:
        yield value
