"""How long a candidate is measured, and how long a search may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Budget", "Policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a candidate is measured; part of the key of every stored result.

    Parameters
    ----------
    cache
        ``"warm"``: samples follow each other. ``"cold"``: before each sample a buffer as large as the last-level
        cache is written.
    rel_ci
        Sampling ends when the confidence interval of the median is at most this part of the median on either side.
    min_samples
        Fewest samples of a candidate that is not cut early.
    max_seconds
        Most seconds spent on samples of one candidate, flushing the cache included; at least one sample is taken.

    Raises
    ------
    ValueError
        If a value is outside its range.

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
            raise ValueError(f'cache is "cold" or "warm", not {self.cache!r}')
        _positive("rel_ci", self.rel_ci)
        _positive("max_seconds", self.max_seconds)
        if not isinstance(self.min_samples, int) or isinstance(self.min_samples, bool):
            raise TypeError(f"min_samples is a whole number, not {self.min_samples!r}")
        if self.min_samples < 1:
            raise ValueError(f"min_samples is at least 1, not {self.min_samples}")


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
    ValueError
        If a limit is not positive.

    Examples
    --------
    >>> import ostinato as ost
    >>> ost.Budget(seconds=60, candidates=500)
    Budget(seconds=60, candidates=500)
    """

    seconds: float | None = None
    candidates: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            _positive("seconds", self.seconds)
        if self.candidates is not None:
            if not isinstance(self.candidates, int) or isinstance(self.candidates, bool):
                raise TypeError(f"candidates is a whole number, not {self.candidates!r}")
            if self.candidates < 1:
                raise ValueError(f"candidates is at least 1, not {self.candidates}")


def _positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, not {value!r}")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is positive and finite, not {value!r}")
