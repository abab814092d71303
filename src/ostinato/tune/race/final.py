"""The final of a race: few candidates, measured in turn until they can be told apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ostinato.tune.race.stopping import hopeless, interval, median

__all__ = ["ROUNDS", "EntryKey", "Final"]

EntryKey = tuple[str, str]
"""What is compared: a candidate's id, and an op."""

ROUNDS = 15
"""Most rounds of a final: who cannot be told apart by then ties."""

_FEWEST = 6
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

    It is settled when one is left, when all that are left are equal within the precision asked for, or after `ROUNDS`;
    from the second round on if all that was observed of them is the same but for a hundredth of the precision.

    How surely: of finalists that are all equally fast, each is beaten with a probability of 1/20 if their noise is
    alike, and of 1/10 at most if it is not. It falls fast where there is a difference, and so where it matters who
    wins: a finalist that is faster than all others by the standard deviation of a turn is beaten in less than one of
    fifty finals. These are not theorems, but what `tests/tune/test_final.py` holds it to.

    Parameters
    ----------
    field
        The finalists.
    precision
        Relative difference that is of no interest.

    Examples
    --------
    >>> a, b = ("a", "matmul"), ("b", "matmul")
    >>> final = Final([a, b], 0.01)
    >>> while due := final.due():
    ...     final.turn(due[0], [1.0 if due[0] == a else 1.1])
    >>> final.rounds, final.standing
    (6, [('a', 'matmul')])
    """

    def __init__(self, field: Sequence[EntryKey], precision: float) -> None:
        self.field = list(field)
        self.standing = list(field)
        self.rounds = 0
        self.settled = len(self.field) < 2
        self._precision = precision
        self._turns: dict[EntryKey, dict[int, list[float]]] = {entry: {} for entry in field}  # by round
        self._playing: dict[str, int] = {}  # the round of each place

    def due(self, place: str | None = None) -> list[EntryKey]:
        """Return who has not had a turn in a round, in the order of their turns; nobody if it is settled.

        Parameters
        ----------
        place
            Where the round is played: the one that was begun there, or else the next. Before there are enough rounds
            to tell who has won, no others begin. None: the first that is not complete.
        """
        if self.settled:
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
        if self.settled or entry not in self.standing or number < self.rounds:
            return
        self._turns[entry].setdefault(number, []).extend(samples)
        while not self.settled and not self._left(self.rounds):
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
        for number in range(self.rounds, _FEWEST if self.rounds < _FEWEST else ROUNDS):
            if number not in taken and self._left(number):
                yield number

    @property
    def decides(self) -> bool:
        """Whether there have been enough rounds to tell who has won."""
        return (self.settled and self.rounds > 0) or self.rounds >= _FEWEST

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
        if self.rounds >= _FEWEST:
            times = self.times()
            least = min(times[entry][2] for entry in self.standing)
            self.standing = [entry for entry in self.standing if times[entry][0] <= least]
            lowest = min(times[entry][0] for entry in self.standing)
            highest = max(times[entry][2] for entry in self.standing)
            self.settled = highest <= lowest * (1 + 2 * self._precision)
        elif self.rounds >= 2:
            # There is no noise to speak of, and no difference: simulated devices, programs that print constants.
            seen = [value for entry in self.standing for value in self._observed()[entry]]
            self.settled = max(seen) <= min(seen) * (1 + _NOTHING * self._precision)
        self.settled = self.settled or len(self.standing) < 2 or self.rounds == ROUNDS
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
