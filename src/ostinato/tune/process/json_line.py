"""Lines of JSON from processes that may write anything."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

__all__ = ["json_object"]

_DEEPEST = 100
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - set(_STEPS))


def json_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if there is anything else, or it is nested more than 100 deep.

    Examples
    --------
    >>> json_object(b'{"ns": [1, 2]}')
    {'ns': [1, 2]}
    >>> json_object(b"[1]"), json_object(b'{"a": 1} 2'), json_object(b"[" * 5000)
    (None, None, None)
    """
    line = line.strip()
    if not line.startswith(b"{") or _depth(line) > _DEEPEST:
        return None
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):  # whatever the recursion limit is
        return None
    return found if isinstance(found, dict) else None


def _depth(line: bytes) -> int:
    """Return how deep brackets are nested: decoding would recurse as deep, into the end of the stack."""
    if line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return 0
    brackets = _STRING.sub(b"", line).translate(None, _NO_BRACKETS)
    return max(accumulate(_STEPS[bracket] for bracket in brackets), default=0)
