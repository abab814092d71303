"""How a task uses an array: the markers that stand as annotations."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from ostinato.devices.stream import Stream
from ostinato.graph.operand import READ, READ_WRITE, WRITE
from ostinato.one_line import one_line

__all__ = ["Access", "Read", "ReadWrite", "Write", "annotated_mode", "declared_modes", "signature_of"]


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


def annotated_mode(
    annotation: object, function: Callable[..., Any], local_names: Mapping[str, object] | None = None
) -> tuple[int, object]:
    """Return the access mode that an annotation declares, 0 for none, and the annotation itself, resolved.

    The access is the annotation itself, or stands in ``Annotated[...]``. Annotations may be text, as with
    ``from __future__ import annotations``. Text that cannot be resolved, because its names were imported for type
    checkers only, counts by the access that it names: an access overlooked would be a race.
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

    Parameters
    ----------
    name
        The name of the task, for messages.
    access
        What `task` was given.
    annotated
        The modes that the annotations declare, by parameter.

    Raises
    ------
    TypeError
        `access` names no parameter, or no access, or contradicts an annotation.
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
