"""Arrays that functions use without receiving them: from closures, globals and objects that they are bound to."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ostinato.graph.access import variables_of
from ostinato.graph.arrays import Array
from ostinato.graph.body import PythonCall
from ostinato.graph.op import Op
from ostinato.graph.ring import Ring
from ostinato.graph.task import PythonTask, name_of

_MOST_PARTS = 1000  # of a container or an object
_MOST_OBJECTS = 10_000  # looked into, within one value
_DEPTH = 3  # of containers and objects in each other
_OTHERS = sys.stdlib_module_names | {"numpy", "ostinato"}  # objects of their classes are not looked into


class ClosedOver(NamedTuple):
    """An array that a function uses without receiving it."""

    array: Array
    label: str
    """What it is, for messages."""


def closed_over_by_tasks(ops: Iterable[Op]) -> list[ClosedOver]:
    """Return the arrays that tasks close over, or reach by attributes of plain arguments; each looked at once."""
    functions: dict[int, Any] = {}
    arguments: dict[int, tuple[Any, str]] = {}
    for op in ops:
        for body in (op.body, op.recorded):
            if isinstance(body, PythonCall):
                functions[id(body.task.function)] = body.task.function
                arguments |= {id(each): (each, op.name) for each in body.args if _has_attributes(each)}
    found = closed_over(functions.values())
    for argument, task in arguments.values():
        name, ending = type(argument).__name__, f"which {task}() reaches by a plain argument"
        found += [
            ClosedOver(part.view(np.ndarray), f"array {name + path!r}, {ending}")
            for path, part in parts_within(argument)
            if is_comparable(part)
        ]
    return found


def closed_over(functions: Iterable[object]) -> list[ClosedOver]:
    """Return the writable arrays that functions close over, each array once.

    Functions and tasks that these use are looked at as well where they are of the same module. Arrays in lists, tuples
    and dicts are found, and attributes of objects.
    """
    found: dict[int, ClosedOver] = {}
    seen: dict[int, object] = {}  # kept, so that each id stays that of one object
    waiting: list[tuple[object, str | None]] = [(function, None) for function in functions]
    while waiting:
        given, module = waiting.pop()
        function, bound = _plain_function(given)
        if function is None or id(given) in seen or module not in (None, function.__module__):
            continue
        outer = bound if id(function) in seen else [*bound, *_outer_values(function)]
        seen |= {id(given): given, id(function): function}
        for name, value in outer:
            for path, part in parts_within(value):
                if is_comparable(part):
                    label = f"array {name + path!r}, which {name_of(function)}() uses without receiving it"
                    found.setdefault(id(part), ClosedOver(part.view(np.ndarray), label))
                elif callable(part):
                    waiting.append((part, function.__module__))
    return list(found.values())


def _plain_function(given: object) -> tuple[FunctionType | None, list[tuple[str, object]]]:
    """Return the function that a task, a method or a partial application calls, and what is bound to it, by name."""
    bound: list[tuple[str, object]] = []
    while True:
        if isinstance(given, PythonTask):
            given = given.function
        elif isinstance(given, functools.partial):
            bound += [(f"args[{place}]", value) for place, value in enumerate(given.args)]
            bound += given.keywords.items()
            given = given.func
        elif isinstance(given, MethodType):
            bound.append(("self", given.__self__))
            given = given.__func__
        elif callable(given) and _has_attributes(given):
            bound.append(("self", given))
            given = type(given).__call__
        else:
            break
    try:
        given = inspect.unwrap(given)  # type: ignore[arg-type]
    except ValueError:
        return None, bound
    return (given if isinstance(given, FunctionType) else None), bound


def _outer_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, now in variables_of(function, sorted(_global_names(function.__code__))):
        yield name, now()
    yield from (function.__kwdefaults__ or {}).items()
    code, defaults = function.__code__, function.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)


def _global_names(code: CodeType) -> set[str]:
    """Return the names that code may look up, that of functions inside it included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def is_comparable(value: Any) -> bool:
    """Whether what is found is an array that a task may write to, and whose elements are bits."""
    return isinstance(value, np.ndarray) and bool(value.flags.writeable and value.size and not value.dtype.hasobject)


def parts_within(value: object) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the parts of a container or an object, each after the attributes that lead to it."""
    seen: set[int] = set()

    def visit(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        if _is_dead(value):
            return
        if isinstance(value, Ring):
            yield from ((path, each) for each in value.values if isinstance(each, np.ndarray))
            return
        inside = _inside(value, path)
        if not inside or callable(value):
            yield path, value
        if inside and depth and id(value) not in seen and len(seen) < _MOST_OBJECTS:
            seen.add(id(value))
            for where, part in inside:
                yield from visit(part, where, depth - 1)

    return visit(value, "", _DEPTH)


def _is_dead(value: object) -> bool:
    """Whether a value is a weak proxy of an object that is no more: all that is asked of it raises."""
    if type(value) not in weakref.ProxyTypes:
        return False
    try:
        return value.__class__ is None
    except ReferenceError:
        return True


def _inside(value: Any, path: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if _has_attributes(value):
        found += [(f"{path}.{name}", part) for name, part in list(vars(value).items())]
    if isinstance(value, list | tuple | dict):
        found += [(path, part) for part in (list(value.values()) if isinstance(value, dict) else list(value))]
    return found if len(found) <= _MOST_PARTS else []


def _has_attributes(value: object) -> bool:
    """Whether an object is of a class of a user, and its attributes can be looked at."""
    if isinstance(value, SimpleNamespace):
        return True
    if isinstance(value, type | np.ndarray) or str(type(value).__module__).partition(".")[0] in _OTHERS:
        return False
    return type(getattr(value, "__dict__", None)) is dict
