"""What a search found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ostinato.tune.policy import Policy
from ostinato.tune.result import Result, Stretch

__all__ = ["Report"]


@dataclass(slots=True, kw_only=True)
class Report:
    """What a search found.

    Attributes
    ----------
    op, key
        What was tuned.
    policy
        How it was measured.
    best
        The winner, one of `results`; None if no candidate is ok.
    ties
        What cannot be told from the winner by these measurements, the winner first.
    results
        One entry per candidate and op, in the order of the candidates.
    default
        The default's entry; None if there is no default or it reported nothing.
    seconds
        Duration of the search.
    stretches
        When which device was busy with what.
    environment
        Devices, drivers and library versions that the results hold for.
    """

    op: str
    key: dict[str, Any]
    policy: Policy
    best: Result | None
    ties: tuple[Result, ...]
    results: tuple[Result, ...]
    default: Result | None = None
    seconds: float = 0.0
    stretches: tuple[Stretch, ...] = field(default=(), repr=False)
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
