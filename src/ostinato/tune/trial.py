"""One candidate on its way through a search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ostinato.tune.candidate import Call, Candidate

__all__ = ["Task", "Trial"]


@dataclass(slots=True, eq=False)
class Trial:
    """One candidate on its way through a search.

    Attributes
    ----------
    candidate
        The candidate.
    source
        Digest of the code that it stands for.
    modules
        Digests of the modules that a worker imports for it.
    prepared
        Path of the file with what `prepare` returned.
    scratch
        Its directory; None as long as it has none.
    tries
        How often it was put back because its worker or device went away.
    miss
        The field of the key that kept the store from answering.
    """

    candidate: Candidate
    source: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    prepared: str | None = None
    scratch: str | None = None
    tries: int = 0
    miss: str | None = None

    def built(self) -> None:
        """Note that it was built: what `prepare` returned is where it was told to save it."""
        if isinstance(self.candidate, Call):
            self.prepared = self.save_path

    @property
    def save_path(self) -> str:
        """Where what `prepare` returns is saved."""
        assert self.scratch is not None
        return os.path.join(self.scratch, "prepared.pickle")


@dataclass(slots=True, eq=False)
class Task:
    """Something to be done for a trial.

    Attributes
    ----------
    trial
        The trial.
    what
        ``"build"``, ``"check"``, ``"measure"``, ``"anchor"`` or ``"final"``.
    op
        What a command calls the op if it does not say.
    seconds
        Limit of time.
    number, request
        What a worker is told, as JSON, and the number that it answers with; an empty text for a command.
    verify
        The name of the function that the worker checks with, if it does.
    """

    trial: Trial
    what: str
    op: str
    seconds: float
    number: int = 0
    request: str = ""
    verify: str | None = None
