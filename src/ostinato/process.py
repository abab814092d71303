"""What Ostinato needs of its process: to be in the main interpreter, to hear of its end, to pause its collector."""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys
from collections.abc import Iterator
from importlib import import_module


def refuse_others() -> None:
    """Raise `ImportError` in every interpreter but the main one."""
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


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's cycle collector off, where nearly all that is made stays: it would look through it in vain."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


_PATIENCE = 2
"""So many Ctrl-C end the wait for tasks."""


@atexit.register
def _end() -> None:
    """End the threads of what was used: none of them may touch the interpreter afterwards."""
    workers = sys.modules.get("ostinato.runtime.workers")
    core = sys.modules.get("ostinato._core")
    agreement = sys.modules.get("ostinato.ranks.agreement")
    if agreement is not None:
        agreement.begin_to_end()
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
    if agreement is not None:
        agreement.exit_all()
    if core is not None:
        core.devices.end()
        core.end_all()
    if interrupts:
        raise interrupts[0]
