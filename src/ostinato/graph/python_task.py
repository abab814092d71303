"""Python callables, and how they use each of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ostinato.graph.access import Access
from ostinato.graph.body import PythonCall
from ostinato.graph.containers import Container, walk
from ostinato.graph.formal import ACCESS, Formal, by_place
from ostinato.graph.operand import Operand
from ostinato.graph.recordable import Recordable
from ostinato.graph.recorder import Recorder
from ostinato.graph.refusal import PLAIN, is_value
from ostinato.graph.stream import StreamPlace, is_stream
from ostinato.one_line import brief, one_line

__all__ = ["PythonTask", "modes_of", "name_of"]


class PythonTask(Recordable):
    """A Python callable with one access mode for each positional argument, 0 for those that are no arrays.

    The stream of a device is not among these arguments: `stream` says where the callable takes it. `pure` says that it
    does nothing but what its arguments show, so that it may be called to be measured or compared.
    """

    optional: Mapping[str, object] = {}
    """Parameters that declare an access, and have a default that is no array; then a call may leave out the array."""

    __slots__ = (
        "blocking",
        "function",
        "launch_only",
        "modes",
        "modes_at_once",
        "modes_by_name",
        "name",
        "pure",
        "releases_gil",
        "stream",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        modes: tuple[int, ...],
        name: str,
        releases_gil: bool = False,
        blocking: bool = False,
        launch_only: bool = False,
        stream: StreamPlace | None = None,
        pure: bool = True,
    ) -> None:
        self.function = function
        self.modes = modes
        self.name = name
        self.releases_gil = releases_gil
        self.blocking = blocking
        self.launch_only = launch_only
        self.stream = stream
        self.pure = pure
        if blocking and stream is not None:
            raise TypeError(
                f"{one_line(name)}() gets a stream, on which it starts work without waiting: it is not blocking=True"
            )

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[PythonCall, tuple[Operand, ...]]:
        modes = self.modes
        keywords: tuple[str, ...] = ()
        if kwargs or len(args) != len(modes) or self.optional:
            args, keywords, modes = self.complete(args, kwargs)
        packed = False
        values: list[Any] = []
        operands: list[Any] = []
        known = recorder.known
        for value, mode in zip(args, modes, strict=True):
            if mode:
                operand: Operand | Container | None = known[mode].get(id(value))
                if operand is None:
                    operand = recorder.argument(value, mode, self.label, len(values))
                    packed = packed or type(operand) is Container
                operands.append(operand)
                values.append(operand)
            else:
                if type(value) not in PLAIN:
                    value = recorder.plain_value(value, self.label, len(values))
                values.append(value)
        arguments = tuple(values)
        accesses = arguments if len(operands) == len(values) else tuple(operands)
        if self.stream is not None:
            arguments, keywords = self.stream.with_stream(arguments, keywords)
        if packed:
            call = PythonCall.of(self, arguments, keywords)
            return call, tuple(leaf for each in operands for leaf in walk(each) if type(leaf) is Operand)
        return PythonCall(self, arguments, keywords), accesses

    def body_of(self, args: tuple[object, ...], kwargs: Mapping[str, object], known: dict[object, Any]) -> PythonCall:
        modes, keywords, values = self.modes, tuple(kwargs), (*args, *kwargs.values())
        if keywords or len(args) != len(modes):
            modes = self.modes_for(len(args), keywords)
        for place, (value, mode) in enumerate(zip(values, modes, strict=True)):
            given = {leaf.mode for leaf in walk(value) if type(leaf) is Operand} or {0}
            if given != {mode} and not (mode and is_value(value)):  # that of an optional parameter
                raise TypeError(
                    f"{self.label(place)} must be {ACCESS[mode]}, got {brief(value)} from the call recorded"
                )
        if self.stream is not None:
            values, keywords = self.stream.with_stream(values, keywords)
        packed = any(type(value) is Container for value in values)
        return PythonCall.of(self, values, keywords) if packed else PythonCall(self, values, keywords)

    def modes_for(self, count: int, keywords: tuple[str, ...]) -> tuple[int, ...]:
        """Return the modes of a call with so many positional values, and with these keywords."""
        return self.complete((None,) * count, dict.fromkeys(keywords))[2]

    def with_defaults(
        self, args: tuple[object, ...], keywords: tuple[str, ...]
    ) -> tuple[tuple[object, ...], tuple[str, ...]]:
        """Return the values and keywords of a recorded call with those that Python would fill in at the call."""
        return args, keywords

    def formals(self) -> tuple[Formal, ...]:
        return by_place(self.modes, self.label)

    def complete(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[int, ...]]:
        """Return the positional then the keyword values of a call, the keywords, and a mode for each value."""
        if self.stream is not None:
            self.stream.refuse_given(self.name, args, kwargs)
        if kwargs:
            raise TypeError(f"{self.called} takes no keyword arguments, since access= is given by position")
        raise TypeError(f"{self.called} takes {len(self.modes)} arguments by its access=, but {len(args)} were given")

    def label(self, place: int) -> str:
        """Say what the argument at a place is."""
        return f"argument {place + 1} of {self.called}"


def name_of(function: Callable[..., Any]) -> str:
    """Return the name that a callable goes by."""
    return str(getattr(function, "__name__", type(function).__name__))


def modes_of(access: Sequence[object]) -> tuple[int, ...]:
    """Return the modes of ``access=``: an entry that is no access marker is a scalar or a plain object.

    The stream is no argument, and has none.
    """
    return tuple(entry.mode if isinstance(entry, Access) else 0 for entry in access if not is_stream(entry))
