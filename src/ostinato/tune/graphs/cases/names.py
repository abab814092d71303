"""What a function's code names outside of it."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from importlib.util import resolve_name
from types import CodeType

__all__ = ["attributes", "global_names", "imports", "written"]


@functools.lru_cache(maxsize=4096)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the globals that code reads, that of functions inside included.

    Examples
    --------
    >>> global_names((lambda x: len(x) + sum(y for y in x.parts if y)).__code__)
    ('len', 'sum')
    """
    return tuple(dict.fromkeys(name for name, _ in _found(code, ("LOAD_GLOBAL", "LOAD_NAME"))))


@functools.lru_cache(maxsize=4096)
def written(code: CodeType) -> frozenset[str]:
    """Return the globals and the variables of functions outside that code assigns to."""
    found = _found(code, ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"))
    return frozenset(name for name, inside in found if name not in inside.co_cellvars)


@functools.lru_cache(maxsize=4096)
def attributes(code: CodeType) -> frozenset[str]:
    """Return the names that may be attributes which code reads: those that it does not assign to."""
    names = {name for each in _codes(code) for name in each.co_names}
    return frozenset(names - {name for name, _ in _found(code, ("STORE_ATTR", "DELETE_ATTR"))})


@functools.lru_cache(maxsize=4096)
def imports(code: CodeType, package: str) -> tuple[str, ...]:
    """Return the modules that code imports when it runs, in a module of this package.

    Examples
    --------
    >>> def function():
    ...     import os.path
    >>> imports(function.__code__, "")
    ('os.path',)
    """
    found = []
    for each in _codes(code):
        if not _has(each, ("IMPORT_NAME",)):
            continue
        level = 0
        before: object = 0
        for instruction in dis.get_instructions(each):
            if instruction.opname == "IMPORT_NAME":
                name = str(instruction.argval)
                found.append(resolve_name("." * level + name, package) if level and package else name)
            elif instruction.opcode in dis.hasconst:  # the level, and then the names
                level = before if type(before) is int else 0
                before = instruction.argval
            elif instruction.opname == "LOAD_SMALL_INT":
                before = instruction.arg
    return tuple(dict.fromkeys(found))


def _found(code: CodeType, operations: tuple[str, ...]) -> Iterator[tuple[str, CodeType]]:
    for each in _codes(code):
        if _has(each, operations):  # to go through instructions takes long
            for instruction in dis.get_instructions(each):
                if instruction.opname in operations:
                    yield str(instruction.argval), each


def _has(code: CodeType, operations: tuple[str, ...]) -> bool:
    used = set(code.co_code[::2])
    return any(dis.opmap.get(operation) in used for operation in operations)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and that of functions inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
