"""What the benchmarks of the tuner measure; its workers import this, so it imports nothing that is slow to import."""

from __future__ import annotations

import signal
from collections.abc import Callable


def empty(number: int) -> Callable[[], None]:
    """Return a call that does nothing; the number only tells candidates apart."""

    def call() -> None:
        pass

    return call


def stuck(number: int, hangs: bool) -> Callable[[], None]:
    """Return a call that never returns, or one that does nothing."""

    def call() -> None:
        while hangs:
            signal.pause()

    return call
