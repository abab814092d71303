"""The final: who may have won is measured again, in turns, a round on one device."""

from __future__ import annotations

from ostinato.tune.ledger import Ledger
from ostinato.tune.race.race import EntryKey, Race
from ostinato.tune.search import Search
from ostinato.tune.slots.station import Station

__all__ = ["Rounds"]

_REPEATS = 3  # of turns that say nothing, one after the other on one device


class Rounds:
    """Measures the finalists in turns.

    One device serves all of a round, and nothing is built meanwhile: what is left of the noise hits the finalists
    alike. Devices that are alike and do not disturb each other play a round each at the same time.

    Parameters
    ----------
    search, race, ledger
        What measures them, who may win, and what is known of them.
    """

    def __init__(self, search: Search, race: Race, ledger: Ledger) -> None:
        self._search = search
        self._race = race
        self._ledger = ledger
        self._stations: list[Station] = []
        self._due: dict[Station, list[EntryKey]] = {}  # of each whose first is playing: who was due in its round
        self._silent: dict[Station, int] = {}

    def play(self) -> bool:
        """Play until all is decided; return whether nothing is left to be."""
        search, race = self._search, self._race
        if not race.finalists() or search.spent:
            return not race.finalists()
        # Once its result can be read, it goes on no longer than all before it took, or than one candidate may.
        end = search.seconds + max(search.seconds, race.policy.max_seconds)
        while True:
            over = search.spent or (search.seconds > end and race.decided)
            if not self._due and (over or not self._ready()):
                break
            if not over and race.started:  # else a finalist has failed: the final begins again when no turn is left
                self._begin()
            if not self._due:
                break
            if all(station.busy for station in self._due):
                search.wait()
            self._end()
        for station in self._silent:
            station.forget()
        return bool(self._stations or not race.finalists()) and not search.spent

    def _ready(self) -> bool:
        """Have built what is due, and lease devices; return whether there is anything to play, and where."""
        built: list[EntryKey] = []
        while (due := self._race.finalists()) and due != built:  # in place of one that cannot be built another comes in
            self._search.build([self._ledger.trial(candidate) for candidate, _ in due])
            built = due
        if due and not self._stations and _REPEATS not in self._silent.values():
            self._stations = self._search.lease()
            self._silent |= dict.fromkeys(self._stations, 0)
        return bool(due and self._stations)

    def _begin(self) -> None:
        for station in self._stations:
            if station not in self._due and (due := self._race.finalists(station.name)):
                self._due[station] = due
                self._search.final(self._ledger.trial(due[0][0]), station)

    def _end(self) -> None:
        for station in [station for station in self._due if not station.busy]:
            due = self._due.pop(station)
            silent = self._race.started and self._race.finalists(station.name) == due
            self._silent[station] = self._silent[station] + 1 if silent else 0
            if station.lost or self._silent[station] == _REPEATS:
                self._stations.remove(station)
                self._race.leave(station.name)
