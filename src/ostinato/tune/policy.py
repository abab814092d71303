"""How a search measures, how long it may take, and which environment candidates get."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Integral, Real
from typing import Literal


def positive(name: str, value: object) -> float:
    """Return a number that is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return number


def whole(name: str, value: object) -> int:
    """Return a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return number


_ALWAYS = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "OSTINATO_*", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip


def allowed_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return checked names and patterns of variables; None if all are inherited."""
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Sequence):
        raise TypeError(f"env_allow must be a list of names or patterns of variables, got {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"env_allow must hold names of variables, got {name!r}")
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"env_allow must hold names of variables, got {name!r}, which no variable has")
    return tuple(names)


def inherited(allowed: tuple[str, ...] | None) -> dict[str, str]:
    """Return the variables of this process that candidates inherit."""
    if allowed is None:
        return dict(os.environ)
    patterns = (*_ALWAYS, *allowed)
    return {name: value for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in patterns)}


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
