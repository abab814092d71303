"""Which of two programs is faster, from times taken in pairs of which coins decide who goes first.

Nothing is assumed of the noise but that it does not know the coins: times may drift, come in bursts or in a rhythm,
have heavy tails. In a pair there are two places in time. If the new program is not faster than the old one in either of
them, then where it looks faster, because of what else went on, the other side of the coin would have made it look
slower by as much at least. So bets that it looks faster are no better than fair, whatever is staked on a difference of
that size, and whatever advantage, known from earlier pairs, is taken off who goes first; and what becomes of a stake of
1 ever exceeds 1 / alpha with a probability of alpha at most (Ville's inequality). That holds however often one looks,
so that one may stop as soon as it does: Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe
anytime-valid inference", Statistical Science 38, 2023; for the coins, Fisher, "The design of experiments", 1935.

What one program does to the times of the other is no noise: data that it leaves in the caches, or does not. Whoever
takes the times runs some steps first that are not timed. And what is told apart are times of pairs: a program that is
faster in most of them, and much slower in a few, may win.
"""

from __future__ import annotations

import math
import os
import random
from bisect import insort
from collections import deque
from statistics import median
from typing import Literal

__all__ = ["ALPHA", "Duel", "Verdict"]

Verdict = Literal["", "new", "hopeless"]

ALPHA = 1 / 1000
"""The probability at most that a program is taken for the better one which is not."""

_HOPELESS_ALPHA = 1 / 100
"""Likewise that a duel is given up in which the new program is faster by `_GAIN`: this costs a chance, and no more."""

_GAIN = 1 / 100
"""A smaller gain is not worth measuring on."""

_BETS = ((1.0, 1 / 4), (3 / 4, 1 / 4), (1 / 2, 1 / 4), (1 / 4, 1 / 8), (1 / 8, 1 / 8))
"""Shares of what one has that are bet on each pair, and how much is bet in that way."""

_NOTHING = 1e-9
"""A smaller difference, relative to the times, is none: what rounding makes of it knows the coins."""

_RECENT = 16
"""From so many pairs of either order one knows the advantage of who goes first."""


class Duel:
    """Takes the times of one pair after the other, and says when it is decided.

    Parameters
    ----------
    alpha
        The probability at most that the verdict is ever ``"new"``, if the new program is not faster.
    seed
        Where the coins come from. None: from the system.

    Examples
    --------
    >>> duel = Duel(seed=1)
    >>> while not duel.verdict:
    ...     goes_first = duel.new_first()
    ...     duel.add(old=2.0, new=1.0)
    >>> duel.verdict, duel.pairs
    ('new', 12)
    """

    def __init__(self, alpha: float = ALPHA, seed: int | None = None) -> None:
        self._coins = random.Random(int.from_bytes(os.urandom(16)) if seed is None else seed)
        self._alpha = alpha
        self._faster = _Bets()  # that the new one looks faster
        self._not_faster = _Bets()  # that it does not look faster by the gain
        # Logarithms of how much longer the first one took, in pairs where the old one went first, and the new one.
        self._orders: tuple[deque[float], deque[float]] = deque(maxlen=_RECENT), deque(maxlen=_RECENT)
        self._new_first = False
        self.pairs = 0
        self.verdict: Verdict = ""

    def new_first(self) -> bool:
        """Toss the coin of the next pair: whether the new program goes first."""
        self._new_first = bool(self._coins.getrandbits(1))
        return self._new_first

    def add(self, old: float, new: float) -> None:
        """Take the times of the pair that the coin was tossed for; both are positive."""
        self.pairs += 1
        difference = math.log(old / new)
        usual = self._usual()
        self._orders[self._new_first].append(-difference if self._new_first else difference)
        difference += usual if self._new_first else -usual
        self._faster.bet(difference)
        self._not_faster.bet(math.log1p(_GAIN) - difference)
        if self._faster.stake() * self._alpha >= 1:
            self.verdict = "new"
        elif self._not_faster.stake() * _HOPELESS_ALPHA >= 1:
            self.verdict = "hopeless"

    def _usual(self) -> float:
        """How much longer the first of a pair has taken so far, as a logarithm, whichever program that was."""
        if not all(self._orders):
            return 0.0
        old, new = (median(order) for order in self._orders)
        return (old + new) / 2

    def winnable(self, pairs: int) -> bool:
        """Return whether the new program can win within so many more pairs."""
        return self._faster.stake(pairs) * self._alpha >= 1


class _Bets:
    """What has become of bets on the sign of differences.

    A small difference, beside the median of those so far, is bet on with less. The more a difference speaks for the
    bet, the more it pays, and as much as its opposite costs: so bets are not better than fair where differences are not
    better than symmetric.
    """

    def __init__(self) -> None:
        self._stakes = [part for _, part in _BETS]
        self._sizes: list[float] = []  # of the differences, sorted

    def bet(self, difference: float) -> None:
        size = abs(difference)
        if size < _NOTHING:
            size = 0.0
        insort(self._sizes, size)
        half = self._sizes[len(self._sizes) // 2] / 2
        outcome = math.copysign(min(size / half, 1.0) if half else float(size > 0), difference)
        self._stakes = [stake * (1 + share * outcome) for stake, (share, _) in zip(self._stakes, _BETS, strict=True)]

    def stake(self, wins: int = 0) -> float:
        """Return what a stake of 1 has become, or would after so many wins more."""
        return sum(stake * (1 + share) ** wins for stake, (share, _) in zip(self._stakes, _BETS, strict=True))
