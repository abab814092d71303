"""Simulated devices: what they add to the calls of a candidate that really runs."""

from __future__ import annotations

import os
import signal
import time

from ostinato.tune.worker.timers import CpuTimer, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["SimulatedTimer"]

_now, _sleep = time.perf_counter_ns, time.sleep
_SPIN = 60_000  # ns: a sleep ends late by up to this, so the rest is spent awake
_begin = _now()


class SimulatedTimer:
    """Times a callable on the processor, and adds what the device is declared to."""

    __slots__ = ("_call", "_cpu", "_drift", "_latency", "_noise", "_random", "overhead", "resolution")

    def __init__(self, cpu: CpuTimer, declared: dict[str, Any], candidate: str) -> None:
        self._cpu = cpu
        self._latency = round(declared["latency"] * 1e9)
        self._noise = declared["noise"]
        self._drift = declared["drift"]
        self.overhead = cpu.single
        self.resolution = cpu.resolution
        crash, hang = declared["crash"], declared["hang"]
        if self._noise or crash or hang:
            from random import Random

            self._random = Random(f"{declared['device']}/{candidate}")
            if self._random.random() < crash:
                os.kill(os.getpid(), signal.SIGSEGV)
            if self._random.random() < hang:
                while True:
                    signal.pause()

    def begin(self, call: Callable[[], Any]) -> None:
        """Set what is timed from here on."""
        self._call = call

    def take(self) -> tuple[float, int]:
        """Return the ns of one call, and those that the sample took."""
        begin = _now()
        own = timed(self._call)
        if self._latency:
            _wait_until(_now() + self._latency)
        end = _now()
        sample = max(own - self.overhead, self.resolution) + self._latency
        if self._drift:
            sample *= 1 + self._drift * (end - _begin) / 1e9
        if self._noise:
            sample *= 1 + self._noise * self._random.gauss(0.0, 1.0)
        return max(sample, self.resolution), end - begin


def _wait_until(end: int) -> None:
    left = end - _now() - _SPIN
    if left > 0:
        _sleep(left / 1e9)
    while _now() < end:
        pass
