"""What is done before the interpreter ends. Registered when the package is imported, so that it is done late."""

from __future__ import annotations

import atexit
import sys

__all__: list[str] = []

_PATIENCE = 2
"""So many Ctrl-C end the wait for tasks."""


@atexit.register
def _end() -> None:
    """End the threads of what was used: none of them may touch the interpreter afterwards."""
    workers = sys.modules.get("ostinato.runtime.workers")
    core = sys.modules.get("ostinato._core")
    interrupts: list[KeyboardInterrupt] = []
    while workers is not None:
        try:
            workers.close_all()
            break
        except KeyboardInterrupt as interrupt:  # it was raised inside the tasks that run, too
            interrupts.append(interrupt)
            if len(interrupts) == _PATIENCE:  # a task waits for what is not ours: leave it behind
                if core is not None:
                    core.leave_all()
                raise
    if core is not None:
        core.devices.end()
        core.end_all()
    if interrupts:
        raise interrupts[0]
