"""Which candidates are cut, and which one wins: values in, values out, without a clock or a process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop
from typing import NamedTuple

from ostinato.tune.policy import Policy
from ostinato.tune.stopping import cut, hopeless, interval, median, upper

UNEVEN = 1.05
"""A device that is x times slower for the reference is taken to be x times slower for every candidate within 5 %."""


class Place(NamedTuple):
    """A device, and how many times the reference had been measured on it: between two references its speed is one."""

    device: str
    epoch: int


class _Reference(NamedTuple):
    low: float
    middle: float
    high: float


class Speeds:
    """How fast devices are, by a reference: one candidate, measured on each of them, and again from time to time.

    A measurement between two references of its device counts with the geometric mean of both, so a slow drift cancels.
    """

    def __init__(self) -> None:
        self._references: dict[str, list[_Reference]] = {}
        self._places: dict[str, Place] = {}  # of each device, now
        self._scales: dict[Place, tuple[float, float] | None] = {}

    def add_reference(self, device: str, samples: Sequence[float]) -> None:
        """Note that the reference was measured on a device."""
        ordered = sorted(samples)
        low, high = interval(ordered)
        self._scales.pop(self.place(device), None)  # of all places, this is the one that the reference ends
        self._references.setdefault(device, []).append(_Reference(low, median(ordered), high))
        self._places.pop(device, None)

    def place(self, device: str) -> Place:
        """Return where a measurement on a device belongs that is made now."""
        place = self._places.get(device)
        if place is None:
            place = self._places[device] = Place(device, len(self._references.get(device, ())))
        return place

    def factor(self, place: Place) -> float:
        """Return how many times slower a place is than the fastest device; 1 if no reference was measured there."""
        around = self._around(place)
        if not around:
            return 1.0
        fastest = min(references[-1].middle for references in self._references.values())
        return math.sqrt(around[0].middle * around[-1].middle) / fastest

    def scale(self, place: Place) -> tuple[float, float] | None:
        """Return between which values the reference's median lay at a place; None if it was not measured there."""
        if place not in self._scales:
            around = self._around(place)
            ends = [each.low for each in around], [each.high for each in around]
            self._scales[place] = (min(ends[0]), max(ends[1])) if around else None
        return self._scales[place]

    def _around(self, place: Place) -> list[_Reference]:
        return self._references.get(place.device, [])[max(place.epoch - 1, 0) : place.epoch + 1]


class Bounds:
    """The least upper bound of all measurements, carried to any place.

    The reference relates the bounds of places: its least time where the bound was measured, its greatest where it is
    to hold. That ratio is the same for all bounds of a place, and does not change once the reference was measured
    again. So one number stands for all the places that a device has behind it, however many there are.
    """

    def __init__(self, speeds: Speeds) -> None:
        self._speeds = speeds
        self._bounds: dict[Place, dict[object, float]] = {}  # of all that was measured there
        self._uppers: dict[Place, float] = {}  # the least of them
        self._behind: dict[str, float] = {}  # of each device, over the places behind it: the least bound / reference
        self._least: tuple[float, str] | None = None  # the least of all devices, and whose it is
        self._found: dict[Place, float] = {}  # what `at` returned since something changed

    def measured(self, entry: object, place: Place, bound: float) -> None:
        """Note the upper bound of an entry that was measured just now."""
        bounds = self._bounds.get(place)
        if bounds is None:
            bounds = self._bounds[place] = {}
        bounds[entry] = bound
        if bound < self._uppers.get(place, math.inf):
            self._uppers[place] = bound
            self._changed()

    def forget(self, entry: object, place: Place) -> None:
        """Take back what was measured of an entry."""
        bounds = self._bounds[place]
        if bounds.pop(entry) > self._uppers.get(place, math.inf):
            return
        self._uppers[place] = min(bounds.values(), default=math.inf)
        last = self._speeds.place(place.device).epoch
        behind = (self._over_reference(Place(place.device, epoch)) for epoch in range(last))
        self._behind[place.device] = min(behind, default=math.inf)
        self._changed()

    def add_reference(self, device: str) -> None:
        """Note that the reference was measured on a device: what was measured there before lies behind it."""
        passed = Place(device, self._speeds.place(device).epoch - 1)
        self._behind[device] = min(self._behind.get(device, math.inf), self._over_reference(passed))
        self._changed()

    def at(self, place: Place) -> float:
        """Return the least bound at a place; infinity if there is none."""
        if place not in self._found:
            self._found[place] = self._at(place)
        return self._found[place]

    def _at(self, place: Place) -> float:
        own = self._uppers.get(place, math.inf)
        scale = self._speeds.scale(place)
        if scale is None:
            return own
        if self._least is None:
            self._least = min(((self._of(device), device) for device in self._behind), default=(math.inf, ""))
        least, device = self._least
        if place.device != device:
            least = min(self._of(place.device), least * UNEVEN)
        return min(own, scale[1] * least)

    def _changed(self) -> None:
        self._least = None
        self._found.clear()

    def _of(self, device: str) -> float:
        """Return the least of a device's bounds, each divided by the least time of the reference where it is from."""
        return min(self._behind.get(device, math.inf), self._over_reference(self._speeds.place(device)))

    def _over_reference(self, place: Place) -> float:
        bound, scale = self._uppers.get(place, math.inf), self._speeds.scale(place)
        return math.inf if scale is None else bound / scale[0]


EntryKey = tuple[str, str]
"""What is compared: a candidate's id, and an op."""

ROUNDS = 15
"""Most rounds of a final: who cannot be told apart by then ties."""

_FEWEST_ROUNDS = 6
"""Fewest rounds after which intervals are compared: of fewer observations there is none."""

_NOTHING = 0.01
"""A part of the precision that is neither noise nor a difference."""


class Final:
    """Rounds in which every finalist has one turn, in an order that is turned round in every second and rotates.

    The median of a turn counts as one observation, however many samples it has, for samples of one turn share what
    disturbs them. What disturbs a whole round (drift, a busy neighbour) is divided out: by how much slower than usual
    the middle half of the finalists were in it. From the sixth round on, who has a confidence interval (95 %, by order
    statistics) above that of another is beaten and has no more turns; before, who is `hopeless` beside another in every
    round.

    A round is played at one place, so that the speed of a device is divided out like all that disturbs a round. Several
    places may play a round each at the same time. The rounds are judged in their order, each as if those after it had
    not begun: what is found is what one place alone would have found from the same times.

    It is confirmed when one is left, when all that are left are equal within the precision asked for, or after
    `ROUNDS`; from the second round on also if all that was observed of them is the same but for a hundredth of the
    precision.

    How surely: of finalists that are all equally fast, each is beaten with a probability of 1/20 if their noise is
    alike, and of 1/10 at most if it is not. It falls fast where there is a difference, and so where it matters who
    wins: a finalist that is faster than all others by the standard deviation of a turn is beaten in less than one of
    fifty finals. These are not theorems, but what `tests/unit/tune/test_final.py` holds it to.
    """

    def __init__(self, field: Sequence[EntryKey], precision: float) -> None:
        self.field = list(field)
        self.standing = list(field)
        self.rounds = 0
        self.confirmed = len(self.field) < 2
        self._precision = precision
        self._turns: dict[EntryKey, dict[int, list[float]]] = {entry: {} for entry in field}  # by round
        self._playing: dict[str, int] = {}  # the round of each place

    def due(self, place: str | None = None) -> list[EntryKey]:
        """Return who has not had a turn in the round of a place, in order; nobody if it is confirmed.

        A place without a round begins the next, but before there are enough rounds to tell who has won, no others.
        Without a place: the first round that is not complete.
        """
        if self.confirmed:
            return []
        if place is None:
            return self._left(self.rounds)
        playing = self._playing.get(place, -1)
        if playing < self.rounds or not self._left(playing):
            self._playing.pop(place, None)
            following = next(self._free(), None)
            if following is None:
                return []
            playing = self._playing[place] = following
        return self._left(playing)

    def turn(self, entry: EntryKey, samples: Sequence[float], place: str | None = None) -> None:
        """Note a finalist's turn in the round of a place, or more samples of it; of others, nothing."""
        number = self.rounds if place is None else self._playing.get(place, -1)
        if self.confirmed or entry not in self.standing or number < self.rounds:
            return
        self._turns[entry].setdefault(number, []).extend(samples)
        while not self.confirmed and not self._left(self.rounds):
            self.rounds += 1
            self._judge()

    def leave(self, place: str) -> None:
        """Forget the round that a place has begun: another begins it again."""
        number = self._playing.pop(place, -1)
        if number >= self.rounds and self._left(number):
            for turns in self._turns.values():
                turns.pop(number, None)

    def _left(self, number: int) -> list[EntryKey]:
        """Return who has not had a turn in a round."""
        shift = number // 2 % len(self.field)
        order = self.field[shift:] + self.field[:shift]
        if number % 2:
            order.reverse()
        return [entry for entry in order if entry in self.standing and number not in self._turns[entry]]

    def _free(self) -> Iterator[int]:
        """Yield the rounds that may begin."""
        taken = set(self._playing.values())
        for number in range(self.rounds, _FEWEST_ROUNDS if self.rounds < _FEWEST_ROUNDS else ROUNDS):
            if number not in taken and self._left(number):
                yield number

    @property
    def decides(self) -> bool:
        """Whether there have been enough rounds to tell who has won."""
        return (self.confirmed and self.rounds > 0) or self.rounds >= _FEWEST_ROUNDS

    def times(self) -> dict[EntryKey, tuple[float, float, float]]:
        """Return of each finalist the median, between the ends of its interval, freed of what disturbed rounds."""
        observed = self._observed()
        usual = {entry: median(sorted(values)) for entry, values in observed.items()}
        slower = [
            _middle([values[index] / usual[entry] for entry, values in observed.items() if len(values) > index])
            for index in range(self.rounds)
        ]
        found = {}
        for entry, values in observed.items():
            ordered = sorted(value / slower[index] for index, value in enumerate(values))
            low, high = interval(ordered)
            found[entry] = low, median(ordered), high
        return found

    def _observed(self) -> dict[EntryKey, list[float]]:
        """Return one observation per finalist and complete round."""
        return {
            entry: [median(sorted(turns[number])) for number in range(self.rounds) if number in turns]
            for entry, turns in self._turns.items()
            if self.rounds
        }

    def _judge(self) -> None:
        stood = self.standing
        self.standing = self._not_hopeless()
        if self.rounds >= _FEWEST_ROUNDS:
            times = self.times()
            least = min(times[entry][2] for entry in self.standing)
            self.standing = [entry for entry in self.standing if times[entry][0] <= least]
            lowest = min(times[entry][0] for entry in self.standing)
            highest = max(times[entry][2] for entry in self.standing)
            self.confirmed = highest <= lowest * (1 + 2 * self._precision)
        elif self.rounds >= 2:
            # There is no noise to speak of, and no difference: simulated devices, programs that print constants.
            seen = [value for entry in self.standing for value in self._observed()[entry]]
            self.confirmed = max(seen) <= min(seen) * (1 + _NOTHING * self._precision)
        self.confirmed = self.confirmed or len(self.standing) < 2 or self.rounds == ROUNDS
        for entry in set(stood).difference(self.standing):  # no round after this one is judged by it
            self._turns[entry] = {number: turn for number, turn in self._turns[entry].items() if number < self.rounds}

    def _not_hopeless(self) -> list[EntryKey]:
        observed = self._observed()
        times = hopeless(self.rounds)
        return [
            entry
            for entry in self.standing
            if not any(
                all(mine > times * others for mine, others in zip(observed[entry], observed[other], strict=True))
                for other in self.standing
            )
        ]


def _middle(ratios: list[float]) -> float:
    """Return the geometric mean of the middle half of ratios.

    Not their median: of three finalists it would be one's own ratio in each round, whose interval would so shrink.
    """
    ordered = sorted(ratios)
    outside = len(ordered) // 4
    inside = ordered[outside : len(ordered) - outside]
    return math.exp(sum(map(math.log, inside)) / len(inside))


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
    """Who won."""

    best: EntryKey | None
    ties: tuple[EntryKey, ...]


class _Screened(NamedTuple):
    """What the screening found of an entry."""

    place: Place
    ordered: tuple[float, ...]  # a list would keep the garbage collector busy
    workspace: int


class Race:
    """Which candidates are cut, which are measured again, and which has won.

    In the screening every candidate is measured once, somewhere, some time. Whoever is measured gets a bound along and
    is cut as soon as it is surely slower (`cut`). In the final the eight that look best, the default among them however
    it looks, are measured in turn; see `Final`.

    The bound is the least upper confidence bound of a median so far, plus the precision asked for. Where it comes from
    another device, or from before the device's last reference, it is widened by what the references leave open.

    How surely: the fastest of all is cut with a probability of at most 1/20 + M/128, where M is the number of others
    that are as fast as it is; the default policy's seven samples are what 128 stands for. Both terms are for the
    worst, where the others are so close that it makes no difference who wins: a candidate is cut far more seldom if a
    good part of its samples is below the bound. 1/20 is the level of a test that may be made after each sample
    (`lower_rank`); 1/128 is the chance that all of seven samples of a candidate are below its median, so that it sets
    too low a bound. Two things are assumed: that no noise makes the first samples `hopeless`, and that samples are
    independent. A candidate that something slows down for as long as it is measured is cut, as it would be misjudged
    by any number of samples in a row. The final therefore measures in turns.

    Whoever was cut by the bound of a candidate that failed later is in the race again.
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

    def measured(self, entry: EntryKey, device: str, samples: Sequence[float], workspace: int = 0) -> None:
        """Note samples of the screening, be it all or those until the entry was cut; they replace earlier ones.

        A result of another time (out of the store) is given a device of its own, such as ``"store:cpu:0"``: it is
        ranked with the others, but sets no bound for other devices until that device has measured it, too.
        """
        if entry in self._screened:
            self._forget(entry)
        place = self._speeds.place(device)
        ordered = _checked(samples)
        self._screened[entry] = _Screened(place, ordered, workspace)
        self._final = None
        self._bounds.measured(entry, place, upper(ordered))

    def failed(self, entry: EntryKey) -> None:
        """Take an entry out of the race: it failed in the screening or in the final, which then starts again."""
        if entry in self._screened:
            self._forget(entry)

    def add_reference(self, device: str, samples: Sequence[float]) -> None:
        """Note samples of the reference: the one candidate that each device measures from time to time."""
        self._speeds.add_reference(device, _checked(samples))
        self._bounds.add_reference(device)
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
        return self._final is None or self._final.confirmed or self._final.decides

    def verdict(self) -> Verdict:
        """Return who won, by what is known: the final if its result can be read already, or else the screening.

        Among those that cannot be told apart the default wins. Without it, of those that are as fast as the fastest
        within the precision asked for, who needs less workspace wins, then the smaller id.
        """
        if self._final is not None and self._final.decides:
            times, standing = self._final.times(), self._final.standing
        else:
            times = self._times()
            least = min((high for _, _, high in times.values()), default=math.inf)
            standing = [entry for entry, (low, _, _) in times.items() if low <= least and not self.cut(entry)]
        limit = min((times[entry][1] for entry in standing), default=math.inf) * (1 + self.policy.rel_ci)
        order = sorted(
            (entry != self.default, times[entry][1] > limit, self._screened[entry].workspace, entry)
            for entry in standing
        )
        ties = tuple(entry for *_, entry in order)
        return Verdict(ties[0] if ties else None, ties)

    def _forget(self, entry: EntryKey) -> None:
        self._bounds.forget(entry, self._screened.pop(entry).place)
        self._final = None

    def _bound(self, place: Place) -> float | None:
        least = self._bounds.at(place)
        return least * (1 + self.policy.rel_ci) if least < math.inf else None

    def _field(self) -> list[EntryKey]:
        """Return the finalists: the best that were not cut, and the default."""
        factors = self._factors()
        order = [(median(ordered) / factors[place], entry) for entry, (place, ordered, _) in self._screened.items()]
        heapify(order)
        field = [self.default] if self.default in self._screened else []
        while order and len(field) < _FIELD:
            _, entry = heappop(order)
            if entry != self.default and not self.cut(entry):
                field.append(entry)
        return field

    def _factors(self) -> dict[Place, float]:
        return {place: self._speeds.factor(place) for place in {each.place for each in self._screened.values()}}

    def _times(self) -> dict[EntryKey, tuple[float, float, float]]:
        """Return of each entry the median, between the ends of its interval, as the fastest device would take.

        The range of fewer than `_FEWEST` samples is no confidence interval; it is widened.
        """
        factors = self._factors()
        times = {}
        for entry, (place, ordered, _) in self._screened.items():
            factor = factors[place]
            low, high = interval(ordered)
            if len(ordered) < _FEWEST:
                low, high = low / _DOUBT, high * _DOUBT
            times[entry] = low / factor, median(ordered) / factor, high / factor
        return times


def _checked(samples: Sequence[float]) -> tuple[float, ...]:
    ordered = tuple(sorted(samples))
    if not ordered:
        raise ValueError("no samples; an entry without any has failed")
    if not all(map(math.isfinite, ordered)) or ordered[0] < 0:
        raise ValueError(f"times must be finite and not negative, got {list(samples)}")
    return ordered if ordered[0] >= _SHORTEST else tuple(max(sample, _SHORTEST) for sample in ordered)
