"""What an op does, by kind: plain values for the passes and the runtime to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ostinato.graph.native import NativeTask
    from ostinato.graph.operand import Operand

__all__ = ["Body", "Copy", "Fill", "NativeCall", "PythonCall", "Until"]


class PythonCall:
    """A call of a Python function.

    `args` are the positional, then the keyword values, in the order of a vectorcall; `keywords` names the latter.
    Each is an `Operand`, a `Param`, `STEP`, or a plain object that is passed as it is.
    """

    __slots__ = ("args", "function", "keywords", "releases_gil")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[object, ...],
        keywords: tuple[str, ...] = (),
        releases_gil: bool = False,
    ) -> None:
        self.function = function
        self.args = args
        self.keywords = keywords
        self.releases_gil = releases_gil


class NativeCall:
    """A call of a C function; each of `args` is an `Operand`, or for a scalar a float, an int, a `Param` or `STEP`."""

    __slots__ = ("args", "task")

    def __init__(self, task: NativeTask, args: tuple[object, ...]) -> None:
        self.task = task
        self.args = args


class Copy:
    """A copy of `source` into `target`, combined by `reduce`, gathered by `indices`, scattered by `scatter`."""

    __slots__ = ("indices", "reduce", "scatter", "source", "target")

    def __init__(
        self,
        source: Operand,
        target: Operand,
        reduce: str | None = None,
        indices: Operand | None = None,
        scatter: Operand | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.reduce = reduce
        self.indices = indices
        self.scatter = scatter


class Fill:
    """An assignment to all of `target`: of a `Param`, or of an array of its dtype that broadcasts to its shape."""

    __slots__ = ("target", "value")

    def __init__(self, target: Operand, value: object) -> None:
        self.target = target
        self.value = value


class Until:
    """A look at `flag` in every `every`-th step: where it is nonzero, that step is the run's last."""

    __slots__ = ("every", "flag")

    def __init__(self, flag: Operand, every: int) -> None:
        self.flag = flag
        self.every = every


Body: TypeAlias = PythonCall | NativeCall | Copy | Fill | Until
