"""Futures of an asyncio loop that end with something of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress

from ostinato import _core

__all__ = ["awaited"]

_LOOK = 0.02
"""A task that may block looks so often, in seconds, whether its run was cancelled."""


def awaited() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """Return a future of the running loop, and the function that ends it, from any thread.

    Inside a task that may block, the future raises `concurrent.futures.CancelledError` when the run of the task is
    cancelled.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed, so nobody awaits this any more
            loop.call_soon_threadsafe(tell)

    def look() -> None:
        if future.done():
            return
        if _core.waits_are_over():
            future.set_exception(CancelledError("the run or the call that this task is part of was cancelled"))
        else:
            loop.call_later(_LOOK, look)

    if _core.waits_may_end():
        look()
    return future, wake
