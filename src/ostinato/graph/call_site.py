"""Where in the user's program something was recorded."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import numpy as np

from ostinato.one_line import one_line

__all__ = ["CallSite", "is_of_libraries", "statement_frame", "user_frame"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RUNTIME = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "runtime") + os.sep
_RECORDING = (_HERE, _RUNTIME)  # a task that is given to `ostinato.compile` is called from these
_LIBRARIES = (
    *_RECORDING,
    os.path.join(os.path.dirname(os.path.dirname(_HERE)), "devices") + os.sep,
    os.path.dirname(os.path.abspath(np.__file__)) + os.sep,
)
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class CallSite:
    """A place in a program; the line is looked up only when asked for."""

    __slots__ = ("_code", "_instruction")

    def __init__(self, frame: FrameType) -> None:
        self._code: CodeType = frame.f_code
        self._instruction = frame.f_lasti

    @property
    def filename(self) -> str:
        """Path of the source file, as Python knows it."""
        return self._code.co_filename

    @property
    def line(self) -> int:
        """Line number, from 1."""
        for start, end, line in self._code.co_lines():
            if start <= self._instruction < end and line is not None:
                return line
        return self._code.co_firstlineno

    @property
    def function(self) -> str:
        """Name of the function, with its class."""
        return self._code.co_qualname

    def __str__(self) -> str:
        return one_line(f"{os.path.basename(self.filename)}:{self.line} in {self.function}")

    def __repr__(self) -> str:
        return f"<CallSite {self}>"


def user_frame(frame: FrameType | None = None) -> FrameType:
    """Return the innermost frame, from a given one on, that does not belong to the recording."""
    frame = frame or sys._getframe(1)
    while frame.f_code.co_filename.startswith(_RECORDING) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def statement_frame() -> FrameType:
    """Return the innermost frame that is of no library: that of the user's statement."""
    frame = sys._getframe(1)
    while is_of_libraries(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_of_libraries(code: CodeType) -> bool:
    """Whether code is of this package, of NumPy or of Python's own library."""
    name = code.co_filename
    return name.startswith(_LIBRARIES) or (name.startswith(_STANDARD) and "site-packages" not in name)
