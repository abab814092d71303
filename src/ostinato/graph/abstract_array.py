"""Arrays that have no elements while a graph is recorded, and refuse whatever needs these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ostinato.devices.views import Taken, Viewed, written
from ostinato.errors import TracerError
from ostinato.graph.call_site import CallSite, statement_frame
from ostinato.graph.no_value import NoValue

__all__ = ["AbstractArray"]

_TASK = "Make the statement a task: a function decorated with @ostinato.task, which runs in every step"
_NUMBER = f"{_TASK}. A number that is given with each run is ost.param(...)"
_CONDITION = f"{_TASK}. ost.until(flag) ends a run in the step in which a flag is nonzero"
_ASSIGN = "Use ost.fill(x[...], value) or ost.copy(source, x[...]), or make the statement a task (@ostinato.task)"
_GATHER = (
    "Use graph.copy(indices=...) or ost.copy(x, out, indices=...), which gather in every step, or make the statement a "
    "task (@ostinato.task)"
)
_WHOLE = "Pass the array itself to tasks, ost.copy or ost.fill"

_Refusal = Callable[..., NoReturn]


def _refusing(what: str, way_out: str = _TASK) -> Any:
    def refuse(self: AbstractArray, *_: object, **__: object) -> NoReturn:
        raise self._error(f"{what} needs the elements of", way_out)

    return refuse


class AbstractArray(Viewed, NoValue):
    """Base of what stands for an array while a graph is recorded: it has a shape, and views, but no elements."""

    __slots__ = ()

    __hash__ = object.__hash__

    def _sample(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return an ndarray of its shape, dtype and strides, whose elements count for nothing."""
        raise NotImplementedError

    def real(self) -> Any:
        """Return what tasks are passed for it."""
        return self

    def _title(self) -> str:
        """Say which array it is, and why it has no elements."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an ndarray."""
        shape: tuple[int, ...] = self._sample().shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of an ndarray."""
        return self._sample().dtype

    @property
    def ndim(self) -> int:
        """As of an ndarray."""
        return self._sample().ndim

    @property
    def size(self) -> int:
        """As of an ndarray: how many elements."""
        return self._sample().size

    @property
    def itemsize(self) -> int:
        """As of an ndarray: bytes of an element."""
        return self._sample().itemsize

    @property
    def nbytes(self) -> int:
        """As of an ndarray: bytes of all elements."""
        return self._sample().nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """As of an ndarray: in bytes."""
        strides: tuple[int, ...] = self._sample().strides
        return strides

    def __len__(self) -> int:
        return len(self._sample())

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise self._error(f".{name} needs the elements of", _TASK)
        raise AttributeError(f"{self!r} has no attribute {name!r}")

    def _would_copy(self, taken: Taken) -> NoReturn:
        raise self._error(f"{written(taken)} would need a copy of", _WHOLE)

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

    def __array_function__(self, function: Any, *_: object, **__: object) -> NoReturn:
        module = str(getattr(function, "__module__", None) or "numpy")
        raise self._error(f"{module}.{getattr(function, '__name__', function)} needs the elements of", _TASK)

    __add__ = __radd__ = _refusing("+")
    __sub__ = __rsub__ = _refusing("-")
    __mul__ = __rmul__ = _refusing("*")
    __matmul__ = __rmatmul__ = _refusing("@")
    __truediv__ = __rtruediv__ = _refusing("/")
    __floordiv__ = __rfloordiv__ = _refusing("//")
    __mod__ = __rmod__ = _refusing("%")
    __divmod__ = __rdivmod__ = _refusing("divmod()")
    __pow__ = __rpow__ = _refusing("**")
    __lshift__ = __rlshift__ = _refusing("<<")
    __rshift__ = __rrshift__ = _refusing(">>")
    __and__ = __rand__ = _refusing("&")
    __or__ = __ror__ = _refusing("|")
    __xor__ = __rxor__ = _refusing("^")
    __neg__ = __pos__ = __abs__ = __invert__ = _refusing("a sign, abs() or ~")
    __round__ = __trunc__ = __floor__ = __ceil__ = _refusing("rounding")
    __iadd__ = _refusing("+=", _ASSIGN)
    __isub__ = _refusing("-=", _ASSIGN)
    __imul__ = _refusing("*=", _ASSIGN)
    __imatmul__ = _refusing("@=", _ASSIGN)
    __itruediv__ = _refusing("/=", _ASSIGN)
    __ifloordiv__ = _refusing("//=", _ASSIGN)
    __imod__ = _refusing("%=", _ASSIGN)
    __ipow__ = _refusing("**=", _ASSIGN)
    __ilshift__ = _refusing("<<=", _ASSIGN)
    __irshift__ = _refusing(">>=", _ASSIGN)
    __iand__ = _refusing("&=", _ASSIGN)
    __ior__ = _refusing("|=", _ASSIGN)
    __ixor__ = _refusing("^=", _ASSIGN)
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
