"""Recording the task calls of a block."""

from __future__ import annotations

import gc
from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import Any

from ostinato.errors import GraphError
from ostinato.graph.context import Recording, current, recording
from ostinato.graph.graph import Graph
from ostinato.graph.guard import Guard
from ostinato.graph.op import Op
from ostinato.graph.param import REQUIRED, Combine

__all__ = ["Capture", "capture", "param", "until"]

_READ_ONLY = ("read-only", "readonly", "read-write", "writable", "writeable")


class Capture:
    """The context manager that `capture` returns; good for one block."""

    __slots__ = ("_collecting", "_recording", "_token")

    def __init__(self) -> None:
        self._collecting = False
        self._recording: Recording | None = None
        self._token: Token[Recording | None] | None = None

    def __enter__(self) -> Graph:
        if self._recording is not None:
            raise GraphError("this capture has been used; write `with capture() as graph:` for every block")
        if current() is not None:
            raise GraphError("captures do not nest: a capture is open in this thread or asyncio task already")
        # All that is recorded stays, so Python's cycle collector would look through it again and again and find
        # nothing: at a million ops that takes as long as the recording.
        self._collecting = gc.isenabled()
        gc.disable()
        graph, guard = Graph(), Guard()
        graph.start_recording(guard)
        self._recording = Recording(graph, guard)
        self._token = recording.set(self._recording)
        return graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._recording is not None
        assert self._token is not None
        graph, guard = self._recording.graph, self._recording.guard
        held = guard.holds_anything
        self._recording.ended = True
        if self._collecting:
            gc.enable()
        with suppress(ValueError):  # left in another context than it was entered in
            recording.reset(self._token)
        graph.stop_recording()
        guard.release()
        if error is None:
            return
        graph.discard()
        if isinstance(error, GraphError):  # says itself what is wrong
            return
        if held and isinstance(error, ValueError | TypeError | BufferError) and _says_read_only(error):
            line = "" if traceback is None else f" (line {traceback.tb_lineno})"
            raise GraphError(
                f"a statement inside capture(){line} wrote to a read-only array. Only task calls are recorded, and "
                "arrays that have been recorded are read-only until the block ends; make the statement a task "
                "(ostinato.task), or use Graph.copy or Graph.fill, or move it out of the block"
            ) from error


def capture() -> Capture:
    """Record the task calls of a ``with`` block, in program order, as a `Graph`.

    Only the calls of this thread, or this asyncio task, are recorded. Captures do not nest. Until the block ends,
    NumPy arrays that have been recorded are read-only, so that a statement that would not be recorded raises. If the
    block is left by an exception, nothing remains recorded.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def double(x: ost.ReadWrite):
    ...     x *= 2
    >>> a = np.ones(4)
    >>> with ost.capture() as graph:
    ...     op = double(a)
    >>> graph.ops == (op,)
    True
    """
    return Capture()


def param(name: str, default: Any = REQUIRED, combine: Combine | None = None) -> Any:
    """Return the parameter `name` of the graph being captured; see `Graph.param`.

    Examples
    --------
    >>> import ostinato as ost
    >>> @ost.task
    ... def show(value):
    ...     print(value)
    >>> with ost.capture() as graph:
    ...     op = show(ost.param("value", 1))
    >>> list(graph.params)
    ['value']
    """
    return _capturing("param").param(name, default, combine)


def until(flag: Any, every: int = 1) -> Op:
    """End the run with the step in which `flag` is nonzero here; see `Graph.until`.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> found = np.zeros(1)
    >>> with ost.capture() as graph:
    ...     op = ost.until(found)
    >>> op.name
    'until'
    """
    return _capturing("until").until(flag, every)


def _capturing(what: str) -> Graph:
    graph = current()
    if graph is None:
        raise GraphError(f"ostinato.{what}() is for use inside capture(); on an explicit graph, call graph.{what}()")
    return graph


def _says_read_only(error: BaseException) -> bool:
    message = str(error).lower()
    return any(words in message for words in _READ_ONLY)
