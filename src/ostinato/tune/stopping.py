"""When to stop measuring: confidence intervals of the median by order statistics.

No distribution is assumed: a sample lies below the median with probability one half, so how many of `n` do is
binomial, and two of the sorted samples enclose the median with a probability that is known exactly.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence

MOST_SAMPLES = 10_000
"""More say nothing new: the interval of so many is an eightieth of their standard deviation wide on either side."""

_HOPELESS = (math.inf, math.inf, 1.5, 1.25, 1.15)

_LEVEL = 1 / 20
"""Probability at most that a candidate is cut that is as fast as its bound, however often one looks."""

_BETS = ((0.0, 1 / 2), (1 / 8, 1 / 6), (1 / 4, 1 / 6), (3 / 8, 1 / 6))
"""For `lower_rank`: shares of samples that are not above the bound, and how much is bet on each."""


class _Ranks:
    """The largest rank `r` of each `n`, so that fewer than `r` of `n` lie below the median with probability <= `tail`.

    Grown by Pascal's rule, where P(n, r) is the probability that fewer than r of n lie below, p(n, k) that k do:
    P(n + 1, r) = P(n, r) - p(n, r - 1) / 2. So each further n costs the same, and all the sums are exact but for
    rounding.
    """

    __slots__ = ("_below", "_last", "_tail", "of")

    def __init__(self, tail: float) -> None:
        self.of = [0]  # rank 0: none of the samples is that far out
        self._tail = tail
        self._below = 0.0  # P(n, r)
        self._last = 1.0  # p(n, r): what one more rank adds

    def get(self, n: int) -> int:
        ranks = self.of
        while len(ranks) <= n:
            # Invariant: P(m, r) <= tail < P(m, r + 1), for the last m that has a rank r.
            m, r = len(ranks) - 1, ranks[-1]
            if r:
                self._below -= self._last * r / (m - r + 1) / 2  # p(m, r - 1) = p(m, r) * r / (m - r + 1)
            self._last *= (m + 1) / (m + 1 - r) / 2
            if self._below + self._last <= self._tail:
                self._below += self._last
                self._last *= (m + 1 - r) / (r + 1)
                r += 1
            ranks.append(r)
        return ranks[n]


_two_sided = _Ranks(0.025)
_upper = _Ranks(1 / 128)
_lower = [0]


def rank(n: int) -> int:
    """Return the largest `r` so that the r-th least and the r-th greatest of `n` enclose the median with 95 %.

    0 if not even the least and the greatest do: `n` is less than six.

    Examples
    --------
    >>> [rank(n) for n in (5, 6, 9, 100)]
    [0, 1, 2, 40]
    """
    return _two_sided.get(n)


def lower_rank(n: int) -> int:
    """Return the largest `r` so that the r-th least of `n` samples is at most the median with 95 %, for all n at once.

    0 if `n` is less than five. Whoever looks at a confidence bound after every sample sees it fail sooner or later, if
    it holds with 95 % for each n by itself; this one fails for some n in one of twenty sequences at most. If at least
    half of the samples are not above a bound in the long run, then bets that fewer are, paid fairly, multiply the
    stake by 20 with a probability of 1/20 at most (Ville's inequality; Howard and Ramdas, "Sequential estimation of
    quantiles with applications to A/B testing and best-arm identification", Bernoulli 28, 2022).
    """
    while len(_lower) <= n:
        r = _lower[-1]
        _lower.append(r + (_stake(r, len(_lower)) * _LEVEL >= 1))
    return _lower[n]


def _stake(below: int, n: int) -> float:
    """Return what a stake of 1 has become, if `below` of `n` samples were not above the bound."""
    stake = 0.0
    for share, part in _BETS:
        if share or not below:
            logarithm = n * math.log(2 * (1 - share)) + (below * math.log(share / (1 - share)) if below else 0.0)
            stake += part * math.exp(min(logarithm, 700.0))
    return stake


def cut(ordered: Sequence[float], bound: float) -> bool:
    """Return whether sorted samples say that their median is above a bound; may be asked after every sample.

    If it is not, the answer is yes after some sample with a probability of at most 1/20; and where the first samples
    are `hopeless`.
    """
    r = lower_rank(len(ordered))
    return ordered[r - 1] > bound if r else ordered[0] > hopeless(len(ordered)) * bound


def hopeless(n: int) -> float:
    """Return how many times the bound all of n samples are of a candidate that need not be measured further.

    Before there are five samples, no statistics allows to cut. This assumes instead that nothing makes two samples in
    a row half as long again, three longer by a quarter, or four by 15 %.
    """
    return _HOPELESS[min(n, len(_HOPELESS) - 1)]


def upper(ordered: Sequence[float]) -> float:
    """Return what the median of sorted samples is at most, in all but 1/128 of cases; infinity for one or two samples.

    Of fewer than seven samples the greatest, which in 1/2 ** n of cases is too low.
    """
    n = len(ordered)
    return ordered[-max(_upper.get(n), 1)] if n > 2 else math.inf


def median(ordered: Sequence[float]) -> float:
    """Return the median of sorted samples, of which there is at least one."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval (95 %) of the median of sorted samples; the range, where they are fewer than six.

    Examples
    --------
    >>> interval([1.0, 2.0, 3.0])
    (1.0, 3.0)
    >>> interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    (2.0, 8.0)
    """
    r = max(_two_sided.get(len(ordered)), 1)
    return ordered[r - 1], ordered[-r]


class Stopping:
    """Takes one sample after the other, and says when there are enough."""

    __slots__ = ("bound", "min_samples", "ordered", "rel_ci", "resolution")

    def __init__(self, rel_ci: float, min_samples: int, bound: float | None = None, resolution: float = 0.0) -> None:
        self.rel_ci = rel_ci
        self.min_samples = min_samples
        self.bound = bound
        self.resolution = resolution
        self.ordered: list[float] = []

    def add(self, sample: float) -> str:
        """Return ``"enough"``, ``"raced"``, or the empty string if more samples are wanted."""
        ordered = self.ordered
        insort(ordered, sample)
        n = len(ordered)
        if self.bound is not None and cut(ordered, self.bound):
            return "raced"
        if n < self.min_samples:
            return ""
        middle = median(ordered)
        low, high = interval(ordered)
        half = max(high - middle, middle - low)
        return "enough" if half <= self.rel_ci * middle or half <= self.resolution or n >= MOST_SAMPLES else ""
