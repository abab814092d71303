"""Interleaved measurement: every contestant once a round, in rotating order, and the samples of all rounds kept."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np

#: Runs so many steps.
Run = Callable[[int], object]


@dataclass
class Contestant:
    """Something to be timed: `run(n)` does n steps of `tasks` tasks each; n is a multiple of `multiple`."""

    name: str
    run: Run
    tasks: int = 1
    multiple: int = 1
    samples: list[float] = field(default_factory=list)  # nanoseconds per task
    steps: int = 0  # in one sample; chosen to fill it, unless given

    def time(self, steps: int) -> float:
        """Nanoseconds that so many steps take."""
        begin = time.perf_counter_ns()
        self.run(steps)
        return time.perf_counter_ns() - begin


class Part(Contestant):
    """One of which only a part is timed: `run` returns the nanoseconds that count."""

    def time(self, steps: int) -> float:
        """Nanoseconds that count of so many steps."""
        return cast("float", self.run(steps))


@dataclass(frozen=True)
class Row:
    """The samples of one contestant in one case, in `unit`, with the reference it is compared to."""

    benchmark: str
    case: str
    contestant: str
    unit: str
    samples: tuple[float, ...]
    reference: str | None = None

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return float(np.median(self.samples))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between these lies the middle half of the samples."""
        low, high = np.percentile(self.samples, (25, 75))
        return float(low), float(high)


def _calibrate(contestant: Contestant, seconds: float) -> None:
    """Warm up, and choose how many steps fill one sample."""
    if contestant.steps:
        contestant.time(contestant.steps)
        return
    steps = contestant.multiple
    # The least of three: compiling and adapting make the first calls slow.
    while (elapsed := min(contestant.time(steps) for _ in range(3)) / 1e9) < seconds / 4:
        steps *= 2
    scaled = int(steps * seconds / elapsed)
    contestant.steps = max(scaled // contestant.multiple, 1) * contestant.multiple


def measure(contestants: list[Contestant], *, rounds: int, seconds: float) -> None:
    """Fill the contestants' samples: one of about `seconds` each a round."""
    for contestant in contestants:
        _calibrate(contestant, seconds)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            first = number % len(contestants)
            for contestant in contestants[first:] + contestants[:first]:
                time.sleep(0.002)  # what the one before left spinning goes to sleep
                contestant.samples.append(contestant.time(contestant.steps) / (contestant.steps * contestant.tasks))
    finally:
        if collecting:
            gc.enable()
