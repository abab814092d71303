"""Facts about the interpreter that tests depend on."""

import gc
import sys

import pytest

LOCKED = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
"""Whether only one thread runs Python code at a time."""

needs_lock = pytest.mark.skipif(not LOCKED, reason="free-threaded Pythons have no interpreter lock")


def collect() -> None:
    """Free what nobody holds any more.

    Without a lock, objects that another thread made wait for that thread, or for the collector. Those that they hold
    wait for the next collection.
    """
    for _ in range(1 if LOCKED else 4):
        gc.collect()
