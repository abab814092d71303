"""The parameter that receives the stream of a device: calls leave it out, and what they record has its place."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, NamedTuple

from ostinato.devices.stream import Stream
from ostinato.graph.no_value import NoValue

__all__ = ["STREAM", "StreamPlace", "is_stream", "only_place", "split", "stream_parameter"]


class _TheStream(NoValue):
    """Stands in recorded calls where the stream goes; there is one, `STREAM`."""

    __slots__ = ()

    def _why(self) -> str:
        return "the stream of a task has no value while recording"

    def __repr__(self) -> str:
        return "STREAM"

    def __reduce__(self) -> str:
        return "STREAM"


STREAM = _TheStream()

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class StreamPlace(NamedTuple):
    """Where a task takes its stream."""

    place: int
    """Among its positional arguments; -1 where it is passed by name only."""
    name: str
    """The name of the parameter; empty where it has none."""

    def with_stream(
        self, values: tuple[Any, ...], keywords: tuple[str, ...], stream: object = STREAM
    ) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Return the positional, then the keyword values of a call with the stream among them, and the keywords."""
        place = self.place
        if 0 <= place <= len(values) - len(keywords):
            return (*values[:place], stream, *values[place:]), keywords
        return (*values, stream), (*keywords, self.name)

    def refuse_given(self, task: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise if a call gives the stream."""
        if (self.name and self.name in kwargs) or any(isinstance(value, Stream) for value in args):
            which = f"parameter {self.name!r}" if self.name else f"argument {self.place + 1}"
            raise TypeError(
                f"{task}() is called without a stream: {which} is the stream of the device that the task runs on, "
                "which it gets by itself"
            )


def is_stream(annotation: object) -> bool:
    """Whether an annotation, or an entry of ``access=``, stands for the stream."""
    return isinstance(annotation, type) and issubclass(annotation, Stream)


def stream_parameter(
    task: str, signature: Signature, annotations: Mapping[str, object]
) -> tuple[Parameter, StreamPlace] | tuple[None, None]:
    """Return the parameter of a function that receives the stream, and its place; None twice if there is none."""
    found: Parameter | None = None
    for each in signature.parameters.values():
        annotation = annotations[each.name]
        if not is_stream(annotation):
            if any(map(is_stream, typing.get_args(annotation))):
                raise TypeError(
                    f"parameter {each.name!r} of {task}() is annotated {annotation}; one that receives the stream is "
                    "annotated ost.Stream and nothing else: it always gets one"
                )
            continue
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise TypeError(f"{str(each).partition(':')[0]} of {task}() cannot be ost.Stream: a task gets one stream")
        if each.default is not Parameter.empty:
            raise TypeError(f"parameter {each.name!r} of {task}() is the stream, and so always given: no default")
        if found is not None:
            raise TypeError(
                f"{task}() must have one parameter annotated ost.Stream, got {found.name!r} and {each.name!r}"
            )
        found = each
    if found is None:
        return None, None
    places = [each.name for each in signature.parameters.values() if each.kind in _BY_PLACE]
    return found, StreamPlace(places.index(found.name) if found.kind in _BY_PLACE else -1, found.name)


def only_place(task: str, access: Sequence[object]) -> StreamPlace | None:
    """Return where ``access=`` has the stream; None if it has none."""
    places = [place for place, entry in enumerate(access) if is_stream(entry)]
    if len(places) > 1:
        raise TypeError(f"{task}() must have one entry ost.Stream, got entries {places[0] + 1} and {places[1] + 1}")
    return StreamPlace(places[0], "") if places else None


def split(args: tuple[object, ...], keywords: tuple[str, ...]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the positional and the keyword values of a recorded call, as the call gave them: without the stream."""
    positional = len(args) - len(keywords)
    named = {key: value for key, value in zip(keywords, args[positional:], strict=True) if value is not STREAM}
    return tuple(value for value in args[:positional] if value is not STREAM), named
