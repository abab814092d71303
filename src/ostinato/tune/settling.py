"""The final: who may have won is measured again, in turns, on one device."""

from __future__ import annotations

from ostinato.tune.known import Known
from ostinato.tune.ledger import Ledger
from ostinato.tune.race.race import EntryKey, Race
from ostinato.tune.result import Result
from ostinato.tune.search import Search

__all__ = ["settle"]

_REPEATS = 3  # of turns that say nothing, one after the other


def settle(search: Search, race: Race, ledger: Ledger, known: Known) -> tuple[Result | None, tuple[Result, ...]]:
    """Return the winner and its ties: from the store, if it holds the verdict over exactly these results."""
    about = race.default
    stored = known.verdict(about) if not search.measured else None
    if stored is not None:
        entries = [tuple(entry) for entry in stored]
        ties = tuple(ledger.result(*entry) for entry in entries)
        return (ties[0] if ties else None), ties
    decided = _final(search, race, ledger)
    entries = list(race.verdict().ties) or ledger.timeless()
    measured = list(ledger.settled())
    if decided:
        for each in measured:
            known.add(each.trial, each.outcome, each.device, first=each.first)
        known.set_verdict([list(entry) for entry in entries], about)
    ties = tuple(ledger.result(*entry) for entry in entries)
    return (ties[0] if ties else None), ties


def _final(search: Search, race: Race, ledger: Ledger) -> bool:
    """Measure the finalists in turns; return whether nothing is left to be decided.

    One device serves them all, and nothing is built meanwhile: what is left of the noise hits them alike.
    """
    due: list[EntryKey] = race.finalists()
    if not due or search.spent:
        return not due
    search.build([ledger.trial(candidate) for candidate, _ in due])
    station = search.lease()
    failures = 0
    # Once its result can be read, it goes on no longer than all that was measured before took, or one candidate may.
    end = search.seconds + max(search.seconds, race.policy.max_seconds)
    while station is not None and failures < _REPEATS and (due := race.finalists()):
        if search.spent or (search.seconds > end and race.decided):
            break
        trial = ledger.trial(due[0][0])
        search.build([trial])  # who has come in for one that failed may have to be built
        if race.finalists() != due:
            continue
        search.measure(trial, station, "final")
        failures = failures + 1 if race.finalists()[:1] == due[:1] else 0
        station = search.lease() if station.lost else station
    if station is not None:
        station.forget()
    return station is not None and failures < _REPEATS and not search.spent
