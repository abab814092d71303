"""How type checkers see calls of tasks: a stream that comes first is left out, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from ostinato.devices.stream import Stream
    from ostinato.graph.task import Task

__all__ = ["Calling"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class _NoStream:
    """What no parameter for a stream takes, and every access does, which type checkers see as `Any`."""


class Calling(Generic[P, R]):
    """What ``__call__`` of a task is to type checkers, by the first parameter of its function.

    An overloaded method would not do: type checkers try the overload without the first parameter, too, where that is
    `Any` and an argument is missing. Of the overloads of `__get__` they take the first that the task itself fits.
    """

    @overload
    def __get__(self, task: Task[Concatenate[_NoStream, Q], R], owner: Any = None) -> Callable[P, Any]: ...
    @overload
    def __get__(self, task: Task[Concatenate[Stream, Q], R], owner: Any = None) -> Callable[Q, Any]: ...
    @overload
    def __get__(self, task: object, owner: Any = None) -> Callable[P, Any]: ...  # it has no parameters by position
    def __get__(self, task: object, owner: Any = None) -> Any:
        raise NotImplementedError  # tasks have a method of this name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Tasks may be passed where functions are taken."""
