"""Ending children that a candidate forked and that came back out of it: they would measure, and fork, on their own."""

from __future__ import annotations

import os

__all__ = ["end_if_forked", "measure_here"]

_getpid, _exit = os.getpid, os._exit
_worker = _getpid()


def measure_here() -> None:
    """Take this process for the one that measures: it may itself be the child of one that imported this."""
    global _worker
    _worker = _getpid()


def end_if_forked() -> None:
    """End this process if it is not the one that measures; called whenever a candidate's code returns."""
    if _getpid() != _worker:
        _exit(1)
