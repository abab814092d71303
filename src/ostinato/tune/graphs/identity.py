"""What a variant is: the name under which another process finds it, and a digest that changes when it does.

Functions and plain values are described so that equal descriptions mean equal behaviour, in any process.
"""

from __future__ import annotations

import builtins
import ctypes
import dis
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import resolve_name
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.graph.kernel import Kernel
from ostinato.graph.native import NativeTask
from ostinato.graph.recorder import Recordable
from ostinato.tune.candidate import Candidate, digest, hashed, plain
from ostinato.tune.store.key import Sources

if TYPE_CHECKING:
    from ostinato.graph.variant import Variant


def importable(variant: Variant) -> str | None:
    """Return the ``"package.module:name"`` under which a worker process finds a variant's task, or its function.

    None for what is defined in ``__main__``, inside a function, or in a module that has no file.
    """
    task = variant.task
    if isinstance(task, NativeTask):
        for other in list(sys.modules.values()):
            if not isinstance(other, ModuleType) or other.__name__ == "__main__":
                continue
            for name, value in list(vars(other).items()):
                if value is task and name.isidentifier() and content_of(other.__name__) is not None:
                    return f"{other.__name__}:{name}"
        return None
    function = getattr(task, "function", None)
    module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualified, str) or module == "__main__":
        return None
    found: object = sys.modules.get(module)
    for name in qualified.split("."):
        found = getattr(found, name, None)
    if (found is not task and found is not function) or content_of(module) is None:
        return None
    return f"{module}:{qualified}"


def source_of(variant: Variant, here: bool = False) -> str | None:
    """Return a digest of what a variant is; None if it cannot be told from others.

    Equal digests mean equal code in every process; with `here` in this process only, where objects and addresses count
    by their identity, for as long as they live.
    """
    try:
        source = _source(variant.task, here)
        return digest([variant.name, variant.on, plain(dict(variant.config), "config"), source])
    except (Unknown, TypeError, ValueError, RecursionError):
        return None


def _source(task: Recordable, here: bool) -> list[Any]:
    if not isinstance(task, NativeTask):
        kind = "kernel" if isinstance(task, Kernel) else "python"
        return [kind, describe(getattr(task, "function", None), here)]
    given = task.keep_alive[0] if task.keep_alive else None
    python = getattr(given, "_pyfunc", None)  # what a CFunc of Numba was compiled from
    if python is not None:
        return ["compiled", describe(python, here)]
    try:
        return ["library", *find_library(task.address)]
    except Unknown:
        if here:
            return ["address", task.address, task.user_address]
        raise


_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_CHANGING = (list, dict, set, np.ndarray)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MOST_FUNCTIONS = 500
"""Of more that a function uses, one through the other, only the files count."""
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


def describe(value: object, here: bool = False) -> Any:
    """Return a description as JSON has it, mostly of a function; raise `Unknown` if some part cannot be told.

    A function is its code, its defaults, what it closes over and the globals that it names; not its state: variables
    that it assigns to. If another process can import its module, the digest of the module's file stands for the
    globals. But plain globals, and the functions, types and modules of the same project, count as well: they may be in
    other files, or have changed since the files were read. The version stands for what is installed.

    With `here` the description is for this process only: objects that cannot be told from others count by their
    identity, and so do those whose contents may change, such as lists and arrays.
    """
    return _Description(here).of(value)


class _Description:
    def __init__(self, here: bool) -> None:
        self._here = here
        self._seen: dict[int, int] = {}  # functions that are being described, or have been, by id
        self._modules: set[tuple[str, CodeType]] = set()
        self._content = functools.cache(content_of)

    def of(self, value: object) -> Any:
        if not self._here:
            return self._of(value)
        with suppress(Unknown):
            if type(value) not in _CHANGING:
                return self._of(value)
        return ["object", id(value)]

    def _of(self, value: object) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value)
        if type(value) in _PLAIN or isinstance(value, np.dtype | np.generic):
            return [type(value).__name__, repr(value)]
        if isinstance(value, CodeType):
            return self._code(value)
        if type(value) in (tuple, list):
            return [type(value).__name__, *map(self.of, value)]  # type: ignore[call-overload]
        if type(value) in (set, frozenset):
            return [type(value).__name__, *sorted(map(repr, map(self.of, value)))]  # type: ignore[call-overload]
        if type(value) is dict:
            return ["dict", *([self.of(key), self.of(item)] for key, item in value.items())]
        if type(value) is np.ndarray:
            if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
                raise Unknown(f"an array of {value.nbytes} bytes, {value.dtype}")
            return ["array", str(value.dtype), list(value.shape), hashed(value.tobytes().hex())]
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
            list(self._cells(function)),
        ]
        module = function.__module__
        code, package = function.__code__, function.__globals__.get("__package__") or ""
        if vars(sys.modules.get(module, builtins)) is function.__globals__ and module != "__main__":
            content = self._content(module)
            if content is not None:
                found += ["module", module, content]
                if not _is_of_project(module) or len(self._seen) > _MOST_FUNCTIONS:
                    return found
                return [*found, *self._globals(function, self._of_project), *self._imports(imports(code, package))]
        return [*found, "globals", *self._globals(function, self._of_main), *self._imports(imports(code, package))]

    def _cells(self, function: FunctionType) -> Iterator[Any]:
        state = written(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                yield "state" if name in state else ["empty"]
            else:
                yield "state" if name in state else self.of(value)

    def _globals(self, function: FunctionType, of: Callable[[object, CodeType], Any]) -> list[Any]:
        found, state = [], written(function.__code__)
        for name in global_names(function.__code__):
            if name in state:
                found.append([name, "state"])
            elif name in function.__globals__:
                found.append([name, of(function.__globals__[name], function.__code__)])
            elif not hasattr(builtins, name):
                found.append([name])  # not there yet
        return found

    def _imports(self, names: tuple[str, ...]) -> list[Any]:
        """Describe what a function imports when it is called."""
        return [[name, self._content(name)] for name in names if not _is_standard(name)]

    def _of_main(self, value: object, code: CodeType) -> Any:
        """Describe a global of a module that another process cannot import."""
        if isinstance(value, ModuleType) and _is_of_project(value.__name__):
            return self._used(value, code)
        return self.of(value)

    def _of_project(self, value: object, code: CodeType) -> Any:
        """Describe a global, or what a module has, as far as a file of the project tells of it."""
        inner = getattr(value, "function", None) if isinstance(value, Recordable) else value
        if isinstance(inner, ModuleType):
            return self._used(inner, code) if _is_of_project(inner.__name__) else []
        if isinstance(inner, FunctionType | type):
            counts = _is_of_project(inner.__module__)
        else:
            counts = isinstance(inner, MethodType | functools.partial) or _is_plain(value)
        with suppress(Unknown):
            return self.of(value) if counts else []
        return []

    def _used(self, module: ModuleType, code: CodeType) -> Any:
        """Describe a module of the project, with what code may use of it."""
        place = module.__name__, code
        if place in self._modules:
            return ["module", module.__name__]
        self._modules.add(place)
        names = sorted(attributes(code) & vars(module).keys())
        used = [[name, self._of_project(vars(module)[name], code)] for name in names]
        return ["module", module.__name__, self._content(module.__name__), used]

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

    def _module(self, module: ModuleType) -> Any:
        if module.__name__ == "__main__":
            raise Unknown("__main__")
        if _is_standard(module.__name__):
            return ["module", module.__name__]  # Python's version tells
        content = self._content(module.__name__)
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


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_of_project(module: object) -> bool:
    """Whether a module is neither the standard library's, nor installed, nor Ostinato's: it may change any time."""
    if not isinstance(module, str) or module == "__main__" or _is_standard(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = isinstance(file, str) and not _INSTALLED.isdisjoint(file.split(os.sep))
    return isinstance(file, str) and not installed and module.partition(".")[0] != "ostinato"


def _is_plain(value: object) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


@functools.lru_cache(maxsize=1024)
def _sources(module: str, origin: object) -> Sources:
    """Look a module up once for each file that it was loaded from; the file itself is looked at each time."""
    return Sources()


@functools.lru_cache(maxsize=4096)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the globals that code reads, that of functions inside included."""
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
    """Return the modules that code imports when it runs, in a module of this package."""
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


class _Info(ctypes.Structure):
    """What ``dladdr`` says."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def find_library(address: int) -> tuple[str, int]:
    """Return the digest of the shared library's file that holds an address, and the offset in it."""
    info = _Info()
    found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    if not found or not info.path or info.base is None:
        raise Unknown(f"no library is at {address:#x}")
    path = ""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            where, _, _, _, _, *name = line.rstrip(b"\n").split(maxsplit=5)
            begin, end = (int(bound, 16) for bound in where.split(b"-"))
            if begin <= address < end:
                path = os.fsdecode(b"".join(name))
    if not os.path.isfile(path) or os.path.samefile(path, "/proc/self/exe"):  # "FILE (deleted)" is no file
        raise Unknown(f"the library at {address:#x} is there no more")
    return Sources().imported(Candidate.call("builtins:_", source=[path]))[f"file {path}"], address - info.base
