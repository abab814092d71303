"""Which capture, if any, the running code is in."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING

from ostinato._core import serving

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.guard import Guard

__all__ = ["Recording", "current", "current_guard", "recording"]


class Recording:
    """An open capture, and whose it is.

    New threads and asyncio tasks may inherit the context of their maker, and with it this value, so it says itself to
    which thread and which task it belongs. And a thread that captures may replay a program: what that program's tasks
    call is not the capture's.
    """

    __slots__ = ("asyncio_task", "ended", "graph", "guard", "serving", "thread")

    def __init__(self, graph: Graph, guard: Guard | None) -> None:
        self.graph = graph
        self.guard = guard
        self.ended = False
        self.thread = get_ident()
        self.serving = serving()
        self.asyncio_task = _asyncio_task()


recording: ContextVar[Recording | None] = ContextVar("ostinato.recording", default=None)


def current() -> Graph | None:
    """Return the graph that calls of this thread or asyncio task are recorded in."""
    value = recording.get()
    return value.graph if value is not None and _is_ours(value) else None


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
