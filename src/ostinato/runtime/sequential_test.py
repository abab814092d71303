"""A sequential A/B test: which of two programs is faster, on steps that are to be run anyway.

Times are taken in pairs; a coin decides which program goes first (Fisher, "The design of experiments", 1935). The noise
may be anything, but must not know the coins. If the new program is not faster, bets that it looks faster are no better
than fair. So a stake of 1 ever exceeds 1 / alpha with a probability of at most alpha (Ville's inequality), however
often one looks: Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
"""

from __future__ import annotations

import math
import random
from bisect import insort
from collections import deque
from typing import Literal

import numpy as np

ALPHA = 1 / 1000
"""The greatest probability that a program which is not faster is taken for the faster one."""

_HOPELESS_ALPHA, _GAIN = 1 / 100, 1 / 100
"""The same for giving up a program that is faster by this gain: a mistake costs a chance, and no more."""

_SHARES, _STAKES = np.array([1, 3 / 4, 1 / 2, 1 / 4, 1 / 8]), np.array([1 / 4, 1 / 4, 1 / 4, 1 / 8, 1 / 8])
"""Shares of the capital that are bet on each pair, and how much of the stake is bet in that way."""

_NOTHING = 1e-9
"""A smaller difference, relative to the times, is none: the rounding errors depend on the coins."""

_RECENT = 16
"""The advantage of going first is estimated from so many pairs of either order."""


class ABTest:
    """Takes the times of one pair after the other, and says when it is decided; `seed` is that of the coins."""

    def __init__(self, alpha: float = ALPHA, seed: int | None = None) -> None:
        self._coins = random.Random(seed)
        self._alpha = alpha
        self._faster, self._not_faster = _Bets(), _Bets()  # that the new one looks faster; not by the gain
        # Logarithms of how much longer the first one took, in pairs where the old one went first, and the new one.
        self._orders: tuple[deque[float], deque[float]] = deque(maxlen=_RECENT), deque(maxlen=_RECENT)
        self._new_first = False
        self.pairs = 0
        self.verdict: Literal["", "new", "hopeless"] = ""

    def new_first(self) -> bool:
        """Toss the coin of the next pair: whether the new program goes first."""
        self._new_first = bool(self._coins.getrandbits(1))
        return self._new_first

    def add(self, old: float, new: float) -> None:
        """Take the times of the pair that the coin was tossed for; both are positive."""
        self.pairs += 1
        difference = math.log(old / new)
        # The advantage of the second of a pair.
        usual = sum(float(np.median(each)) for each in self._orders) / 2 if all(self._orders) else 0.0
        self._orders[self._new_first].append(-difference if self._new_first else difference)
        difference += usual if self._new_first else -usual
        self._faster.bet(difference)
        self._not_faster.bet(math.log1p(_GAIN) - difference)
        if self.winnable(0):
            self.verdict = "new"
        elif self._not_faster.capital(0) * _HOPELESS_ALPHA >= 1:
            self.verdict = "hopeless"

    def winnable(self, pairs: int) -> bool:
        """Return whether the new program can win within so many more pairs."""
        return self._faster.capital(pairs) * self._alpha >= 1


class _Bets:
    """Bets on the sign of differences; a difference that is small beside the median so far is bet on with less.

    A difference pays as much as its opposite costs: bets are no better than fair if differences are symmetric.
    """

    def __init__(self) -> None:
        self._capital = _STAKES
        self._sizes: list[float] = []  # of the differences, sorted

    def bet(self, difference: float) -> None:
        size = abs(difference) if abs(difference) >= _NOTHING else 0.0
        insort(self._sizes, size)
        half = self._sizes[len(self._sizes) // 2] / 2
        outcome = math.copysign(min(size / half, 1.0) if half else float(size > 0), difference)
        self._capital = self._capital * (1 + _SHARES * outcome)

    def capital(self, wins: int) -> float:
        """Return what a stake of 1 would become after so many more wins."""
        return float(self._capital @ (1 + _SHARES) ** wins)
