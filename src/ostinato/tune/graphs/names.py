"""The names of tasks of graphs in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.graph.body import Body, Copy, Fill, NativeCall, PythonCall
from ostinato.graph.native import NativeTask
from ostinato.graph.variant import variants_of

if TYPE_CHECKING:
    from ostinato.graph.recorder import Recordable


def operation_of(task: str) -> str:
    """Return the operation under which the store has the signatures of a task, by the task's name."""
    return f"graph: {task}"


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


def name_in_store(body: Body) -> str | None:
    """Return what the task of a body is called in the store; None if the store has nothing of such bodies."""
    if isinstance(body, Fill):
        return "fill"
    if isinstance(body, Copy):
        how = ("indices" if body.indices is not None else "", "scatter" if body.scatter is not None else "")
        name = "" if body.reduce is None else body.reduce.name
        return " ".join(["copy", *filter(None, (name, *how))])
    return task_name(variants_of(body)[0].task) if isinstance(body, PythonCall | NativeCall) else None
