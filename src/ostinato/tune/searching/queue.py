"""Candidates that wait: offered, and admitted once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, runtime_checkable

from ostinato.tune.candidate import Candidate
from ostinato.tune.result import Result
from ostinato.tune.strategies import Listed
from ostinato.tune.trial import Trial


@runtime_checkable
class Strategy(Protocol):
    """Offers candidates, and is told what became of them; those of `ostinato.tune.strategies`, or your own."""

    def ask(self) -> Candidate | None:
        """Return the next candidate; None if there are no more."""

    def tell(self, result: Result) -> None:
        """Take note of a result; several of one candidate, if it reports several ops."""


class Offered(Listed):
    """Offers what an iterable yields."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        super().__init__(map(checked, candidates))
        self.total = len(candidates) if isinstance(candidates, Sized) else None
        self._promised = self.total is not None  # only what is known to end


def checked(candidate: object) -> Candidate:
    """Return a candidate."""
    if not isinstance(candidate, Candidate):
        raise TypeError(f"candidates must be Candidate.command(...) or Candidate.call(...), got {candidate!r}")
    return candidate


def offers(candidates: Iterable[Candidate] | Strategy, default: Candidate | None) -> Strategy:
    """Return what offers `candidates`."""
    if isinstance(candidates, Strategy):
        return candidates
    if isinstance(candidates, str | bytes | Candidate) or not isinstance(candidates, Iterable):
        raise TypeError(f"candidates must be several, or a strategy, got {candidates!r}")
    if isinstance(candidates, Sized):
        listed = list(map(checked, candidates))
        if default is not None and default not in listed:
            raise ValueError(f"default must be one of the candidates, got {default!r}")
        candidates = listed
    return Offered(candidates)


class Queue:
    """Makes trials of what a strategy offers: the default first, and each candidate once."""

    def __init__(self, strategy: Strategy, default: Candidate | None, most: int | None) -> None:
        self._strategy = strategy
        self._default = default
        self._most = most
        self._taken: set[str] = set()
        self._offered: list[str] = []
        self.open = True
        """Whether there may be another."""

    @property
    def default(self) -> str | None:
        """The id of the default candidate."""
        return None if self._default is None else self._default.id

    @property
    def total(self) -> int | None:
        """The number of candidates; None if nobody knows."""
        total: int | None = getattr(self._strategy, "total", None)
        return total

    @property
    def full(self) -> bool:
        """Whether as many as may be taken were."""
        return self._most is not None and len(self._taken) >= self._most

    @property
    def order(self) -> list[str]:
        """Ids of the candidates in the order in which they were offered; who was offered twice is there twice."""
        unasked = [] if self._default is None or self._default.id in self._offered else [self._default.id]
        return [name for name in unasked + self._offered if name in self._taken]

    def next(self) -> Trial | None:
        """Return the next trial; None if there is none, now or ever: `open` tells."""
        if self.open and self._default is not None and not self._taken:
            return self._trial(self._default)
        while self.open and not self.full:
            candidate = self._strategy.ask()
            if candidate is None:
                break
            self._offered.append(checked(candidate).id)
            if candidate.id not in self._taken:
                return self._trial(candidate)
        self.open = False
        return None

    def rest(self) -> Iterator[Trial]:
        """Yield trials of the candidates that are certain to be offered still, and close."""
        self.open = False
        for candidate in getattr(self._strategy, "rest", tuple)():
            self._offered.append(candidate.id)
            if candidate.id not in self._taken:
                yield self._trial(candidate)

    def tell(self, result: Result) -> None:
        """Tell the strategy a result."""
        self._strategy.tell(result)

    def _trial(self, candidate: Candidate) -> Trial:
        self._taken.add(candidate.id)
        return Trial(candidate)
