"""JSON without the package `json`, whose regular expressions take longer to import than all of the worker."""

from __future__ import annotations

from _json import encode_basestring_ascii as quoted
from _json import make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["loads", "quoted"]


class _Context:
    """What `json.JSONDecoder` is to the scanner that it uses."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    array_hook = None  # of Pythons to come


_scan = make_scanner(_Context)  # type: ignore[arg-type]  # typeshed has the scanner's type for the context's


def loads(text: str) -> Any:
    """Return the value that a text is the JSON of, without spaces around it."""
    return _scan(text, 0)[0]
