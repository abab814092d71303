"""Objects that stand for a value that does not exist yet."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["NoValue"]


class NoValue:
    """Base of what has no value while a graph is recorded: every use as a value raises `TypeError`.

    Equality and hashing stay those of identity, so that such objects can be kept in sets and dictionaries.
    """

    __slots__ = ()

    # NumPy then leaves `array + op` to the reflected method below, which raises.
    __array_ufunc__ = None

    def _why(self) -> str:
        raise NotImplementedError

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(self._why())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __divmod__ = __rdivmod__ = __pow__ = __rpow__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __array__ = _refuse
    __contains__ = __setitem__ = __delitem__ = _refuse
    __iter__: Any = _refuse
    __reversed__: Any = _refuse
    __len__: Any = _refuse
    __getitem__: Any = _refuse
