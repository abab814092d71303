"""What tuning found of one case, as it is remembered: one run in the store, one attempt for each variant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.tune.candidate import Candidate
from ostinato.tune.canonical import canonical
from ostinato.tune.graphs.cases.circumstance import Checked, Circumstance
from ostinato.tune.outcome import OpOutcome
from ostinato.tune.status import Status
from ostinato.tune.store.attempt import attempt
from ostinato.tune.store.damage import Damaged
from ostinato.tune.store.database import Row

__all__ = ["Entry", "Record", "operation_of"]

_SHARED = {"kind": "case"}
_DESCRIPTION = canonical(_SHARED)


def operation_of(task: str) -> str:
    """Return the operation under which the store has the cases of a task."""
    return f"graph: {task}"


@dataclass(frozen=True, eq=False)
class Entry(Candidate):
    """What the store has in place of a candidate: its configuration says what was found."""

    def shared(self) -> dict[str, Any]:
        return _SHARED


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """What tuning found of one case.

    Attributes
    ----------
    places
        Of each outcome, which of the case's declared variants it is of.
    outcomes
        What these came to.
    winner
        The place of the fastest correct variant; the default's, 0, unless another is faster beyond the noise. None
        where none is correct: that is remembered so that none is run, but answers no tuning.
    ties
        The places of those that cannot be told from the fastest.
    rtol
        How much the outputs of a variant may differ from the default's.
    complete
        Whether time was left for all variants.
    checked
        The circumstances in which outputs were compared.
    time
        Seconds since 1970.
    """

    places: tuple[int, ...]
    outcomes: tuple[OpOutcome, ...]
    winner: int | None
    ties: tuple[int, ...]
    rtol: float
    complete: bool
    checked: Checked
    time: float

    def entry(self) -> Entry:
        """Return what the store has of it besides the outcomes."""
        return Entry(
            {
                "places": list(self.places),
                "winner": self.winner,
                "ties": list(self.ties),
                "rtol": self.rtol,
                "complete": self.complete,
                "checked": self.checked.plain(),
            }
        )

    @classmethod
    def read(cls, rows: Sequence[Row], config: str, description: str) -> Record | None:
        """Return the record that a run of the store is; None if it is something else.

        Raises
        ------
        Damaged
            It was a record, and changed since.
        """
        if description != _DESCRIPTION:
            return None
        try:
            entry: Mapping[str, Any] = json.loads(config)
            record = cls(
                places=tuple(map(int, entry["places"])),
                outcomes=tuple(map(attempt, rows)),
                winner=None if entry["winner"] is None else int(entry["winner"]),
                ties=tuple(map(int, entry["ties"])),
                rtol=float(entry["rtol"]),
                complete=bool(entry["complete"]),
                checked=Checked(Circumstance(layout, scalars) for layout, scalars in entry["checked"]),
                time=rows[0].time,
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Damaged(f"it is no record: {error}") from error
        known = set(record.places)
        best = {*record.ties} if record.winner is None else {record.winner, *record.ties}
        whole = len(record.places) == len(known) == len(record.outcomes) and best <= known
        if not whole or min(known, default=0) < 0 or not 0 <= record.rtol < 1:
            raise Damaged("it is no record: its parts contradict each other")
        if record.winner is not None and not record.samples(record.winner):
            raise Damaged("it is no record: its winner has no samples")
        return record

    @property
    def right(self) -> set[int]:
        """The places of the variants whose outputs were the default's."""
        pairs = zip(self.places, self.outcomes, strict=True)
        return {place for place, outcome in pairs if outcome.status in (Status.OK, Status.RACED)}

    @property
    def out(self) -> dict[int, OpOutcome]:
        """What became of the variants that are known not to do what the default does, by place.

        Not of those that could not be compared with it.
        """
        pairs = zip(self.places, self.outcomes, strict=True)
        others = (Status.OK, Status.RACED, Status.INVALID)
        return {place: outcome for place, outcome in pairs if outcome.status not in others}

    def samples(self, place: int) -> tuple[float, ...]:
        """Return the times of a variant in ns; none if it was not measured, or is wrong."""
        return self.outcomes[self.places.index(place)].samples if place in self.right else ()

    def answers(self, rtol: float, checked: Checked) -> bool:
        """Whether tuning once more would find the same."""
        if self.winner is None or not self.complete or not self.checked.includes(checked):
            return False
        wrong = any(outcome.status is Status.WRONG_RESULT for outcome in self.outcomes)
        return self.rtol == rtol or (self.rtol < rtol and not wrong)
