"""A sequential A/B test of two programs, on steps that are to be run anyway."""

from __future__ import annotations

import math
import os
import random
from bisect import insort
from collections import deque
from statistics import median
from typing import Literal, NamedTuple, Protocol

__all__ = ["ALPHA", "Arena", "Contest", "Duel", "Slots", "Verdict", "contest"]

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


_SLOT = 10e-3
"""Seconds that one turn of a program takes at most: long beside the begin and the end of a run, and beside bursts."""

_SHORTEST = 1e-3
"""Seconds that a turn takes at least: in a shorter one, threads that have to be woken would decide."""

_ENOUGH_PAIRS = 60
"""Turns are so short that there are so many pairs, if possible."""

_MOST_PAIRS = 150
"""A gain that does not show in so many is not worth the time of the slower program."""

_FEWEST_PAIRS = 12
"""So many decide nothing but a clear case."""

_WARM = 8
"""One in so many steps of a turn is run before the clock is read: the other program has left its data in the caches."""

_PATIENCE = 10
"""So often in a row a program is asked to make room for the other one."""


class Arena(Protocol):
    """Where two programs run: number 0, the old one, and number 1, the new one."""

    @property
    def left(self) -> int:
        """How many steps are left to run."""

    def enter(self, program: int) -> bool:
        """Let a program run from now on; False if it cannot take the place of the one that does."""

    def run(self, steps: int) -> float | None:
        """Run steps, and return the seconds that it took; None if fewer were to be run, so that nothing is left."""


class Slots(NamedTuple):
    """What a turn of a program is."""

    warm: int
    """Steps before the clock is read."""
    timed: int
    """Steps on the clock."""

    @classmethod
    def of(cls, steps: int, step_seconds: float) -> Slots | None:
        """Return turns for a duel over so many steps, or None where they are too few."""
        timed = max(1, min(math.ceil(_SLOT / max(step_seconds, 1e-9)), steps // (2 * _ENOUGH_PAIRS)))
        while timed > 1 and steps // (2 * (timed + _warm(timed))) < _ENOUGH_PAIRS:
            timed -= 1
        timed = max(timed, math.ceil(_SHORTEST / max(step_seconds, 1e-9)))
        slots = cls(_warm(timed), timed)
        return slots if slots.pairs_in(steps) >= _FEWEST_PAIRS else None

    def pairs_in(self, steps: int) -> int:
        """Return how many pairs of turns fit into so many steps."""
        return steps // (2 * (self.warm + self.timed))


def _warm(timed: int) -> int:
    return math.ceil(timed / _WARM) if timed > 1 else 0


class Contest(NamedTuple):
    """How a duel went."""

    won: bool
    """Whether the new program is faster."""
    pairs: int
    old: tuple[float, ...]
    """Seconds per step, by turn."""
    new: tuple[float, ...]
    why: str
    """What decided it, as the end of a sentence."""


def contest(arena: Arena, steps: int, step_seconds: float, duel: Duel) -> Contest:
    """Let two programs take turns until it is decided, for so many of the steps that are left at most.

    Parameters
    ----------
    arena
        Where they run.
    steps
        The steps.
    step_seconds
        What a step takes about.
    duel
        Tosses the coins, and decides.
    """
    slots = Slots.of(steps, step_seconds)
    if slots is None:
        return Contest(False, 0, (), (), f"{steps} more steps are too few to tell which one is faster")
    end = arena.left - steps
    times: tuple[list[float], list[float]] = [], []
    why = ""
    while not (duel.verdict or why):
        pairs = min(slots.pairs_in(arena.left - end), _MOST_PAIRS - duel.pairs)
        if not duel.winnable(pairs):
            why = f"in {duel.pairs} pairs of turns, another one was not found to be faster"
            break
        pair = {}
        for program in (1, 0) if duel.new_first() else (0, 1):
            if not _entered(arena, program, slots):
                why = "other threads kept the program busy"
                break
            seconds = arena.run(slots.warm) if slots.warm else 0.0
            seconds = None if seconds is None else arena.run(slots.timed)
            if seconds is None:
                why = "the run ended before it was decided"
                break
            pair[program] = max(seconds, 1e-9) / slots.timed
        else:
            for program, taken in pair.items():
                times[program].append(taken)
            duel.add(pair[0], pair[1])
    if duel.verdict == "hopeless":
        why = f"in {duel.pairs} pairs of turns, another one was not faster"
    elif duel.verdict == "new":
        why = f"in {duel.pairs} pairs of turns, it was faster"
    return Contest(duel.verdict == "new", duel.pairs, tuple(times[0]), tuple(times[1]), why)


def _entered(arena: Arena, program: int, slots: Slots) -> bool:
    """Let a program run next. While others keep it from that, steps are run all the same, so that this has an end."""
    for _ in range(_PATIENCE):
        if arena.enter(program):
            return True
        if arena.run(slots.timed) is None:
            break
    return False
