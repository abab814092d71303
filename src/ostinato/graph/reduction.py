"""How a copy combines what its target holds with what it moves there."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Any, TypeAlias

import numpy as np

from ostinato.choices import ReductionName
from ostinato.errors import GraphError
from ostinato.graph.arrays import Array
from ostinato.graph.formal import ACCESS
from ostinato.graph.operand import READ, READ_WRITE
from ostinato.graph.python_task import PythonTask, name_of
from ostinato.graph.recordable import Recordable
from ostinato.graph.recorder import native_refusal
from ostinato.one_line import one_line

__all__ = ["ReduceArgument", "Reduction", "reduction_of"]

ReduceArgument: TypeAlias = ReductionName | Callable[..., Any]
"""What ``reduce=`` takes."""


class Reduction:
    """Combines element by element.

    Attributes
    ----------
    name
        What messages and reports call it.
    built_in
        Whether it is one of ours, and none that a user wrote.
    """

    name: str
    built_in = False

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        """Raise if elements of these types cannot be combined."""
        if not np.can_cast(source, target, "same_kind"):
            raise TypeError(f"an array of {source} cannot be copied to one of {target}: numpy.copyto would refuse, too")

    def combine(self, target: Array, source: Array) -> None:
        """Combine an array into another of its shape. They do not overlap."""
        raise NotImplementedError

    def scatter(self, target: Array, places: Array, source: Array) -> None:
        """Combine each row of `source` into the row of `target` at its place, one after the other.

        Raises
        ------
        IndexError
            A place is out of range. Nothing was combined then.
        """
        raise NotImplementedError


class _ByUfunc(Reduction):
    def __init__(self, ufunc: np.ufunc, name: str, built_in: bool) -> None:
        self.name = name
        self.built_in = built_in
        self._ufunc = ufunc
        if (ufunc.nin, ufunc.nout, ufunc.signature) != (2, 1, None):
            raise TypeError(f"reduce= of copy() must combine two elements to one, got {ufunc!r}")

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        super().check(source, target)
        into = np.empty(0, target)
        try:
            self._ufunc(into, np.empty(0, source), out=into, casting="same_kind")
        except TypeError as error:
            raise TypeError(f"{source} cannot be combined into {target} by {self.name!r}: {error}") from None

    def combine(self, target: Array, source: Array) -> None:
        self._ufunc(target, source, out=target, casting="same_kind")

    def scatter(self, target: Array, places: Array, source: Array) -> None:
        self._ufunc.at(target, places, source.astype(target.dtype, casting="same_kind"))


class _ByFunction(Reduction):
    """By a Python function of two elements, which returns what becomes of them."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.name = f"by {one_line(name_of(function))}"
        self._function = function

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        pass  # what it returns is checked

    def combine(self, target: Array, source: Array) -> None:
        function = self._function
        found = [function(target[index], source[index]) for index in np.ndindex(target.shape)]
        for value in found:
            self._check_value(value, target.dtype)
        for index, value in zip(np.ndindex(target.shape), found, strict=True):
            target[index] = value

    def scatter(self, target: Array, places: Array, source: Array) -> None:
        for place, row in zip(_in_range(places, len(target)).tolist(), range(len(source)), strict=True):
            self.combine(target[place, ...], source[row, ...])

    def _check_value(self, value: object, dtype: np.dtype[Any]) -> None:
        if dtype.hasobject or dtype.names is not None:
            return
        number = isinstance(value, bool | int | float | complex)  # that has no size of its own
        own = np.result_type(dtype, value) if number else np.asarray(value).dtype  # type: ignore[arg-type]
        if not np.can_cast(own, dtype, "same_kind"):
            raise TypeError(
                f"the function given as reduce= must return a value for an array of {dtype}, got {value!r}; to combine "
                "arrays in place, declare a task: combine(dst: ost.ReadWrite, src: ost.Read)"
            )


class _ByTask(Reduction):
    """By a task of two arrays, which combines the second into the first, element by element."""

    def __init__(self, task: Recordable) -> None:
        self.name = f"by {one_line(task.name)}"
        self._task: Any = task
        required = [each for each in task.formals() if each.default is Parameter.empty]
        modes = [each.mode for each in required]
        if modes != [READ_WRITE, READ]:
            raise TypeError(
                f"a task given as reduce= of copy() must be combine(dst: ost.ReadWrite, src: ost.Read), got {task!r}, "
                f"whose parameters are {', '.join(ACCESS[mode] for mode in modes) or 'none'}"
            )
        if getattr(task, "stream", None) is not None:
            raise TypeError(
                f"a task given as reduce= of copy() must run on the host, got {task!r}, which takes a stream"
            )
        if isinstance(task, PythonTask) and (task.blocking or not task.pure):
            raise TypeError(f"a task given as reduce= of copy() must be pure and must not wait, got {task!r}")

    def check(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        super().check(source, target)
        refusal = None if isinstance(self._task, PythonTask) else native_refusal(np.empty(0, target))
        if refusal is not None:
            raise GraphError(f"reduce= of copy() is {self._task!r}: {refusal}")

    def combine(self, target: Array, source: Array) -> None:
        self._task(target, source.astype(target.dtype, casting="same_kind", copy=False))

    def scatter(self, target: Array, places: Array, source: Array) -> None:
        places = _in_range(places, len(target))
        for rows in _rounds(places):
            part = target[places[rows]]
            self.combine(part, source[rows])
            target[places[rows]] = part


def _in_range(places: Array, count: int) -> Array:
    """Return places counted from the front."""
    wrong = (places < -count) | (places >= count)
    if wrong.any():
        raise IndexError(f"index {places[wrong][0]} is out of bounds for axis 0 with size {count}")
    return np.where(places < 0, places + count, places).astype(np.intp)


def _rounds(places: Array) -> list[Array]:
    """Return the rows of the first mentions of all places, then of the second ones, and so on."""
    by_place = np.argsort(places, kind="stable")
    ordered = places[by_place]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.bool_)
    at = np.arange(len(ordered))
    mention = np.empty(len(ordered), np.intp)
    mention[by_place] = at - np.maximum.accumulate(np.where(begins, at, 0)) if len(ordered) else at
    by_mention = np.argsort(mention, kind="stable")
    return np.split(by_mention, np.cumsum(np.bincount(mention))[:-1]) if len(ordered) else []


_BUILT_IN = {
    name: _ByUfunc(ufunc, name, True)
    for name, ufunc in (("+", np.add), ("*", np.multiply), ("min", np.minimum), ("max", np.maximum))
}


def reduction_of(reduce: object, source: np.dtype[Any], target: np.dtype[Any]) -> Reduction:
    """Return what ``reduce=`` means for arrays of these types.

    Raises
    ------
    TypeError, ValueError, GraphError
        It means nothing, or cannot be done.
    """
    found: Reduction
    if isinstance(reduce, str):
        if reduce not in _BUILT_IN:
            raise ValueError(
                f"reduce= of copy() must be one of {', '.join(map(repr, _BUILT_IN))} or a function, got {reduce!r}"
            )
        found = _BUILT_IN[reduce]
    elif isinstance(reduce, np.ufunc):
        found = next((each for each in _BUILT_IN.values() if each._ufunc is reduce), None) or _ByUfunc(
            reduce, f"by {reduce.__name__}", False
        )
    elif isinstance(reduce, Recordable):
        found = _ByTask(reduce)
    elif callable(reduce):
        found = _ByFunction(reduce)
    else:
        raise TypeError(
            f"reduce= of copy() must be one of {', '.join(map(repr, _BUILT_IN))} or a function, got {reduce!r}"
        )
    found.check(source, target)
    return found
