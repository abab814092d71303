"""Functions and plain values described so that equal descriptions mean equal behaviour, in any process."""

from __future__ import annotations

import builtins
import dis
import functools
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ostinato.graph.recordable import Recordable
from ostinato.tune.candidate import Candidate
from ostinato.tune.canonical import hashed
from ostinato.tune.store.source import Sources

__all__ = ["Unknown", "content_of", "described"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_CHANGING = (list, dict, set, np.ndarray)
_MOST_BYTES = 1 << 20
"""A larger array that a function closes over is data, and not described."""


class Unknown(Exception):
    """There is something whose behaviour cannot be told."""


def content_of(module: str) -> str | None:
    """Return the digest of a module's file, as another process would find it; None if there is none."""
    try:
        candidate = Candidate.call(f"{module}:_")
    except ValueError:
        return None
    loaded = getattr(sys.modules.get(module), "__spec__", None)
    found = _sources(module, getattr(loaded, "origin", None)).imported(candidate)[f"module {module}"]
    return None if found == "none" else found


def described(value: object, here: bool = False) -> Any:
    """Return a description as JSON has it.

    A function is its code, its defaults, what it closes over and the globals that it names, but for variables that it
    assigns to itself, which are its state. Where another process can import its module, that module's file tells of the
    globals; plain ones, and functions of the module, count as they are in this process besides, since the file may have
    changed since, or they.

    Parameters
    ----------
    value
        Mostly a function.
    here
        Whether the description is for this process only. Then objects count by their identity: those that cannot be
        told from others, and those whose contents may change, such as lists and arrays.

    Raises
    ------
    Unknown
        Something in it is neither a plain value nor a function, a type or a module that can be imported.
    """
    return _Description(here).of(value)


class _Description:
    def __init__(self, here: bool) -> None:
        self._here = here
        self._seen: dict[int, int] = {}  # functions that are being described, or have been, by id

    def of(self, value: object, user: object = None) -> Any:
        if not self._here:
            return self._of(value)
        if type(value) not in _CHANGING:
            try:
                return self._of(value)
            except Unknown:
                pass
        return ["object", id(value)]

    def _of(self, value: object) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value)
        if type(value) in _PLAIN:
            return [type(value).__name__, repr(value)]
        if isinstance(value, CodeType):
            return self._code(value)
        if type(value) in (tuple, list):
            return [type(value).__name__, *map(self.of, value)]  # type: ignore[call-overload]
        if type(value) in (set, frozenset):
            return [type(value).__name__, *sorted(map(repr, map(self.of, value)))]  # type: ignore[call-overload]
        if type(value) is dict:
            return ["dict", *([self.of(key), self.of(item)] for key, item in value.items())]
        if isinstance(value, np.dtype | np.generic):
            return [type(value).__name__, repr(value)]
        if type(value) is np.ndarray:
            return self._array(value)
        if isinstance(value, MethodType):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, functools.partial):
            return ["partial", self.of(value.func), self.of(value.args), self.of(value.keywords)]
        if isinstance(value, ModuleType):
            return self._module(value)
        inner = getattr(value, "function", None) if isinstance(value, Recordable) else None
        if type(value).__module__.partition(".")[0] == "numba":
            inner = getattr(value, "py_func", None)
        if isinstance(inner, FunctionType):
            return [type(value).__name__, self._function(inner)]
        return self._imported(value)

    def _function(self, function: FunctionType) -> Any:
        if id(function) in self._seen:
            return ["seen", self._seen[id(function)]]
        self._seen[id(function)] = len(self._seen)
        found = [
            "function",
            self._code(function.__code__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            self._cells(function),
        ]
        module = function.__module__
        if vars(sys.modules.get(module, builtins)) is function.__globals__ and module != "__main__":
            content = content_of(module)
            if content is not None:
                return [*found, "module", module, content, *self._globals(function, self._of_own_module)]
        return [*found, "globals", *self._globals(function, self.of)]

    def _cells(self, function: FunctionType) -> list[Any]:
        names, written = function.__code__.co_freevars, _written(function.__code__)
        cells = zip(names, function.__closure__ or (), strict=True)
        return ["state" if name in written else _cell(self, cell) for name, cell in cells]

    def _globals(self, function: FunctionType, of: Callable[[object, FunctionType], Any]) -> list[Any]:
        found, written = [], _written(function.__code__)
        for name in _names(function.__code__):
            if name in written:
                found.append([name, "state"])
            elif name in function.__globals__:
                found.append([name, of(function.__globals__[name], function)])
            elif not hasattr(builtins, name):
                found.append([name])  # not there yet
        return found

    def _of_own_module(self, value: object, function: FunctionType) -> Any:
        """Describe a global whose definition is in the file, if it is cheap to tell what it is now."""
        inner = getattr(value, "function", None) if isinstance(value, Recordable) else value
        if isinstance(inner, FunctionType):
            if inner.__globals__ is not function.__globals__:
                return []
        elif not _is_plain(value):
            return []
        try:
            return self.of(value)
        except Unknown:
            return []

    def _code(self, code: CodeType) -> Any:
        return [
            "code",
            code.co_code.hex(),
            [self.of(constant) for constant in code.co_consts],
            list(code.co_names),
            [list(names) for names in (code.co_varnames, code.co_freevars, code.co_cellvars)],
            [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags],
            code.co_exceptiontable.hex(),
        ]

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        if array.dtype.hasobject or array.nbytes > _MOST_BYTES:
            raise Unknown(f"an array of {array.nbytes} bytes, {array.dtype}")
        return ["array", str(array.dtype), list(array.shape), hashed(array.tobytes().hex())]

    def _module(self, module: ModuleType) -> Any:
        if module.__name__ == "__main__":
            raise Unknown("__main__")
        if module.__name__.partition(".")[0] in sys.stdlib_module_names:
            return ["module", module.__name__]  # Python's version tells
        content = content_of(module.__name__)
        if content is None:
            raise Unknown(module.__name__)
        return ["module", module.__name__, content]

    def _imported(self, value: object) -> Any:
        """A type or a compiled function that its module has under its name."""
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        module: Any = getattr(value, "__module__", None)
        if isinstance(value, np.ufunc):
            module = "numpy"
        if isinstance(value, BuiltinFunctionType | BuiltinMethodType) and isinstance(value.__self__, ModuleType):
            module = value.__self__.__name__
        found: object = sys.modules.get(module) if isinstance(module, str) else None
        if not isinstance(name, str) or not isinstance(found, ModuleType):
            raise Unknown(type(value).__name__)
        described = self._module(found)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value:
            raise Unknown(type(value).__name__)
        return ["imported", name, described]


def _cell(description: _Description, cell: Any) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:
        return ["empty"]
    return description.of(value)


def _is_plain(value: object) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


@functools.lru_cache(maxsize=1024)
def _sources(module: str, origin: object) -> Sources:
    """Look a module up once for each file that it was loaded from; the file itself is looked at each time."""
    return Sources()


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """Return the globals that code names, that of functions inside included."""
    found = [str(each.argval) for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names(constant)
    return tuple(dict.fromkeys(found))


@functools.lru_cache(maxsize=4096)
def _written(code: CodeType) -> frozenset[str]:
    """Return the variables from outside that code assigns to, that of functions inside included."""
    found = set()
    for each in dis.get_instructions(code):
        name = str(each.argval)
        is_cell = each.opname in ("STORE_DEREF", "DELETE_DEREF") and name in code.co_freevars
        if is_cell or each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            found.add(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _written(constant)
    return frozenset(found)
