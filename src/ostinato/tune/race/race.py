"""The race: which candidates are cut, which are measured again, and which has won.

Values in, values out: no clock, no process, no chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ostinato.tune.policy import Policy
from ostinato.tune.race.bounds import Bounds
from ostinato.tune.race.final import ROUNDS, EntryKey, Final
from ostinato.tune.race.speeds import Place, Speeds
from ostinato.tune.race.stopping import cut, interval, median, upper

__all__ = ["EntryKey", "Race", "Verdict"]

_FIELD = 8
"""Most finalists."""

_TURN = 3
"""Samples of one turn in the final."""

_FEWEST = 6
"""Samples, of fewer there is no interval."""

_DOUBT = 1.5
"""How far a time may be off that is known by few samples."""

_SHORTEST = 1e-3
"""ns; what the clock calls nothing at all counts as this, so that ratios exist."""


class Verdict(NamedTuple):
    """Who won.

    Attributes
    ----------
    best
        The winner; None if nobody is left.
    ties
        Those that cannot be told from the winner, the winner first.
    """

    best: EntryKey | None
    ties: tuple[EntryKey, ...]


class _Screened(NamedTuple):
    """What the screening found of an entry."""

    place: Place
    ordered: list[float]
    workspace: int


class Race:
    """Which candidates are cut, which are measured again, and which has won.

    In the screening every candidate is measured once, somewhere, some time. Whoever is measured gets a bound along and
    is cut as soon as it is surely slower (`cut`). In the final the eight that look best, the default among them however
    it looks, are measured in turn; see `Final`.

    The bound is the least upper confidence bound of a median so far, plus the precision asked for. Where it comes from
    another device, or from before the device's last anchor, it is widened by what the anchors leave open.

    How surely: the fastest of all is cut with a probability of at most 1/20 + M/128, where M is the number of others
    that are as fast as it is; the default policy's seven samples are what 128 stands for. Both terms are for the
    worst, where the others are so close that it makes no difference who wins: a candidate is cut far more seldom if a
    good part of its samples is below the bound. 1/20 is the level of a test that may be made after each sample
    (`lower_rank`); 1/128 is the chance that all of seven samples of a candidate are below its median, so that it sets
    too low a bound. Two things are assumed: that no noise makes the first samples `hopeless`, and that samples are
    independent. A candidate that something slows down for as long as it is measured is cut, as it would be misjudged
    by any number of samples in a row. The final therefore measures in turns.

    Whoever was cut by the bound of a candidate that failed later is in the race again.

    Parameters
    ----------
    default
        The entry that wins unless another is surely faster.
    policy
        How candidates are measured.

    Examples
    --------
    >>> import ostinato as ost
    >>> a, b, c = (("a", "op"), ("b", "op"), ("c", "op"))
    >>> race = Race(default=None, policy=ost.Policy())
    >>> race.measured(a, "cpu:0", [10.0] * 7, 0)
    >>> race.bound("cpu:0")
    10.1
    >>> race.measured(b, "cpu:0", [30.0] * 2, 0)
    >>> race.measured(c, "cpu:0", [9.0] * 7, 0)
    >>> while due := race.finalists():
    ...     race.final(due[0], [10.0 if due[0] == a else 9.0])
    >>> race.verdict().best
    ('c', 'op')
    """

    def __init__(self, *, default: EntryKey | None, policy: Policy) -> None:
        self.default = default
        self.policy = policy
        self.turn = replace(
            policy,
            min_samples=min(_TURN, policy.min_samples),
            rel_ci=1e9,  # as many samples as asked for, however they scatter
            max_seconds=policy.max_seconds / ROUNDS,
        )
        self._speeds = Speeds()
        self._screened: dict[EntryKey, _Screened] = {}
        self._bounds = Bounds(self._speeds)
        self._final: Final | None = None

    @property
    def factors(self) -> dict[str, float]:
        """How many times slower than the fastest each anchored device is."""
        return self._speeds.factors

    @property
    def drift(self) -> dict[str, float]:
        """By which part each anchored device has become slower since its first anchor."""
        return self._speeds.drift

    def measured(self, entry: EntryKey, device: str, samples: Sequence[float], workspace: int = 0) -> None:
        """Note samples of the screening, be it all or those until the entry was cut; they replace earlier ones.

        A result of another time (out of the store) is given a device of its own, such as ``"store:cpu:0"``: it is
        ranked with the others, but sets no bound for other devices until that device is anchored, too.

        Raises
        ------
        ValueError
            If there are no samples, or one is negative or not finite.
        """
        if entry in self._screened:
            self._forget(entry)
        place = self._speeds.place(device)
        screened = _Screened(place, _checked(samples), workspace)
        self._screened[entry] = screened
        self._final = None
        self._bounds.measured(entry, place, upper(screened.ordered))

    def failed(self, entry: EntryKey) -> None:
        """Take an entry out of the race: it failed in the screening or in the final, which then starts anew."""
        if entry in self._screened:
            self._forget(entry)

    def anchored(self, device: str, samples: Sequence[float]) -> None:
        """Note samples of the anchor: one candidate, the same for all devices, measured from time to time on each."""
        self._speeds.anchored(device, _checked(samples))
        self._bounds.anchored(device)
        if self._final is not None and not self._final.rounds:
            self._final = None

    def bound(self, device: str) -> float | None:
        """Return the time in ns that a candidate on this device has to beat; None if there is none yet."""
        return self._bound(self._speeds.place(device))

    def cut(self, entry: EntryKey) -> bool:
        """Return whether what was measured of an entry would have it cut by what is known now."""
        screened = self._screened[entry]
        bound = self._bound(screened.place)
        return bound is not None and cut(screened.ordered, bound)

    def finalists(self, device: str | None = None) -> list[EntryKey]:
        """Return who is due in a round of the final, in order; nobody if all is decided, or no other round may begin.

        The screening must be over.

        Parameters
        ----------
        device
            Where the round is played; None: the first round that is not complete, wherever. See `Final`.
        """
        if self._final is None:
            field = self._field()
            # Times that are all the same number, as of commands that print constants, would be so again.
            constant = len({sample for entry in field for sample in self._screened[entry].ordered}) == 1
            self._final = Final(field[:1] if constant else field, self.policy.rel_ci)
        return self._final.due(device)

    def final(self, entry: EntryKey, samples: Sequence[float], device: str | None = None) -> None:
        """Note samples of an entry in the round of a device; those of an entry that needs none change nothing."""
        if self._final is not None:
            self._final.turn(entry, _checked(samples), device)

    def leave(self, device: str) -> None:
        """Forget the round of the final that a device has begun and cannot end."""
        if self._final is not None:
            self._final.leave(device)

    @property
    def started(self) -> bool:
        """Whether the final goes on: where a finalist has failed, it starts from the beginning."""
        return self._final is not None

    @property
    def decided(self) -> bool:
        """Whether the final, if there is one, has come to where its result can be read."""
        return self._final is None or self._final.settled or self._final.decides

    def settled(self) -> bool:
        """Return whether there is nothing to measure again."""
        return not self.finalists()

    def verdict(self) -> Verdict:
        """Return who won, by what is known: the final if its result can be read already, or else the screening.

        Among those that cannot be told apart the default wins. Without it, of those that are as fast as the fastest
        within the precision asked for, who needs less workspace wins, then the smaller id.
        """
        if self._final is not None and self._final.decides:
            times, standing = self._final.times(), self._final.standing
        else:
            times = {entry: self._doubted(entry, *each) for entry, each in self._times().items()}
            least = min((high for _, _, high in times.values()), default=math.inf)
            standing = [entry for entry, (low, _, _) in times.items() if low <= least and not self.cut(entry)]
        limit = min((times[entry][1] for entry in standing), default=math.inf) * (1 + self.policy.rel_ci)

        def preference(entry: EntryKey) -> tuple[bool, bool, int, EntryKey]:
            return entry != self.default, times[entry][1] > limit, self._screened[entry].workspace, entry

        ties = tuple(sorted(standing, key=preference))
        return Verdict(ties[0] if ties else None, ties)

    def _doubted(self, entry: EntryKey, low: float, middle: float, high: float) -> tuple[float, float, float]:
        """Widen what is called an interval where there are too few samples for one."""
        if len(self._screened[entry].ordered) >= _FEWEST:
            return low, middle, high
        return low / _DOUBT, middle, high * _DOUBT

    def _forget(self, entry: EntryKey) -> None:
        self._bounds.forget(entry, self._screened.pop(entry).place)
        self._final = None

    def _bound(self, place: Place) -> float | None:
        least = self._bounds.at(place)
        return least * (1 + self.policy.rel_ci) if least < math.inf else None

    def _field(self) -> list[EntryKey]:
        """Return the finalists: the best that were not cut, and the default."""
        times = self._times()
        rivals = [entry for entry in self._screened if entry != self.default and not self.cut(entry)]
        rivals.sort(key=lambda entry: (times[entry][1], entry))
        if self.default in self._screened:
            return [self.default, *rivals[: _FIELD - 1]]
        return rivals[:_FIELD]

    def _times(self) -> dict[EntryKey, tuple[float, float, float]]:
        """Return of each entry the median, between the ends of its interval, as the fastest device would take."""
        factors = {place: self._speeds.factor(place) for place in {each.place for each in self._screened.values()}}
        times = {}
        for entry, screened in self._screened.items():
            factor = factors[screened.place]
            low, high = interval(screened.ordered)
            times[entry] = low / factor, median(screened.ordered) / factor, high / factor
        return times


def _checked(samples: Sequence[float]) -> list[float]:
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples; an entry without any has failed")
    if not all(map(math.isfinite, ordered)) or ordered[0] < 0:
        raise ValueError(f"times must be finite and not negative, got {list(samples)}")
    return ordered if ordered[0] >= _SHORTEST else [max(sample, _SHORTEST) for sample in ordered]
