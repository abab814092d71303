"""A duel of two programs over steps that are to be run anyway."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from ostinato.runtime.duel import Duel

__all__ = ["Arena", "Contest", "Slots", "contest"]

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
