"""How long a candidate is measured, and how long a search may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ostinato.tune.limits import positive, whole

__all__ = ["Budget", "Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a candidate is measured; part of the key of every stored result.

    Parameters
    ----------
    cache
        ``"warm"``: samples follow each other. ``"cold"``: before each sample a buffer as large as the last-level
        cache is written, of 64 MiB if that is larger; on a GPU, of twice its L2 cache.
    rel_ci
        Sampling ends when the confidence interval of the median is at most this part of the median on either side.
    min_samples
        Fewest samples of a candidate that is not cut early.
    max_seconds
        Most seconds spent on samples of one candidate, flushing the cache included; at least one sample is taken.

    Raises
    ------
    TypeError, ValueError
        If a value is no number, or outside its range.

    Examples
    --------
    >>> import ostinato as ost
    >>> ost.Policy(cache="cold", rel_ci=0.02)
    Policy(cache='cold', rel_ci=0.02, min_samples=7, max_seconds=1.0)
    """

    cache: Literal["cold", "warm"] = "warm"
    rel_ci: float = 0.01
    min_samples: int = 7
    max_seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.cache not in ("cold", "warm"):
            raise ValueError(f'cache must be "cold" or "warm", got {self.cache!r}')
        object.__setattr__(self, "rel_ci", positive("rel_ci", self.rel_ci))
        object.__setattr__(self, "min_samples", whole("min_samples", self.min_samples))
        object.__setattr__(self, "max_seconds", positive("max_seconds", self.max_seconds))


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may spend; whichever is used up first ends it. None: no limit.

    Parameters
    ----------
    seconds
        Wall-clock seconds from the start of the search.
    candidates
        Candidates tried, those that the store answers included.

    Raises
    ------
    TypeError, ValueError
        If a limit is no number, or not positive.

    Examples
    --------
    >>> import ostinato as ost
    >>> ost.Budget(seconds=60, candidates=500)
    Budget(seconds=60.0, candidates=500)
    """

    seconds: float | None = None
    candidates: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            object.__setattr__(self, "seconds", positive("seconds", self.seconds))
        if self.candidates is not None:
            object.__setattr__(self, "candidates", whole("candidates", self.candidates))
