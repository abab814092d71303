"""Values given with each run, and the step number."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ostinato.errors import GraphError
from ostinato.graph.no_value import NoValue
from ostinato.one_line import brief

__all__ = ["REQUIRED", "STEP", "Combine", "FreeParam", "Param", "Params", "Step", "check_param"]

Combine: TypeAlias = Callable[[Any, Any], Any]


class _Required:
    __slots__ = ()

    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class Step(NoValue):
    """The number of the step, as an argument of a recorded call; there is one, `ostinato.step`."""

    __slots__ = ()

    def _why(self) -> str:
        return "ostinato.step has no value while recording: pass it to a task, which gets the number of the step"

    def __repr__(self) -> str:
        return "ostinato.step"

    def __reduce__(self) -> str:
        return "STEP"


STEP = Step()


class Param(NoValue):
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

    def _why(self) -> str:
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
