"""Rings: arrays that take turns from step to step; and their elements, which have no data of their own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NoReturn

import numpy as np

from ostinato.devices.views import NotBasicError, Taken, Viewed, format_view, view_index
from ostinato.errors import TracerError
from ostinato.graph.arrays import Array, as_ndarray, memory_of
from ostinato.graph.context import CallSite, statement_frame, writable_view
from ostinato.graph.param import NoValue
from ostinato.text import brief, counted

_TASK = "Make the statement a task: a function decorated with @ostinato.task, which runs in every step"
_NUMBER = f"{_TASK}. A number that is given with each run is ost.param(...)"
_CONDITION = f"{_TASK}. ost.until(flag) ends a run in the step in which a flag is nonzero"
_ASSIGN = "Use ost.fill(x[...], value) or ost.copy(source, x[...]), or make the statement a task (@ostinato.task)"
_GATHER = (
    "Use graph.copy(indices=...) or ost.copy(x, out, indices=...), which gather in every step, or make the statement a "
    "task (@ostinato.task)"
)
_WHOLE = "Pass the array itself to tasks, ost.copy or ost.fill"

#: Functions of NumPy that only use what is here: the shape, methods that make views, and slices.
_OF_VIEWS = frozenset(
    {
        *(np.shape, np.ndim, np.size),
        *(np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit),
        *(np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze, np.flip),
    }
)

_Refusal = Callable[..., NoReturn]


def _refusing(what: str, way_out: str = _TASK) -> Any:
    def refuse(self: AbstractArray, *_: object, **__: object) -> NoReturn:
        raise self._error(f"{what} needs the elements of", way_out)

    return refuse


def _of_ndarray(name: str) -> Any:
    return property(lambda self: getattr(self._sample(), name), doc="As of an ndarray.")


class AbstractArray(Viewed, NoValue):
    """Base of what stands for an array while a graph is recorded: it has a shape, and views, but no elements."""

    __slots__ = ()

    __hash__ = object.__hash__

    def _sample(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return an ndarray of its shape, dtype and strides, whose elements count for nothing."""
        raise NotImplementedError

    def referent(self) -> Any:
        """Return what tasks are passed for it."""
        return self

    def _title(self) -> str:
        """Say which array it is, and why it has no elements."""
        raise NotImplementedError

    shape, dtype, ndim, size, itemsize, nbytes, strides = map(
        _of_ndarray, ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides")
    )

    def __len__(self) -> int:
        return len(self._sample())

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise self._error(f".{name} needs the elements of", _TASK)
        raise AttributeError(f"{self!r} has no attribute {name!r}")

    def _would_copy(self, taken: Taken) -> NoReturn:
        raise self._error(f"{format_view(taken)} would need a copy of", _WHOLE)

    def _error(self, what: str, way_out: str) -> TracerError:
        site = CallSite(statement_frame())
        return TracerError(f"{site}: {what} {self._title()}. {way_out}")

    def _why(self) -> str:
        return str(self._error("this needs the elements of", _TASK))

    def _fancy(self, entry: object) -> TracerError:
        return self._error(
            f"an index must be an integer, a slice, ... or None, got {type(entry).__name__}, which would copy elements "
            "of",
            _GATHER,
        )

    def __array_ufunc__(self, ufunc: Any, *_: object, **__: object) -> NoReturn:  # type: ignore[override]
        raise self._error(f"numpy.{ufunc.__name__} needs the elements of", _TASK)

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        if function in _OF_VIEWS:
            return function._implementation(*args, **kwargs)
        if function is np.reshape:
            raise self._error("numpy.reshape may copy elements of", f"Its method .reshape(...) makes a view. {_TASK}")
        module = str(getattr(function, "__module__", None) or "numpy")
        raise self._error(f"{module}.{getattr(function, '__name__', function)} needs the elements of", _TASK)

    __neg__ = __pos__ = __abs__ = __invert__ = _refusing("a sign, abs() or ~")
    __round__ = __trunc__ = __floor__ = __ceil__ = _refusing("rounding")
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refusing("a comparison", _CONDITION)
    __bool__ = _refusing("a condition", _CONDITION)
    __contains__ = _refusing("'in'", _CONDITION)
    __int__ = __float__ = __complex__ = __index__ = _refusing("a conversion to a number", _NUMBER)
    __array__ = __array_wrap__ = _refusing("numpy.asarray")
    __buffer__ = _refusing("a memoryview")
    __dlpack__ = __dlpack_device__ = _refusing("DLPack")
    __format__ = __bytes__ = _refusing("formatting")
    __setitem__ = __delitem__ = _refusing("an assignment", _ASSIGN)
    __copy__ = __deepcopy__ = __reduce_ex__ = _refusing("a copy")


_OPERATORS = {
    **{"+": "add", "-": "sub", "*": "mul", "@": "matmul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"},
    **{"<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor", "divmod()": "divmod"},
}
for _sign, _name in _OPERATORS.items():
    setattr(AbstractArray, f"__{_name}__", _refusing(_sign))
    setattr(AbstractArray, f"__r{_name}__", _refusing(_sign))
    if _name != "divmod":
        setattr(AbstractArray, f"__i{_name}__", _refusing(f"{_sign}=", _ASSIGN))


# How hard to look for an overlap of two arrays before assuming one; the exact answer can take exponential time.
_OVERLAP_EFFORT = 10_000


class RingElement(AbstractArray):
    """An element of a ring: another of its arrays in each step, in step s ``views[(s + offset) % len(views)]``.

    `views` are the ring's arrays, each sliced as this element is.
    """

    __slots__ = ("__weakref__", "offset", "ring", "views")

    def __init__(self, ring: Ring, offset: int, views: tuple[Array, ...]) -> None:
        self.ring = ring
        self.offset = offset
        self.views = views

    def _sample(self) -> Array:
        return self.views[0]

    def _taking(self, take: Callable[[Array], Array], taken: Taken) -> RingElement:
        return RingElement(self.ring, self.offset, tuple([take(view) for view in self.views]))

    def _title(self) -> str:
        return (
            f"{self!r}, which stands for another array in each step, and only has a meaning as an argument of a task "
            "inside a capture, or of a method of a Graph"
        )

    def __getitem__(self, index: Any) -> RingElement:
        """Slice it like an array, with integers, slices, ``...`` and ``None``; every result is a view."""
        try:
            index = view_index(index)
        except NotBasicError as error:
            raise self._fancy(error.entry) from None
        return self.sliced(index)

    def sliced(self, index: Any) -> RingElement:
        """Return what an index gives that makes a view of each of the arrays."""
        return RingElement(self.ring, self.offset, tuple([view[index] for view in self.views]))

    def __repr__(self) -> str:
        return f"<element {self.offset} of a ring of {len(self.views)}, shape {self.shape}, {self.dtype}>"


class Ring:
    """Arrays that take turns; made by `ring`.

    `arrays` are their memory, in order; `values` the arrays as they were given; they are `disjoint` if no two overlap.
    """

    __slots__ = ("__weakref__", "_elements", "arrays", "disjoint", "values")

    def __init__(self, values: tuple[object, ...]) -> None:
        self.values = values
        self.arrays = tuple(_member(value, index) for index, value in enumerate(values))
        first = self.arrays[0]
        for index, array in enumerate(self.arrays):
            if array.shape != first.shape or array.dtype != first.dtype:
                raise ValueError(
                    f"the arrays of a ring must have one shape and dtype: array 0 is {first.shape} {first.dtype}, "
                    f"array {index} is {array.shape} {array.dtype}"
                )
        memories = [memory_of(array) for array in self.arrays]
        for index, memory in enumerate(memories):
            if memory != memories[0]:
                raise ValueError(
                    f"the arrays of a ring must lie in one memory: array 0 in that of {memories[0]}, "
                    f"array {index} in that of {memory}"
                )
        self.disjoint = not any(_overlap(a, b) for a, b in combinations(self.arrays, 2))
        self._elements = tuple(RingElement(self, offset, self.arrays) for offset in range(len(self.arrays)))

    def __len__(self) -> int:
        return len(self.arrays)

    def __iter__(self) -> Iterator[RingElement]:
        return iter(self._elements)

    def __getitem__(self, offset: int) -> RingElement:
        """Return this step's array for 0, the next step's for 1, the last step's for -1."""
        return self._elements[self.index_of(offset)]

    def index_of(self, offset: int) -> int:
        """Return which of the elements is meant by a number of steps."""
        try:
            return operator.index(offset) % len(self._elements)
        except TypeError:
            raise TypeError(
                f"the index of a ring must be a number of steps, as in u[0] or u[-1], got {brief(offset)}; "
                "slice the element: u[0][2:5]"
            ) from None

    def __repr__(self) -> str:
        return f"<ring of {counted(len(self), 'array')}, shape {self.arrays[0].shape}, {self.arrays[0].dtype}>"


def ring(*arrays: Any) -> Ring:
    """Let arrays of one shape and dtype take turns.

    In step s, ``r[k]`` is ``arrays[(s + k) % len(arrays)]``.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> u = ost.ring(np.zeros(8), np.zeros(8))
    >>> u[1][2:5]
    <element 1 of a ring of 2, shape (3,), float64>
    >>> u[-1] is u[1]
    True
    """
    if not arrays:
        raise ValueError("ring() must be given at least one array")
    return Ring(tuple([each.referent() if isinstance(each, AbstractArray) else each for each in arrays]))


def _member(value: object, index: int) -> Array:
    array = as_ndarray(value)
    if array is None:
        raise TypeError(f"argument {index + 1} of ring() must be an array, got {brief(value)}")
    # A view of our own: guards leave it alone, so that slices taken while recording are as writable as the array is.
    return writable_view(array)


def _overlap(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_EFFORT))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
