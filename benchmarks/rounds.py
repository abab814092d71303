"""Rounds of measurements that time themselves: every contestant once a round, in rotating order."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

from benchmarks.measure import Row


def take(
    benchmark: str,
    case: str,
    unit: str,
    contestants: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    reference: str | None = None,
) -> list[Row]:
    """Return the rows of contestants, each of which returns a sample when it is called."""
    names = list(contestants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            gc.freeze()  # a contestant's garbage collector looks at what it makes itself, not at other benchmarks'
            samples[name].append(contestants[name]())
            gc.unfreeze()
    return [Row(benchmark, case, name, unit, tuple(taken), reference) for name, taken in samples.items()]
