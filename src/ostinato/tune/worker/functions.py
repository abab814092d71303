"""Functions by their names, and what to say of what they raise."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


_found: dict[str, Any] = {}
_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep  # all of the package
_LONGEST = 2000


def found(name: str) -> Any:
    """Return the function named ``"package.module:function"``, importing its module."""
    function = _found.get(name)
    if function is None:
        module, _, path = name.partition(":")
        __import__(module)
        function = sys.modules[module]
        for attribute in path.split("."):
            function = getattr(function, attribute)
        _found[name] = function
    return function


def described(error: BaseException) -> str:
    """Return an exception in a line: its type, what it says, and the last line of the candidate's own that it crossed.

    Never raises, whatever the exception's ``__str__`` does.
    """
    try:
        text = str(error)
    except BaseException as second:
        text = f"(its __str__ raised {type(second).__name__})"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = _last_line(error.__traceback__)
    return f"{said} ({where})" if where else said


def _last_line(traceback: TracebackType | None) -> str:
    last = None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((_OWN, "<frozen")):
            last = traceback
        traceback = traceback.tb_next
    if last is None:
        return ""
    code = last.tb_frame.f_code
    where = f"{code.co_filename}, line {last.tb_lineno}, in {code.co_name}"
    import linecache

    try:
        line = linecache.getline(code.co_filename, last.tb_lineno).strip()
    except Exception:
        return where
    return f"{where}: {line[:200]}" if line else where
