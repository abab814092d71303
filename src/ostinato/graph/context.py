"""What is being recorded in this thread: the graph, the line, and the guard of the arrays."""

from __future__ import annotations

import os
import sys
import threading
from contextvars import ContextVar
from itertools import chain
from threading import get_ident
from types import CodeType, FrameType
from typing import TYPE_CHECKING

import numpy as np

from ostinato._core import CallRecorder, make_writable, serving
from ostinato.errors import GraphError
from ostinato.graph.arrays import Array
from ostinato.text import one_line

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
_API = os.path.join(_PACKAGE, "api.py")
_RECORDING = (  # with what calls a task that is given to `compile`
    _HERE,
    os.path.join(_PACKAGE, "ranks") + os.sep,
    os.path.join(_PACKAGE, "runtime") + os.sep,
    _API,
)
_LIBRARIES = (
    *_RECORDING,
    os.path.join(_PACKAGE, "devices") + os.sep,
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


_lock = threading.RLock()
_held: dict[int, int] = {}  # id of each array that a guard made read-only -> how many guards hold it


class Guard:
    """The arrays that one capture made read-only.

    Attributes
    ----------
    arrays
        By id, in the order in which they can be made writable again.
    views
        Views of those that were read-only from birth, or were made so when they were recorded.
    """

    __slots__ = ("arrays", "views")

    def __init__(self) -> None:
        self.arrays: dict[int, Array] = {}
        self.views: list[Array] = []

    @property
    def holds_anything(self) -> bool:
        """Whether some array is read-only because of this guard."""
        return bool(self.arrays)

    def holds(self, array: Array) -> bool:
        """Whether an array is read-only because of this guard."""
        return id(array) in self.arrays

    def hold(self, array: Array) -> bool:
        """Make an array and its bases read-only; return whether it was writable, but for guards."""
        if id(array) in self.arrays:
            return True
        if not array.flags.writeable and id(array.base) in self.arrays:
            if _repeats(array):
                return False
            self.views.append(array)
            return True
        with _lock:
            if not array.flags.writeable and not _read_only_by_guard(array):
                return False
            base = array.base
            if isinstance(base, np.ndarray):
                self._hold_bases(base)
            if not array.flags.writeable or _can_be_given_back(array):
                self._add(array)
                array.flags.writeable = False
            return True

    def release(self) -> None:
        """Make everything as it was; safe to call again."""
        with _lock:
            for key in self.arrays:
                if _held[key] == 1:
                    del _held[key]
                else:
                    _held[key] -= 1
            # But for arrays whose base the user made read-only meanwhile.
            make_writable(chain(self.arrays.values(), self.views))
            self.arrays = {}
            self.views = []

    def _hold_bases(self, array: Array) -> None:
        if id(array) in self.arrays:
            return
        base = array.base
        if isinstance(base, np.ndarray):
            self._hold_bases(base)
        if (array.flags.writeable and _can_be_given_back(array)) or id(array) in _held:
            self._add(array)
            array.flags.writeable = False

    def _add(self, array: Array) -> None:
        self.arrays[id(array)] = array
        _held[id(array)] = _held.get(id(array), 0) + 1


def is_writable(array: Array) -> bool:
    """Whether an array is writable, but for guards."""
    with _lock:
        return array.flags.writeable or _read_only_by_guard(array)


def writable_view(array: Array) -> Array:
    """Return a view that is writable if the array is, but for guards, and that no guard will make read-only."""
    with _lock:
        view = array.view(np.ndarray)
        if not view.flags.writeable and _read_only_by_guard(array):
            root = _outermost_held(array)
            root.flags.writeable = True
            try:
                view.flags.writeable = True
            finally:
                root.flags.writeable = False
        return view


def _read_only_by_guard(array: Array) -> bool:
    """Whether a read-only array is so because a guard holds it, or held its base when it was made."""
    if id(array) in _held:
        return True
    base = array.base
    while isinstance(base, np.ndarray):
        if id(base) in _held:
            return not _repeats(array)
        base = base.base
    return False


def _repeats(array: Array) -> bool:
    """Whether a view repeats elements, as `numpy.broadcast_to` makes them, read-only on their own account."""
    strides = array.strides
    return 0 in strides and any(stride == 0 and length > 1 for stride, length in zip(strides, array.shape, strict=True))


def _outermost_held(array: Array) -> Array:
    outermost = array
    link: object = array
    while isinstance(link, np.ndarray):
        if id(link) in _held:
            outermost = link
        link = link.base
    return outermost


def _can_be_given_back(array: Array) -> bool:
    """Whether NumPy will let the flag of a writable array be set again, its bases being writable or held."""
    link: object = array
    while isinstance(link, np.ndarray):
        if link is not array and (link.flags.writeable or id(link) in _held):
            return True
        if link.base is None or link.flags.owndata:
            return link is array
        link = link.base
    try:
        memory = memoryview(link)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not memory.readonly and memory.c_contiguous


class Recording:
    """An open capture, and whose it is.

    Threads and asyncio tasks may inherit the context of their maker, and with it this value, so it says to which of
    them it belongs. A thread that captures may also replay a program: calls of that program's tasks are not the
    capture's.

    `calls` records common calls in the core; if it is None, Python records all calls.
    """

    __slots__ = ("asyncio_task", "calls", "ended", "function", "graph", "guard", "serving", "thread")

    def __init__(
        self, graph: Graph, guard: Guard | None, function: str | None = None, calls: CallRecorder | None = None
    ) -> None:
        self.graph = graph
        self.guard = guard
        self.function = function
        self.ended = False
        self.thread = get_ident()
        self.serving = serving()
        self.asyncio_task = _asyncio_task()
        self.calls = calls if self.asyncio_task is None else None


recording: ContextVar[Recording | None] = ContextVar("ostinato.recording", default=None)


functions: list[Recording] = []
"""The recordings of functions that are open, of all threads."""


def refuse_to_run(what: str) -> None:
    """Raise if this thread is recording a function: what it runs would run once, now."""
    value = recording.get()
    if value is not None and value.function is not None and _is_ours(value):
        raise GraphError(
            f"{CallSite(user_frame())}: {what} would run once, now, and not in every step, since {value.function}() is "
            f"being recorded. Call the tasks themselves in {value.function}(), or call {what} outside of it"
        )


def current() -> Graph | None:
    """Return the graph that calls of this thread or asyncio task are recorded in."""
    value = recording.get()
    # As in `_is_ours`: every call of a task comes here.
    if value is None or value.thread != get_ident() or value.ended or value.serving != serving():
        return None
    return value.graph if value.asyncio_task is None or value.asyncio_task is _asyncio_task() else None


def current_guard() -> Guard | None:
    """Return the guard of the capture that is open in this thread or asyncio task."""
    value = recording.get()
    return value.guard if value is not None and _is_ours(value) else None


def _is_ours(value: Recording) -> bool:
    if value.thread != get_ident() or value.ended or value.serving != serving():
        return False
    return value.asyncio_task is None or value.asyncio_task is _asyncio_task()


def _asyncio_task() -> object:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
