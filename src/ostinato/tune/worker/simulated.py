"""Simulated devices: what they add to the calls of a candidate that really runs."""

from __future__ import annotations

import os
import signal
import time
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from typing import Any

    from ostinato.tune.worker.sampling import Timer


_now, _sleep = time.perf_counter_ns, time.sleep
_SPIN = 60_000  # ns: a sleep ends late by up to this, so the rest is spent awake
_begin = _now()
_numbers = count()
_random: Random | None = None


class SimulatedTimer:
    """Times a callable on the processor, and adds what the device is declared to.

    Making one may end the process, or never return: the device's crashes and hangs, which are always the same for the
    same candidate.
    """

    __slots__ = ("_declared", "_gauss", "_latency", "_real", "overhead", "resolution")

    def __init__(self, real: Timer, declared: dict[str, Any], candidate: str) -> None:
        self._real = real
        self._declared = declared
        self._latency = round(declared["latency"] * 1e9)
        self.overhead = real.overhead
        self.resolution = real.resolution
        if declared["crash"] or declared["hang"]:
            random = _seeded(f"{declared['device']}/{candidate}")
            if random.random() < declared["crash"]:
                os.kill(os.getpid(), signal.SIGSEGV)
            if random.random() < declared["hang"]:
                while True:
                    signal.pause()
        if declared["noise"]:
            # Other noise each time: with the same in every turn of a final, one of two equals would always win.
            self._gauss = _seeded(f"{declared['device']}/{candidate}/{next(_numbers)}").gauss

    def begin(self, call: Callable[[], Any], single: bool) -> None:
        """Set what is timed from here on; the latency is of each call, so there are no batches."""
        self._real.begin(call, single or self._latency > 0)

    def take(self) -> tuple[float, int]:
        """Return the ns of one call, and those that the sample took."""
        sample, whole = self._real.take()
        self.overhead = self._real.overhead
        if self._latency:
            _wait(self._latency)
            sample += self._latency
            whole += self._latency
        if self._declared["drift"]:
            sample *= 1 + self._declared["drift"] * (_now() - _begin) / 1e9
        if self._declared["noise"]:
            sample *= 1 + self._declared["noise"] * self._gauss(0.0, 1.0)
        return max(sample, self.resolution), whole

    def end(self) -> None:
        """Forget the callable."""
        self._real.end()


def _seeded(text: str) -> Random:
    """Return the module's own random numbers, begun anew: making others takes longer than a short candidate."""
    global _random
    if _random is None:
        from random import Random

        _random = Random()
    _random.seed(text)
    return _random


def _wait(ns: int) -> None:
    end = _now() + ns
    if ns > _SPIN:
        _sleep((ns - _SPIN) / 1e9)
    while _now() < end:
        pass
