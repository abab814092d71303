"""Samples of one callable, until there are enough."""

from __future__ import annotations

import gc
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ostinato.tune.stopping import Stopping
    from ostinato.tune.worker.preemption import Preemption

    class Timer(Protocol):
        """What takes samples: of a processor, an accelerator, or a simulated device."""

        overhead: float
        resolution: float

        def begin(self, call: Callable[[], Any]) -> None: ...

        def take(self) -> tuple[float, int]: ...


__all__ = ["Samples", "sampled"]

_now = time.perf_counter_ns
_RETAKES = 3


class Samples:
    """What sampling found.

    Attributes
    ----------
    ns
        The samples, in the order in which they were taken.
    verdict
        ``"enough"``, ``"raced"``, or empty: the time was spent.
    flagged
        How many of the samples were preempted for more than a hundredth of their time.
    preempted
        The part of all the time sampled in which something else had the core.
    """

    __slots__ = ("flagged", "ns", "preempted", "verdict")

    def __init__(self) -> None:
        self.ns: list[float] = []
        self.verdict = ""
        self.flagged = 0
        self.preempted = 0.0

    @property
    def contended(self) -> bool:
        """Whether so much was disturbed that the samples mean nothing."""
        return self.flagged * 2 > len(self.ns) and self.preempted > 0.1


def sampled(
    timer: Timer, stopping: Stopping, seconds: float, flush: Callable[[], None] | None, preemption: Preemption
) -> Samples:
    """Take samples until `stopping` has enough of them, or `seconds` are spent: at least one.

    A sample that was preempted for more than a hundredth of its time is taken again, up to three times.
    """
    found = Samples()
    ns = found.ns
    take, add, waited = timer.take, stopping.add, preemption.waited
    total = lost = retakes = 0
    collects = gc.isenabled()
    if collects:
        gc.disable()
    try:
        begin = _now()
        end = begin + int(seconds * 1e9)
        before = waited()
        while True:
            if flush is not None:
                flush()
                before = waited()
            sample, whole = take()
            after = waited()
            delay = after - before
            before = after
            now = _now()
            total += whole
            lost += delay
            if delay * 100 > whole:
                if retakes < _RETAKES and now + whole < end:
                    retakes += 1
                    continue
                found.flagged += 1
            retakes = 0
            ns.append(sample)
            found.verdict = add(sample)
            # One that would end after the time is spent is not begun.
            if found.verdict or now + whole > end:
                break
    finally:
        if collects:
            gc.enable()
    found.preempted = lost / total if total else 0.0
    return found
