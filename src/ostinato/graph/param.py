"""Values that change from run to run or from step to step, and values that there are not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ostinato.errors import GraphError
from ostinato.text import brief


class NoValue:
    """Base of what has no value while a graph is recorded: every use as a value raises `TypeError`.

    Two are equal if they are one object, so that they can be kept in sets and dictionaries.
    """

    __slots__ = ()

    # NumPy then leaves `array + op` to the reflected method below, which raises.
    __array_ufunc__ = None

    def why_unusable(self) -> str:
        raise NotImplementedError

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(self.why_unusable())

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


Combine: TypeAlias = Callable[[Any, Any], Any]


class _Required:
    __slots__ = ()

    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class Later(NoValue):
    """Base of values that exist only while a program runs.

    A comparison with a value would be False while recording, whatever the value is in a run, and so fix one branch of
    the user's ``if`` for good. It raises. Two of these are equal if they are one object.
    """

    __slots__ = ()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, NoValue) else self._refuse()

    def __ne__(self, other: object) -> bool:
        return not self == other


class Step(Later):
    """The number of the step, as an argument of a recorded call; there is one, `ostinato.step`."""

    __slots__ = ()

    def why_unusable(self) -> str:
        return "ostinato.step has no value while recording: pass it to a task, which gets the number of the step"

    def __repr__(self) -> str:
        return "ostinato.step"

    def __reduce__(self) -> str:
        return "STEP"


STEP = Step()


class Param(Later):
    """A named value that is given with each run.

    Attributes
    ----------
    name
        Its name: the keyword in ``replay`` and ``submit``.
    default
        What counts when a run gives none; `REQUIRED` where each run must.
    combine
        If not None, tasks get ``combine(default, given)``.
    """

    __slots__ = ("combine", "default", "name")

    def __init__(self, name: str, default: object = REQUIRED, combine: Combine | None = None) -> None:
        self.name = name
        self.default = default
        self.combine = combine

    def __repr__(self) -> str:
        return f"<Param {self.name!r} default={self.default!r}>"

    def value_in(self, given: Mapping[str, Any]) -> Any:
        """Return what tasks get in a run that gives these values by name; `REQUIRED` where it lacks one."""
        if self.name not in given:
            return self.default
        value = given[self.name]
        return value if self.combine is None or self.default is REQUIRED else self.combine(self.default, value)

    def why_unusable(self) -> str:
        return f"parameter {self.name!r} has no value while recording: it is given with each run; pass it to a task"


class FreeParam(Param):
    """A parameter that was made outside of any graph: it becomes one of each graph that it is used in."""

    __slots__ = ()


class Params(dict[str, Param]):
    """The parameters of one graph by name: every mention of a name is the same parameter."""

    def mention(self, name: str, default: object, combine: Combine | None) -> Param:
        """Return the parameter `name`, made at its first mention, and learn what this mention says of it."""
        check_param(name, combine)
        param = self.get(name)
        if param is None:
            param = self[name] = Param(name, default, combine)
            return param
        if default is not REQUIRED and param.default is not REQUIRED and not _same(default, param.default):
            raise GraphError(
                f"parameter {name!r} has two defaults, {param.default!r} and {default!r}; give it in one place"
            )
        if combine is not None and param.combine is not None and combine is not param.combine:
            raise GraphError(f"parameter {name!r} has two different combine= functions; give it in one place")
        if param.default is REQUIRED:
            param.default = default
        if param.combine is None:
            param.combine = combine
        return param


def check_param(name: object, combine: object) -> None:
    """Raise unless a parameter can be made of this."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a parameter must be a str, got {brief(name)}")
    if not name:
        raise ValueError("the name of a parameter must not be empty")
    if combine is not None and not callable(combine):
        raise TypeError(f"combine of parameter {name!r} must be a function of two arguments, got {combine!r}")


def _same(a: object, b: object) -> bool:
    """Whether two defaults are the same to the last bit; unlike ``==`` it holds for NaN, and tells 1 from 1.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex) and isinstance(b, complex):
        return _same(a.real, b.real) and _same(a.imag, b.imag)
    if isinstance(a, np.ndarray | np.generic) and isinstance(b, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and not a.dtype.hasobject and a.tobytes() == b.tobytes()
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    try:
        return bool(a == b)
    except Exception:
        return False


_A = {int: "an int", float: "a float"}

_WHOLE = (int, np.integer, np.bool_)
_REAL = (float, np.floating, *_WHOLE)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def as_scalar(value: Any, kind: type, label: str) -> float | int:
    """Return a value as the Python float or int that goes to C.

    Raises `TypeError` if it is not of the kind; an int or a bool is a float too, and a bool an int. Raises
    `OverflowError` if it has no 64-bit representation.
    """
    if kind is float:
        if isinstance(value, _REAL):
            return float(value)
    elif isinstance(value, _WHOLE):
        number = int(value)
        if not _INT64_MIN <= number <= _INT64_MAX:
            raise OverflowError(f"{label} must fit 64 bits, got {number}")
        return number
    raise TypeError(f"{label} must be {_A[kind]}, got {value!r}")


def exact_scalar(value: Any, kind: type, label: str) -> float | int:
    """Do as `as_scalar`, and raise `OverflowError` if the result is not the same number."""
    scalar = as_scalar(value, kind, label)
    if scalar != value and scalar == scalar:
        raise OverflowError(f"{label} must be a number that {_A[kind]} holds exactly, got {value!r}")
    return scalar


def check_default(value: Param | Step, kind: type, label: str) -> None:
    """Raise `TypeError` if a parameter's default, or the step number, is not of a kind."""
    if isinstance(value, Step):
        if kind is float:
            raise TypeError(f"{label} must be a float, got the step number, an int: declare it int")
    elif value.default is not REQUIRED and value.combine is None:
        as_scalar(value.default, kind, f"{label}, the default of parameter {value.name!r},")


class Converted(Param):
    """The parameter `of`, its values made of a `kind`, float or int, as for a native task that declares it so."""

    __slots__ = ("kind", "of")

    def __init__(self, of: Param, kind: type) -> None:
        known = of.default is not REQUIRED and of.combine is None
        default = as_scalar(of.default, kind, f"parameter {of.name!r}") if known else of.default
        super().__init__(of.name, default, of.combine)
        self.of = of
        self.kind = kind

    def value_in(self, given: Mapping[str, Any]) -> Any:
        value = self.of.value_in(given)
        return value if value is REQUIRED else as_scalar(value, self.kind, f"parameter {self.name!r}")
