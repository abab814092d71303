"""Calls that keep a machine busy until a block ends."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import ostinato as ost

DEADLINE = 60


@contextlib.contextmanager
def endless_calls(
    machine: ost.Machine, chains: int, priority: int = 0, work: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """So many calls at once, each of which works and spawns its successor until the block ends."""
    stop, ended = threading.Event(), threading.Semaphore(0)

    @ost.task
    def again() -> None:
        work()
        if stop.is_set():
            ended.release()
        else:
            machine.spawn(again, priority=priority)

    for _ in range(chains):
        machine.spawn(again, priority=priority)
    try:
        yield
    finally:
        stop.set()
        # The machine may be closed only when no call spawns any more.
        for _ in range(chains):
            assert ended.acquire(timeout=DEADLINE)
