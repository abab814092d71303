"""A function that is one step of a program, and its recorded call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ostinato.errors import GraphError
from ostinato.graph.capture import Capture
from ostinato.graph.python_task import name_of
from ostinato.graph.tracing import Traced
from ostinato.one_line import brief

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph

__all__ = ["StepFunction", "record_function"]

_CHANGED = (
    "{0}() changed a {1} that holds arrays, and is among its arguments. The function is called once, with a copy of "
    "the {1}, so the change would be lost. Pass ostinato.ring(...) for arrays that take turns, and an array or an "
    "ostinato.param(...) for a number that changes; read a cached property once before compiling"
)


class StepFunction(NamedTuple):
    """A function that was recorded, with its arguments as they were given: calling it does one step eagerly."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: Sequence[str]
    """What the function calls its positional arguments."""
    graph: Graph


def record_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StepFunction:
    """Call a function once, with tracers in place of arrays, and return what it recorded."""
    if not callable(function):
        raise TypeError(f"the first argument must be a function that calls tasks, got {brief(function)}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"a step must be a plain function, which does its work when called, got {function!r}")
    title = name_of(function)
    names = _names(function, len(args))
    capture = Capture(title)
    with capture as graph:
        recording = capture.recording
        assert recording is not None
        assert recording.guard is not None
        traced = Traced(title, recording)
        passed = [traced.value(value, name) for value, name in zip(args, names, strict=True)]
        named = {key: traced.value(value, key) for key, value in kwargs.items()}
        for array in traced.arrays:
            recording.guard.hold(array)
        capture.remember(("", array) for array in traced.arrays)
        function(*passed, **named)
        changed = traced.changed()
        if changed is not None:
            raise GraphError(_CHANGED.format(title, changed.__name__))
    return StepFunction(function, args, dict(kwargs), names, graph)


def _names(function: Callable[..., Any], count: int) -> list[str]:
    """Return what a function calls its positional arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [f"argument {place + 1}" for place in range(count)]
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "args")
    return names[:count] + [f"{rest}[{place}]" for place in range(count - len(names))]
