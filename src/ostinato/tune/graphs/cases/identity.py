"""What a variant is: the name under which another process finds it, and a digest that changes when it does."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ostinato.graph.kernel import Kernel
from ostinato.graph.native import NativeTask
from ostinato.tune.canonical import digest, plain
from ostinato.tune.graphs.cases.code import Unknown, content_of, described
from ostinato.tune.graphs.cases.library import in_library

if TYPE_CHECKING:
    from ostinato.graph.recordable import Recordable
    from ostinato.graph.variant import Variant

__all__ = ["importable", "source_of", "task_name"]


def task_name(task: Recordable) -> str:
    """Return what a task is called in the store: ``"package.module:function"``, or ``"native:name"``."""
    if isinstance(task, NativeTask):
        return f"native:{task.name}"
    function = getattr(task, "function", task)
    for named in (function, type(function)):
        name = getattr(named, "__qualname__", None) or getattr(named, "__name__", None)
        if isinstance(name, str):
            return f"{getattr(named, '__module__', None) or 'builtins'}:{name}"
    raise AssertionError("types have names")


def importable(variant: Variant) -> str | None:
    """Return the ``"package.module:name"`` under which a worker process finds a variant's task, or its function.

    None for what is defined in ``__main__``, inside a function, or in a module that has no file.

    Examples
    --------
    >>> from ostinato.graph.python_task import PythonTask
    >>> from ostinato.graph.variant import Variant
    >>> import json
    >>> importable(Variant(PythonTask(json.dumps, (), "dumps"), "dumps"))
    'json:dumps'
    >>> importable(Variant(PythonTask(lambda: None, (), "lambda"), "lambda")) is None
    True
    """
    task = variant.task
    if isinstance(task, NativeTask):
        return _global_name(task)
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

    Parameters
    ----------
    variant
        The variant.
    here
        Whether the digest is for this process only: then objects and addresses are what they are, for as long as they
        live. If not, equal ones are equal in every process.

    Examples
    --------
    >>> from ostinato.graph.python_task import PythonTask
    >>> from ostinato.graph.variant import Variant
    >>> def adding(n, here=False):
    ...     return source_of(Variant(PythonTask(lambda x: x + n, (0,), "add"), "add"), here)
    >>> adding(1) == adding(1), adding(1) == adding(2), adding(object())
    (True, False, None)
    >>> adding(None, here=True) == adding(None, here=True), adding(object(), here=True) is None
    (True, False)
    """
    try:
        source = _source(variant.task, here)
        return digest([variant.name, variant.on, plain(dict(variant.config), "config"), source])
    except (Unknown, TypeError, ValueError, RecursionError):
        return None


def _source(task: Recordable, here: bool) -> list[Any]:
    if not isinstance(task, NativeTask):
        kind = "kernel" if isinstance(task, Kernel) else "python"
        return [kind, described(getattr(task, "function", None), here)]
    given = task._keep[0] if task._keep else None
    python = getattr(given, "_pyfunc", None)  # what a CFunc of Numba was compiled from
    if python is not None:
        return ["compiled", described(python, here)]
    try:
        return ["library", *in_library(task.address)]
    except Unknown:
        if here:
            return ["address", task.address, task.user_address]
        raise


def _global_name(value: object) -> str | None:
    """Return the ``"package.module:name"`` of a value that is a global of a module which others can import."""
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or module.__name__ == "__main__":
            continue
        for name, found in list(vars(module).items()):
            if found is value and name.isidentifier() and content_of(module.__name__) is not None:
                return f"{module.__name__}:{name}"
    return None
