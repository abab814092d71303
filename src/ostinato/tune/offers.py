"""Where candidates come from: a strategy that is asked and told, or simply an iterable."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Protocol, runtime_checkable

from ostinato.tune.candidate import Candidate
from ostinato.tune.result import Result
from ostinato.tune.strategies import Listed

__all__ = ["Offered", "Strategy", "checked", "offers"]


@runtime_checkable
class Strategy(Protocol):
    """Offers candidates, and is told what became of them; those of `ostinato.tune.strategies`, or your own."""

    def ask(self) -> Candidate | None:
        """Return the next candidate; None if there are no more."""

    def tell(self, result: Result) -> None:
        """Take note of a result; several of one candidate, if it reports several ops."""


class Offered(Listed):
    """Offers what an iterable yields.

    Attributes
    ----------
    total
        Number of candidates; None if nobody knows.
    """

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        super().__init__(map(checked, candidates))
        self.total = len(candidates) if isinstance(candidates, Sized) else None
        self._promised = self.total is not None  # only what is known to end


def checked(candidate: object) -> Candidate:
    """Return a candidate.

    Raises
    ------
    TypeError
        If it is none.
    """
    if not isinstance(candidate, Candidate):
        raise TypeError(f"candidates must be Candidate.command(...) or Candidate.call(...), got {candidate!r}")
    return candidate


def offers(candidates: Iterable[Candidate] | Strategy, default: Candidate | None) -> Strategy:
    """Return what offers `candidates`.

    Raises
    ------
    TypeError
        If it is neither a strategy nor an iterable of candidates.
    ValueError
        If `default` is not among candidates that can be looked through.
    """
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
