"""Who has won: by the store, or by a final."""

from __future__ import annotations

from ostinato.tune.known import Known
from ostinato.tune.ledger import Ledger
from ostinato.tune.race.race import Race
from ostinato.tune.result import Result
from ostinato.tune.rounds import Rounds
from ostinato.tune.search import Search

__all__ = ["settle"]


def settle(search: Search, race: Race, ledger: Ledger, known: Known) -> tuple[Result | None, tuple[Result, ...]]:
    """Return the winner and its ties: from the store, if it holds the verdict over exactly these results."""
    about = race.default
    stored = ledger.ties(known.verdict(about)) if not search.measured else None
    if stored is not None:
        return (stored[0] if stored else None), stored
    decided = Rounds(search, race, ledger).play()
    entries = list(race.verdict().ties) or ledger.timeless()
    measured = list(ledger.settled())
    if decided:
        for each in measured:
            known.add(each.trial, each.outcome, each.device, first=each.first)
        known.set_verdict([list(entry) for entry in entries], about)
    ties = tuple(ledger.result(*entry) for entry in entries)
    return (ties[0] if ties else None), ties
