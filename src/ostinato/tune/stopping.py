"""When to stop measuring: confidence intervals of the median by order statistics.

No distribution is assumed: a sample lies below the median with probability one half, so how many of `n` do is
binomial, and two of the sorted samples enclose the median with a probability that is known exactly.
"""

from __future__ import annotations

from bisect import insort

__all__ = ["HOPELESS", "MOST_SAMPLES", "Stopping", "interval", "lower_rank", "median", "rank"]

MOST_SAMPLES = 10_000
"""More say nothing new: the interval of so many is an eightieth of their standard deviation wide on either side."""

HOPELESS = 1.5
"""A candidate is cut after two samples, if both are this many times the bound."""

_TWO_SIDED, _ONE_SIDED = 0.025, 0.05


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


_two_sided = _Ranks(_TWO_SIDED)
_one_sided = _Ranks(_ONE_SIDED)


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
    """Return the largest `r` so that the r-th least of `n` is at most the median with 95 %; 0 if `n` is less than five.

    Examples
    --------
    >>> [lower_rank(n) for n in (4, 5, 8, 100)]
    [0, 1, 2, 42]
    """
    return _one_sided.get(n)


def median(ordered: list[float]) -> float:
    """Return the median of sorted samples, of which there is at least one."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def interval(ordered: list[float]) -> tuple[float, float]:
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
    """Takes one sample after the other, and says when there are enough.

    Parameters
    ----------
    rel_ci, min_samples
        As in `Policy`.
    bound
        A time that a candidate has to beat, or None: one that does not is cut.
    resolution
        Half the width, in ns, below which a narrower interval says nothing.

    Examples
    --------
    >>> stopping = Stopping(rel_ci=0.1, min_samples=3)
    >>> [stopping.add(sample) for sample in (10.0, 10.5, 9.5)]
    ['', '', 'enough']
    >>> cut = Stopping(rel_ci=0.01, min_samples=7, bound=10.0)
    >>> [cut.add(sample) for sample in (16.0, 15.5)]
    ['', 'raced']
    """

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
        bound = self.bound
        if bound is not None and n >= 2:
            r = _one_sided.get(n)
            if (r and ordered[r - 1] > bound) or ordered[0] > HOPELESS * bound:
                return "raced"
        if n < self.min_samples:
            return ""
        middle = median(ordered)
        low, high = interval(ordered)
        half = max(high - middle, middle - low)
        return "enough" if half <= self.rel_ci * middle or half <= self.resolution or n >= MOST_SAMPLES else ""
