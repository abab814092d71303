"""What Ostinato needs of its process: its cores, one interpreter, and to hear of its end."""

from __future__ import annotations

import atexit
import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # typing's own takes longer to import than all that a tuner's worker needs, and so does pathlib
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["refuse_others", "usable_cores"]


def usable_cores() -> list[int]:
    """Return the cores of the affinity mask, as many as the control group's quota pays for.

    Examples
    --------
    >>> len(usable_cores()) >= 1
    True
    """
    import math
    from pathlib import Path

    cores = sorted(os.sched_getaffinity(0))
    quota = _quota(Path("/sys/fs/cgroup"))
    return cores if quota is None else cores[: max(1, min(len(cores), math.ceil(quota)))]


def _quota(root: Path) -> float | None:
    """Return how many cores' worth of time the control group gets; None for no limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        micros = int((root / "cpu/cpu.cfs_quota_us").read_text())
        return None if micros < 0 else micros / int((root / "cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def refuse_others() -> None:
    """Raise in every interpreter but the main one.

    Raises
    ------
    ImportError
        This is a sub-interpreter.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "ostinato must be imported in the main interpreter, but this is a sub-interpreter: "
                "use threads of the main interpreter, or processes"
            )
        return


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
