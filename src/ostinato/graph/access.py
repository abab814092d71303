"""What tasks declare of their parameters: accesses, streams, values."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from types import CellType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from ostinato.devices.device import Stream
from ostinato.graph.arrays import READ, READ_WRITE, WRITE
from ostinato.graph.param import NoValue
from ostinato.text import one_line

ACCESS = ("no array", "ost.Read", "ost.Write", "ost.ReadWrite")
"""By mode, what a parameter is, for messages."""


class Formal(NamedTuple):
    """A parameter of a task."""

    name: str
    label: str
    """What it is, for messages."""
    mode: int
    """Its access; 0 for what is no array."""
    kind: Any
    """A kind of `inspect.Parameter`."""
    default: object = Parameter.empty

    @property
    def parameter(self) -> Parameter:
        """The same for a signature."""
        return Parameter(self.name, self.kind, default=self.default)


def plain(parameters: Iterable[Parameter]) -> tuple[tuple[str, Any], ...]:
    """Return names and defaults of parameters; none unless all are given by position or by name."""
    found = tuple(parameters)
    if any(each.kind is not Parameter.POSITIONAL_OR_KEYWORD for each in found):
        return ()
    return tuple((each.name, each.default) for each in found)


def fill_in(
    parameters: Sequence[tuple[str, Any]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return all values of a call, in the order of `plain` parameters; None where something is wrong with it.

    Binding to the signature gives the same, and takes many times as long.
    """
    values, used = list(args), 0
    for name, default in parameters[len(args) :]:
        if name in kwargs:
            values.append(kwargs[name])
            used += 1
        elif default is not Parameter.empty:
            values.append(default)
    return tuple(values) if len(values) == len(parameters) and used == len(kwargs) else None


def make_formals(modes: Sequence[int], label: Callable[[int], str]) -> tuple[Formal, ...]:
    """Return parameters that have no names."""
    return tuple(
        Formal(f"argument_{index + 1}", label(index), mode, Parameter.POSITIONAL_ONLY)
        for index, mode in enumerate(modes)
    )


class _TheStream(NoValue):
    """Stands in recorded calls where the stream goes; there is one, `STREAM`."""

    __slots__ = ()

    def why_unusable(self) -> str:
        return "the stream of a task has no value while recording"

    def __repr__(self) -> str:
        return "STREAM"

    def __reduce__(self) -> str:
        return "STREAM"


STREAM = _TheStream()

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class StreamParameter(NamedTuple):
    """Where a task takes its stream."""

    position: int
    """Among its positional arguments; -1 where it is passed by name only."""
    name: str
    """The name of the parameter; empty where it has none."""

    def with_stream(
        self, values: tuple[Any, ...], keywords: tuple[str, ...], stream: object = STREAM
    ) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Return the positional, then the keyword values of a call with the stream among them, and the keywords."""
        at = self.position
        if 0 <= at <= len(values) - len(keywords):
            return (*values[:at], stream, *values[at:]), keywords
        return (*values, stream), (*keywords, self.name)

    def refuse_given(self, task: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise if a call gives the stream."""
        if (self.name and self.name in kwargs) or any(isinstance(value, Stream) for value in args):
            which = f"parameter {self.name!r}" if self.name else f"argument {self.position + 1}"
            raise TypeError(
                f"{task}() is called without a stream: {which} is the stream of the device that the task runs on, "
                "which it gets by itself"
            )


def is_stream(annotation: object) -> bool:
    """Whether an annotation, or an entry of ``access=``, stands for the stream."""
    return isinstance(annotation, type) and issubclass(annotation, Stream)


def stream_parameter(
    task: str, signature: Signature, annotations: Mapping[str, object]
) -> tuple[Parameter, StreamParameter] | tuple[None, None]:
    """Return the parameter of a function that receives the stream, and its position; None twice if there is none."""
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
    names = [each.name for each in signature.parameters.values() if each.kind in _POSITIONAL]
    return found, StreamParameter(names.index(found.name) if found.kind in _POSITIONAL else -1, found.name)


def find_stream(task: str, access: Sequence[object]) -> StreamParameter | None:
    """Return where ``access=`` has the stream; None if it has none."""
    indices = [index for index, entry in enumerate(access) if is_stream(entry)]
    if len(indices) > 1:
        raise TypeError(f"{task}() must have one entry ost.Stream, got entries {indices[0] + 1} and {indices[1] + 1}")
    return StreamParameter(indices[0], "") if indices else None


def split(args: tuple[object, ...], keywords: tuple[str, ...]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the positional and the keyword values of a recorded call, as the call gave them: without the stream."""
    positional = len(args) - len(keywords)
    named = {key: value for key, value in zip(keywords, args[positional:], strict=True) if value is not STREAM}
    return tuple(value for value in args[:positional] if value is not STREAM), named


class Access:
    """An access mode, as the annotation of a parameter or an entry of ``access=``."""

    __slots__ = ("mode", "name")

    def __init__(self, name: str, mode: int) -> None:
        self.name = name
        self.mode = mode

    def __repr__(self) -> str:
        return f"ostinato.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # there is one of each, in copies and pickles too


if TYPE_CHECKING:
    Read = Any
    Write = Any
    ReadWrite = Any
else:
    Read = Access("Read", READ)
    Write = Access("Write", WRITE)
    ReadWrite = Access("ReadWrite", READ_WRITE)

_MARKERS: dict[str, object] = {"Read": Read, "Write": Write, "ReadWrite": ReadWrite}
_WORDS = re.compile(r"\b(?:Read|Write|ReadWrite)\b")
_STREAMS = ("Stream", "ost.Stream", "ostinato.Stream")  # other libraries have streams, too


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with annotations that cannot be resolved left as they are."""
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except ValueError as error:
        raise TypeError(
            f"the parameters of {function!r} are not known to Python; wrap it in a function with annotations, "
            "or use Graph.task(fn, ..., access=(...))"
        ) from error


def variables_of(function: Any, global_names: Iterable[str]) -> list[tuple[str, Callable[[], Any]]]:
    """Return the variables of enclosing functions that a function uses, and the globals of these names.

    Each is a name, and a function that returns the present value; None if the variable has none yet.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = [(name, functools.partial(_cell_content, cell)) for name, cell in cells]
    return [*found, *((name, functools.partial(function.__globals__.get, name)) for name in global_names)]


def _cell_content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


_NO_PLAIN_FUNCTIONS = (
    (inspect.iscoroutinefunction, "an async function: a call of it only makes a coroutine"),
    (inspect.isasyncgenfunction, "an async generator: a call of it does nothing yet"),
    (inspect.isgeneratorfunction, "a generator, with `yield` in it: a call of it does nothing yet"),
)


def check_plain(what: str, function: Callable[..., Any]) -> None:
    """Raise `TypeError` if a call of a function only returns what would do the work."""
    for is_one, why in _NO_PLAIN_FUNCTIONS:
        if is_one(function) or is_one(getattr(type(function), "__call__", None)):  # noqa: B004
            raise TypeError(
                f"{what} must be a plain function, which does its work when called, got {function!r}, {why}"
            )


def annotated_mode(
    annotation: object, function: Callable[..., Any], local_names: Mapping[str, object] | None = None
) -> tuple[int, object]:
    """Return the access mode that an annotation declares, 0 for none, and the annotation itself, resolved.

    The access is the annotation itself, or stands in ``Annotated[...]``. Annotations may be text. Text that cannot be
    resolved, because its names were imported for type checkers only, counts by the access that it names: an access
    overlooked would be a race.
    """
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    while isinstance(text, str):
        try:
            annotation = eval(text, _globals_of(function), dict(local_names or {}))
        except Exception:
            text = text.strip()
            words = set(_WORDS.findall(text))
            annotation = Stream if text in _STREAMS else _MARKERS[words.pop()] if len(words) == 1 else text
            break
        text = annotation if isinstance(annotation, str) else None
    found = set(_accesses_in(annotation))
    if len(found) > 1:
        raise TypeError(f"an annotation must name one access, got {annotation} in {function!r}")
    return (found.pop().mode if found else 0), annotation


def declared_modes(name: str, access: Mapping[str, Access], annotated: Mapping[str, int]) -> dict[str, int]:
    """Return the access mode of each parameter of a task, by its annotations and by ``access=``.

    Raises `TypeError` where `access` names no parameter, or no access, or contradicts an annotation.
    """
    modes = dict(annotated)
    for parameter, entry in access.items():
        if parameter not in modes:
            known = ", ".join(map(repr, modes)) or "none"
            raise TypeError(f"access= of {one_line(name)}() must name its parameters ({known}), got {parameter!r}")
        if not isinstance(entry, Access):
            raise TypeError(
                f"access= of {one_line(name)}() must be ost.Read, ost.Write or ost.ReadWrite for {parameter!r}, "
                f"got {entry!r}"
            )
        if modes[parameter] not in (0, entry.mode):
            raise TypeError(
                f"parameter {parameter!r} of {one_line(name)}() must have one access, got {entry!r} in access= and "
                "another as its annotation"
            )
        modes[parameter] = entry.mode
    return modes


def _accesses_in(annotation: object) -> Iterator[Access]:
    """The accesses that an annotation names: itself, or within ``Annotated``, also where that is one of a union."""
    if isinstance(annotation, Access):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from (each for each in annotation.__metadata__ if isinstance(each, Access))  # type: ignore[attr-defined]
    else:
        for each in get_args(annotation):
            if get_origin(each) is Annotated:
                yield from _accesses_in(each)


def _globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(function)
    names = getattr(function, "__globals__", None)
    if names is None:
        names = getattr(type(function).__call__, "__globals__", {})
    return dict(names)
