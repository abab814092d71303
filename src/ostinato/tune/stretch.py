"""What a device, or a place in the compile pool, did for a while."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.tune.candidate import Candidate
from ostinato.tune.status import Status

__all__ = ["Stretch"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A device, or a place in the compile pool, was busy with a candidate.

    Parameters
    ----------
    where
        The device's name, or ``"build:0"`` and so on.
    what
        ``"build"``, ``"measure"``, ``"anchor"``, ``"final"``, or ``"start"`` for a worker that starts.
    candidate
        The candidate; None while a worker starts.
    begin, end
        Seconds since the search began.
    status
        How it ended.
    """

    where: str
    what: str
    candidate: Candidate | None
    begin: float
    end: float
    status: Status
