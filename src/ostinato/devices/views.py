"""Views of arrays whose elements Python cannot reach: everything that NumPy does without looking at an element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    from typing import Self

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

Taken: TypeAlias = tuple[str, Any]
"""How a view was taken: the name of a method and its arguments; ``"[]"`` and the index; ``"T"`` and nothing."""

_ONE = frozenset({int, np.int64})
_AVOIDS_COPIES = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Viewed:
    """Base of what has the shape of an array, and views, but no elements that Python could reach."""

    __slots__ = ()

    def _taking(self, take: Callable[[Any], Any], taken: Taken) -> Self:
        """Return the view that `take` makes of each ndarray that this stands for."""
        raise NotImplementedError

    def _would_copy(self, taken: Taken) -> NoReturn:
        """Raise because there is no such view."""
        raise ValueError(f"{_written(taken)} would copy: this array has no view of that shape")

    @property
    def T(self) -> Self:
        """The transpose."""
        return self._taking(lambda array: array.T, ("T", ()))

    def transpose(self, *axes: Any) -> Self:
        """Return a view with the axes in another order."""
        return self._taking(lambda array: array.transpose(*axes), ("transpose", axes))

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Return a view with two axes in each other's place."""
        return self._taking(lambda array: array.swapaxes(axis1, axis2), ("swapaxes", (axis1, axis2)))

    def squeeze(self, axis: Any = None) -> Self:
        """Return a view without axes of length 1."""
        return self._taking(lambda array: array.squeeze(axis), ("squeeze", () if axis is None else (axis,)))

    def view(self, dtype: Any = None) -> Self:
        """Return a view, of another dtype if one is given."""
        if dtype is None:
            return self._taking(lambda array: array.view(), ("view", ()))
        return self._taking(lambda array: array.view(dtype), ("view", (dtype,)))

    def reshape(self, *shape: Any, order: Any = "C") -> Self:
        """Return a view of another shape; where that would need a copy, this is an error."""
        taken: Taken = ("reshape", shape)
        wanted = shape[0] if len(shape) == 1 else shape

        def take(array: Array) -> Array:
            found = _reshaped(array, wanted, order)
            return self._would_copy(taken) if found is None else found

        return self._taking(take, taken)

    def __iter__(self) -> Iterator[Self]:
        one: Any = self
        return (one[index] for index in range(len(one)))

    def __reversed__(self) -> Iterator[Self]:
        return iter([*self][::-1])


def view_index(index: Any) -> Any:
    """Return an index that gives a view in all cases, also where it names a single element.

    Raises
    ------
    NotBasicError
        It would copy elements.
    """
    if type(index) in _ONE or type(index) is slice:
        return (index, Ellipsis)
    entries = index if isinstance(index, tuple) else (index,)
    whole = isinstance(index, str)
    for entry in entries:
        if entry is Ellipsis:
            whole = True
        elif not _is_basic(entry):
            raise NotBasicError(entry)
    return index if whole else (*entries, Ellipsis)


class NotBasicError(TypeError):
    """An index is no integer, slice, ``...``, None or name of a field, so that indexing by it would copy."""

    def __init__(self, entry: object) -> None:
        super().__init__(f"an index of a view must be an integer, a slice, ... or None, got {type(entry).__name__}")
        self.entry = entry


def _is_basic(entry: object) -> bool:
    if entry is None or isinstance(entry, slice | str):
        return True
    if isinstance(entry, bool | np.bool_ | np.ndarray):
        return False
    try:
        operator.index(entry)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def format_view(taken: Taken) -> str:
    """Return how a view was taken as Python would write it, after the array's name."""
    name, arguments = taken
    if name == "[]":
        entries = arguments if isinstance(arguments, tuple) else (arguments,)
        return f"[{', '.join(map(_entry, entries)) or '()'}]"
    if name == "T":
        return ".T"
    return f".{name}({', '.join(map(repr, arguments))})"


def _written(taken: Taken) -> str:
    return format_view(taken).removeprefix(".")


def _entry(entry: object) -> str:
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, np.integer):
        return str(int(entry))
    if not isinstance(entry, slice):
        return repr(entry)
    parts = ["" if part is None else str(part) for part in (entry.start, entry.stop, entry.step)]
    return ":".join(parts[: 2 if entry.step is None else 3])


def _reshaped(array: Array, shape: Any, order: Any) -> Array | None:
    """Return a view of another shape, without a look at the elements; None where there is none."""
    if _AVOIDS_COPIES:
        try:
            return cast("Array", array.reshape(shape, order=order, copy=False))
        except ValueError:
            if not _has_size(array, shape):
                raise
            return None
    like = np.broadcast_to(np.empty((), "b"), array.shape)  # raises what is wrong with the shape
    wanted = like.reshape(shape, order=order).shape
    if order != "C" and not (order == "A" and not array.flags.fnc):
        found = _reshaped(array.T, wanted[::-1], "C")
        return None if found is None else found.T
    view = array.view()
    try:
        view.shape = wanted
    except AttributeError:
        return None
    return view


def _has_size(array: Array, shape: Any) -> bool:
    """Whether an array has as many elements as a shape."""
    lengths = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    known: int = prod(length for length in lengths if length != -1)
    if -1 in lengths:
        return known > 0 and array.size % known == 0
    return array.size == known
