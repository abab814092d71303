"""Which candidate is next."""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.tune.candidate import Candidate
from ostinato.tune.offers import Strategy, checked
from ostinato.tune.result import Result
from ostinato.tune.trial import Trial

__all__ = ["Intake"]


class Intake:
    """Makes trials of what a strategy offers: the default first, and each candidate once.

    Parameters
    ----------
    strategy
        Offers the candidates.
    default
        Comes first, whenever the strategy would offer it.
    most
        Most candidates that are taken.
    """

    def __init__(self, strategy: Strategy, default: Candidate | None, most: int | None) -> None:
        self._strategy = strategy
        self._default = default
        self._most = most
        self._taken: set[str] = set()
        self._offered: list[str] = []
        self.open = True
        """Whether there may be another."""

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
