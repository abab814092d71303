"""Several ways to the same result: timed in turns, and their results compared."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Way", "compare"]


class Way(NamedTuple):
    """One way to compute something."""

    name: str
    run: Callable[[], Any]  # starts from the same data each time, and returns the result
    why_faster: str = ""  # the reason to print where this way is faster than the first one
    tolerance: float = 0.0  # how far the result may be from that of the first way; 0: not a bit


def compare(ways: Sequence[Way], turns: int = 5) -> int:
    """Time the ways and print how many times as fast the first one is; return 0 if all results are equal, or else 1.

    All ways take a turn before the next round begins, so that whatever else the machine does disturbs all of them. The
    best turn of each counts: it is the one least disturbed.
    """
    first, seconds, equal = ways[0], {way.name: list[float]() for way in ways}, True
    expected = first.run()
    for way in ways[1:]:  # these calls also compile what has to be compiled, outside of all timings
        equal &= _same(expected, way.run(), way.tolerance)
    for _ in range(turns):
        for way in ways:
            start = time.perf_counter()
            result = way.run()
            seconds[way.name].append(time.perf_counter() - start)
            equal &= _same(expected, result, way.tolerance)
    best = {name: min(times) for name, times in seconds.items()}
    width = max(map(len, best))
    for way in ways:
        gain = best[way.name] / best[first.name]
        note = "" if way is first else f"   {first.name} is {gain:.2f} times as fast"
        print(f"{way.name:{width}}  {1e3 * best[way.name]:8.1f} ms{note}")
        if gain < 1 and way.why_faster:
            print(f"{'':{width}}  because {way.why_faster}")
    print(f"results equal: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


def _same(expected: Any, result: Any, tolerance: float) -> bool:
    if not isinstance(expected, np.ndarray):
        return bool(expected == result)
    if tolerance:
        return bool(np.allclose(expected, result, rtol=tolerance, atol=tolerance))
    return expected.dtype == result.dtype and np.array_equal(expected, result)
