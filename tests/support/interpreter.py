"""Facts about the interpreter that tests depend on."""

import sys

import pytest

LOCKED = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
"""Whether only one thread runs Python code at a time."""

needs_lock = pytest.mark.skipif(not LOCKED, reason="free-threaded Pythons have no interpreter lock")
