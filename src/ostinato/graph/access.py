"""How a task uses an array: the markers that stand as annotations."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ostinato.devices.stream import Stream
from ostinato.graph.operand import READ, READ_WRITE, WRITE

__all__ = ["Access", "Read", "ReadWrite", "Write", "annotated_mode", "signature_of"]


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

    Annotations may be text, as with ``from __future__ import annotations``. Text that cannot be resolved, because
    its names were imported for type checkers only, counts by its last word: an access overlooked would be a race.
    """
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    while isinstance(text, str):
        try:
            annotation = eval(text, _globals_of(function), dict(local_names or {}))
        except Exception:
            text = text.strip()
            annotation = Stream if text in _STREAMS else _MARKERS.get(text.rpartition(".")[2], text)
            break
        text = annotation if isinstance(annotation, str) else None
    return (annotation.mode if isinstance(annotation, Access) else 0), annotation


def _globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(function)
    names = getattr(function, "__globals__", None)
    if names is None:
        names = getattr(type(function).__call__, "__globals__", {})
    return dict(names)
