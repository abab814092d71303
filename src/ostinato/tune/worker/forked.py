"""Ending children that a candidate forked and that came back out of it: they would measure, and fork, on their own."""

from __future__ import annotations

import os

__all__ = ["end_if_forked"]

_getpid, _exit = os.getpid, os._exit
_worker = _getpid()


def end_if_forked() -> None:
    """End this process if it is not the worker; called whenever a candidate's code returns."""
    if _getpid() != _worker:
        _exit(1)
