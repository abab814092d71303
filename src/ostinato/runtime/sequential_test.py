"""A sequential A/B test: which of two programs is faster, on steps that are to be run anyway.

Times are taken in pairs; a coin decides which program goes first. Nothing is assumed of the noise but that it does not
know the coins: times may drift, come in bursts or in a rhythm, have heavy tails. If the new program is not faster in
either position of a pair, then where it looks faster by chance, the other side of the coin would have made it look
slower by at least as much. So bets that it looks faster are no better than fair, and what becomes of a stake of 1 ever
exceeds 1 / alpha with a probability of at most alpha (Ville's inequality), however often one looks: Ramdas, Grünwald,
Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", Statistical Science 38, 2023; for the
coins, Fisher, "The design of experiments", 1935.

What one program does to the times of the other is no noise: it leaves data in the caches. So some steps of each turn
are run before the clock is read. A program that is faster in most pairs, and much slower in a few, may win.
"""

from __future__ import annotations

import math
import os
import random
from bisect import insort
from collections import deque
from statistics import median
from typing import Literal, NamedTuple, Protocol

__all__ = ["ALPHA", "ABTest", "Comparison", "Runner", "Turns", "compare"]

ALPHA = 1 / 1000
"""The greatest probability that a program which is not faster is taken for the faster one."""

_HOPELESS_ALPHA = 1 / 100
"""The same for giving up a program that is faster by `_GAIN`: this costs a chance, and no more."""

_GAIN = 1 / 100
"""A smaller gain is not worth measuring on."""

_BETS = ((1.0, 1 / 4), (3 / 4, 1 / 4), (1 / 2, 1 / 4), (1 / 4, 1 / 8), (1 / 8, 1 / 8))
"""Shares of the capital that are bet on each pair, and how much of the stake is bet in that way."""

_NOTHING = 1e-9
"""A smaller difference, relative to the times, is none: what rounding makes of it knows the coins."""

_RECENT = 16
"""The advantage of going first is estimated from so many pairs of either order."""

_LONGEST, _SHORTEST = 10e-3, 1e-3
"""Seconds of a turn. In a shorter one, threads that have to be woken would decide."""

_FEWEST_PAIRS, _ENOUGH_PAIRS, _MOST_PAIRS = 12, 60, 150
"""So many decide only a clear case; turns are short enough for so many; a gain that does not show in so many is not
worth the time of the slower program."""

_WARM = 8
"""One in so many steps of a turn is run before the clock is read."""

_PATIENCE = 10
"""So often in a row a switch is tried while other threads keep the program busy."""


class ABTest:
    """Takes the times of one pair after the other, and says when it is decided.

    Parameters
    ----------
    alpha
        The greatest probability that the verdict is ever ``"new"`` if the new program is not faster.
    seed
        Of the coins. None: from the system.

    Examples
    --------
    >>> test = ABTest(seed=1)
    >>> while not test.verdict:
    ...     goes_first = test.new_first()
    ...     test.add(old=2.0, new=1.0)
    >>> test.verdict, test.pairs
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
        self.verdict: Literal["", "new", "hopeless"] = ""

    def new_first(self) -> bool:
        """Toss the coin of the next pair: whether the new program goes first."""
        self._new_first = bool(self._coins.getrandbits(1))
        return self._new_first

    def add(self, old: float, new: float) -> None:
        """Take the times of the pair that the coin was tossed for; both are positive."""
        self.pairs += 1
        difference = math.log(old / new)
        # How much longer the first of a pair has taken so far, whichever program that was.
        usual = sum(map(median, self._orders)) / 2 if all(self._orders) else 0.0
        self._orders[self._new_first].append(-difference if self._new_first else difference)
        difference += usual if self._new_first else -usual
        self._faster.bet(difference)
        self._not_faster.bet(math.log1p(_GAIN) - difference)
        if self._faster.capital() * self._alpha >= 1:
            self.verdict = "new"
        elif self._not_faster.capital() * _HOPELESS_ALPHA >= 1:
            self.verdict = "hopeless"

    def winnable(self, pairs: int) -> bool:
        """Return whether the new program can win within so many more pairs."""
        return self._faster.capital(pairs) * self._alpha >= 1


class _Bets:
    """What has become of bets on the sign of differences.

    A small difference, compared with the median so far, is bet on with less. A difference pays as much as its opposite
    costs: so bets are no better than fair where differences are no better than symmetric.
    """

    def __init__(self) -> None:
        self._capital = [part for _, part in _BETS]
        self._sizes: list[float] = []  # of the differences, sorted

    def bet(self, difference: float) -> None:
        size = abs(difference)
        if size < _NOTHING:
            size = 0.0
        insort(self._sizes, size)
        half = self._sizes[len(self._sizes) // 2] / 2
        outcome = math.copysign(min(size / half, 1.0) if half else float(size > 0), difference)
        self._capital = [part * (1 + share * outcome) for part, (share, _) in zip(self._capital, _BETS, strict=True)]

    def capital(self, wins: int = 0) -> float:
        """Return what a stake of 1 has become, or would after so many more wins."""
        return sum(part * (1 + share) ** wins for part, (share, _) in zip(self._capital, _BETS, strict=True))


class Turns(NamedTuple):
    """How long a turn of a program is, in steps."""

    warm: int
    """Steps before the clock is read."""
    timed: int

    @classmethod
    def of(cls, steps: int, step_seconds: float) -> Turns | None:
        """Return turns for a test over so many steps, or None where they are too few."""
        step_seconds = max(step_seconds, 1e-9)
        timed = max(1, min(math.ceil(_LONGEST / step_seconds), steps // (2 * _ENOUGH_PAIRS)))
        while timed > 1 and cls._lasting(timed).pairs_in(steps) < _ENOUGH_PAIRS:
            timed -= 1
        turns = cls._lasting(max(timed, math.ceil(_SHORTEST / step_seconds)))
        return turns if turns.pairs_in(steps) >= _FEWEST_PAIRS else None

    @classmethod
    def _lasting(cls, timed: int) -> Turns:
        return cls(math.ceil(timed / _WARM) if timed > 1 else 0, timed)

    def pairs_in(self, steps: int) -> int:
        """Return how many pairs of turns fit into so many steps."""
        return steps // (2 * (self.warm + self.timed))


class Runner(Protocol):
    """Runs two programs: number 0, the old one, and number 1, the new one."""

    @property
    def left(self) -> int:
        """How many steps are left to run."""

    def switch(self, program: int) -> bool:
        """Have a program run from now on; False if it cannot take the place of the other one."""

    def run(self, steps: int) -> float | None:
        """Run steps, and return the seconds that it took; None if fewer were to be run, so that nothing is left."""


class Comparison(NamedTuple):
    """How a test went."""

    won: bool
    """Whether the new program is faster."""
    old: list[float]
    """Seconds per step, by turn."""
    new: list[float]
    why: str
    """What decided it, as the end of a sentence."""


def compare(runner: Runner, steps: int, step_seconds: float, test: ABTest) -> Comparison:
    """Let two programs take turns until the test is decided, for at most so many of the steps that are left.

    `step_seconds` is about what a step takes.
    """
    times: tuple[list[float], list[float]] = [], []
    turns = Turns.of(steps, step_seconds)
    if turns is None:
        return Comparison(False, *times, f"{steps} more steps are too few to tell which one is faster")
    end = runner.left - steps
    why = ""
    while not (test.verdict or why):
        if not test.winnable(min(turns.pairs_in(runner.left - end), _MOST_PAIRS - test.pairs)):
            why = f"in {test.pairs} pairs of turns, another one was not found to be faster"
            break
        pair = [0.0, 0.0]
        for program in (1, 0) if test.new_first() else (0, 1):
            found = _take_turn(runner, program, turns)
            if isinstance(found, str):
                why = found
                break
            pair[program] = found
        else:
            for taken, seconds in zip(times, pair, strict=True):
                taken.append(seconds)
            test.add(*pair)
    if test.verdict:
        why = f"in {test.pairs} pairs of turns, {'it was' if test.verdict == 'new' else 'another one was not'} faster"
    return Comparison(test.verdict == "new", *times, why)


def _take_turn(runner: Runner, program: int, turns: Turns) -> float | str:
    """Run a turn of a program, and return the seconds of a step, or why that was not possible.

    While other threads keep the program busy, steps are run all the same, so that this has an end.
    """
    for _ in range(_PATIENCE):
        if runner.switch(program):
            break
        if runner.run(turns.timed) is None:
            return "other threads kept the program busy"
    else:
        return "other threads kept the program busy"
    if turns.warm and runner.run(turns.warm) is None:
        return "the run ended before it was decided"
    seconds = runner.run(turns.timed)
    return "the run ended before it was decided" if seconds is None else max(seconds, 1e-9) / turns.timed
