"""Samples of one callable, until there are enough."""

from __future__ import annotations

import gc
import time

from ostinato.tune.worker.channel import end_if_forked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ostinato.tune.stopping import Stopping

    class Timer(Protocol):
        """What takes samples: of a processor, an accelerator, or a simulated device."""

        overhead: float
        resolution: float

        def begin(self, call: Callable[[], Any], single: bool) -> None: ...

        def take(self) -> tuple[float, int]: ...

        def end(self) -> None: ...


_now = time.perf_counter_ns  # candidates may replace what they find in the module
_RETAKES = 3
_MOST_PREEMPTED = 0.01  # of a sample
_MOST_PREEMPTED_IN_ALL = 0.1


class Samples:
    """What sampling found."""

    __slots__ = ("flagged", "ns", "preempted", "verdict")

    def __init__(self) -> None:
        self.ns: list[float] = []  # in the order in which they were taken
        self.verdict = ""  # "enough", "raced", or empty: the time was spent
        self.flagged = 0  # samples preempted for more than a hundredth of their time, after three more tries
        self.preempted = 0.0  # the part of all the time sampled in which something else had the core

    @property
    def contended(self) -> bool:
        """Whether so much was disturbed that the samples mean nothing."""
        return self.flagged * 2 > len(self.ns) and self.preempted > _MOST_PREEMPTED_IN_ALL


def sampled(
    timer: Timer,
    stopping: Stopping,
    seconds: float,
    waited: Callable[[], int],
    before: Callable[[], None] | None = None,
    calls: int = 1,
) -> Samples:
    """Take samples of the callable that `timer` knows until `stopping` has enough of them, or `seconds` are spent.

    At least one is taken. The time for what is done before samples and for repeated samples counts too; a sample that
    would end later is not begun. `waited` returns for how many ns this thread waited for its core so far: a sample that
    waited for more than a hundredth of its time is taken again, up to three times. `before` is called before each
    sample, and not timed: it empties the caches, or puts back what calls change. Times are divided by `calls`, those
    that one call of the callable stands for.
    """
    found = Samples()
    take, add = timer.take, stopping.add
    total = lost = retakes = 0
    collects = gc.isenabled()
    gc.disable()
    try:
        end = _now() + int(seconds * 1e9)
        begin = waited()
        while True:
            if before is not None:
                before()
                begin = waited()
            sample, whole = take()
            end_if_forked()
            after = waited()
            delay = after - begin
            begin = after
            total += whole
            lost += delay
            late = _now() + whole > end
            if delay > _MOST_PREEMPTED * whole:
                if retakes < _RETAKES and not late:
                    retakes += 1
                    continue
                found.flagged += 1
            retakes = 0
            sample /= calls
            found.ns.append(sample)
            found.verdict = add(sample)
            if found.verdict or late:
                break
    finally:
        timer.end()
        if collects:
            gc.enable()
    found.preempted = min(lost / total, 1.0) if total else 0.0
    return found
