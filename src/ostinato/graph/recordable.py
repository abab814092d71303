"""What a graph can record a call of: the base of all tasks, and what they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from ostinato.errors import TracerError
from ostinato.graph.body import Body
from ostinato.graph.formal import Formal
from ostinato.graph.no_value import NoValue
from ostinato.graph.operand import Operand
from ostinato.graph.recorder import Recorder
from ostinato.graph.ring import Ring
from ostinato.graph.tracer import Tracer
from ostinato.one_line import one_line

if TYPE_CHECKING:
    from ostinato.graph.variant import Variant, Variants

__all__ = ["Recordable", "importable_name", "refuse_placeholder"]

_PUBLIC = frozenset(("blocking", "launch_only", "name", "pure", "releases_gil", "variant", "variants"))

F = TypeVar("F", bound=Callable[..., Any])


class Recordable:
    """A task of any kind.

    Attributes
    ----------
    name
        The name in messages and traces.
    takes_names
        Whether arguments may be passed by name.
    """

    __slots__ = ("_variants",)

    name: str
    takes_names: ClassVar[bool] = True
    _variants: Variants  # made when somebody asks; see variant.py

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Body, tuple[Operand, ...]]:
        """Turn the arguments of a call into what an op records."""
        raise NotImplementedError

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> Body:
        """Return what an op records of a call whose arguments another op has recorded.

        `known` is filled with what calls with the same arguments can share.

        Raises
        ------
        TypeError, ValueError, OverflowError, GraphError
            It cannot take these arguments.
        """
        raise NotImplementedError

    def formals(self) -> tuple[Formal, ...]:
        """Return what parameters it declares."""
        raise NotImplementedError

    def check_config(self, name: str, value: object) -> None:
        """Raise unless a value of a configuration can be an argument."""

    @property
    def called(self) -> str:
        """What messages call it: ``"relax()"``."""
        return f"{one_line(self.name)}()"

    @property
    def source(self) -> Recordable:
        """The task as the user has it: of what was compiled from a kernel, the kernel."""
        return self

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants declared, in the order in which they were; the task itself is not among them."""
        from ostinato.graph.variant import variants_declared

        return variants_declared(self)

    @overload
    def variant(self, function: F, /) -> F: ...
    @overload
    def variant(
        self, on: str | None = None, name: str | None = None, config: Mapping[str, Any] | None = None
    ) -> Callable[[F], F]: ...
    def variant(self, on: Any = None, name: str | None = None, config: Mapping[str, Any] | None = None) -> Any:
        """Declare another implementation of this task: a function, or a task of any kind.

        `Graph.tune` measures it where it has the same results as the task, and programs compiled afterwards run
        whichever is fastest. It uses its arguments as the task does, position by position: annotate them alike. It is
        returned as it was given, so that one function can be declared with one configuration after the other. What is
        said of the task, such as `releases_gil`, holds for a function, too; declare a task of it to say otherwise.

        Parameters
        ----------
        on
            The kind of processor that it is for, such as ``"cpu"``; by default any.
        name
            The name in reports; by default the function's, with its kind before it if that is the task's own.
        config
            The configuration, of plain values. Those named as parameters that the function has beyond the task's are
            passed to it; the others only describe it.

        Raises
        ------
        TypeError
            It does not take the task's arguments, or uses one in another way.
        ValueError
            The task has a variant of this name and configuration, or `on` is no kind of processor.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> @ost.task
        ... def total(src: ost.Read, dst: ost.Write):
        ...     dst[0] = sum(src)
        >>> @total.variant(config={"block": 4})
        ... @total.variant(config={"block": 8})
        ... def by_blocks(src: ost.Read, dst: ost.Write, *, block):
        ...     dst[0] = sum(src[at : at + block].sum() for at in range(0, len(src), block))
        >>> [variant.label for variant in total.variants]
        ['by_blocks(block=8)', 'by_blocks(block=4)']
        """
        from ostinato.graph.declaration import Declaration

        if isinstance(on, Recordable) or (callable(on) and not isinstance(on, type)):  # @relax.variant
            Declaration(self.source, None, name, config).add(on, sys._getframe(1).f_locals)
            return on
        declaration = Declaration(self.source, on, name, config)

        def decorate(function: F) -> F:
            declaration.add(function, sys._getframe(1).f_locals)
            return function

        return decorate

    def __dir__(self) -> list[str]:  # for completion: what recording uses is not for users
        return [name for name in super().__dir__() if name.startswith("_") or name in _PUBLIC]

    def __copy__(self) -> Recordable:
        return self  # like functions

    def __deepcopy__(self, memo: dict[int, Any]) -> Recordable:
        return self


def importable_name(task: Recordable) -> str:
    """Return the name by which pickle finds a task in its module."""
    name = getattr(task, "__qualname__", None)
    if not isinstance(name, str):
        raise TypeError(f"{task!r} cannot be pickled: what it calls has no name")
    return name


def refuse_placeholder(value: object, name: str) -> None:
    """Raise if an argument of a call that runs at once only has a meaning in a recorded one."""
    if isinstance(value, NoValue | Ring):
        kind = TracerError if isinstance(value, Tracer) else TypeError
        raise kind(
            f"{one_line(name)}() runs at once here, outside a capture, where {value!r} has no value; "
            "call it in a function that is given to ostinato.compile, or inside `with ostinato.capture():`"
        )
