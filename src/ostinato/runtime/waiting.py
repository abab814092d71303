"""Waits for the ends of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato import _core

__all__ = ["wait_for_all"]


def wait_for_all(runs: Sequence[_core.Run | _core.Spawned], cancelled: bool) -> None:
    """Wait for the ends of runs.

    Where they were cancelled, Ctrl-C is raised inside their Python tasks that are running, too: it is the second one.
    """
    try:
        for run in runs:
            run.wait(-1.0)
    except KeyboardInterrupt:
        if cancelled:
            for run in runs:
                run.interrupt()
        raise
