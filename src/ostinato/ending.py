"""What is done before the interpreter ends. Registered when the package is imported, so that it is done late."""

from __future__ import annotations

import atexit
import sys

__all__: list[str] = []


@atexit.register
def _end() -> None:
    """End the threads of what was used: none of them may touch the interpreter afterwards."""
    machine = sys.modules.get("ostinato.runtime.machine")
    if machine is not None:
        machine.close_all()
    core = sys.modules.get("ostinato._core")
    if core is not None:
        core.devices.end()
        core.end_all()
