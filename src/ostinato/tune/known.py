"""What the store knows of the candidates of one search, and is told of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ostinato.tune.candidate import Call, Candidate
from ostinato.tune.outcome import OpOutcome, Outcome
from ostinato.tune.status import Status
from ostinato.tune.store.source import Sources
from ostinato.tune.store.store import Search, StoreError
from ostinato.tune.trial import Trial

__all__ = ["Known"]

_LOOK_SECONDS = 0.1


class Known:
    """What the store knows of the candidates of one search, and is told of them.

    A store that cannot be written any more is left alone from then on, and the search goes on: what was measured is in
    its report.

    Parameters
    ----------
    op
        What a candidate is stored under that reported nothing.
    stored
        The store's view of the search; None where nothing is to be remembered.
    sources
        Digests of the code that candidates stand for.
    answers
        Whether the store answers for what it knows; if not, everything is measured.
    seconds, memory
        The limits that candidates run under.
    note
        Is told what the user should know.
    """

    def __init__(
        self,
        op: str,
        stored: Search | None,
        sources: Sources,
        *,
        answers: bool,
        seconds: float,
        memory: int | None,
        note: Callable[[str], None],
    ) -> None:
        self._op = op
        self._stored = stored
        self._sources = sources
        self._answers = answers
        self._seconds = seconds
        self._memory = memory
        self._note = note
        self._functions: object = None
        self._looked = 0.0
        self._digests: tuple[str, Mapping[str, str]] = ("", {})
        self.pending = False
        """Whether something waits for `commit`."""

    def find(self, trial: Trial) -> tuple[str | None, Outcome] | None:
        """Return where a trial was measured before and what it came to; None if it must be measured."""
        trial.source, trial.modules = self._code(trial.candidate)
        if self._stored is None or not self._answers:
            return None
        asked = trial.candidate.id, trial.candidate.config, trial.source
        limit, memory = self._limit(trial), self._memory
        found = self._try(lambda stored: stored.find(*asked, timeout=limit, memory=memory))
        attempts, trial.miss = found or (None, None)
        if attempts is None:
            return None
        first = attempts[0]
        return first.device, Outcome(first.status, tuple(attempts), first.message)

    def _code(self, candidate: Candidate) -> tuple[str, Mapping[str, str]]:
        """Return the digests of what a candidate stands for; files are looked at again after a moment only."""
        if not isinstance(candidate, Call):
            return self._sources.of(candidate), self._sources.imported(candidate)
        functions = candidate.factory, candidate.prepare, candidate.setup, candidate.source
        if self._functions != functions or time.monotonic() > self._looked + _LOOK_SECONDS:
            self._functions, self._looked = functions, time.monotonic()
            self._digests = self._sources.of(candidate), self._sources.imported(candidate)
        return self._digests

    def add(self, trial: Trial, outcome: Outcome, device: str | None, *, first: str | None = None) -> None:
        """Take down what a trial came to on a device of this search; `first` is as for `Search.add`."""
        if self._stored is not None:
            if getattr(trial.candidate, "build", None) is not None:
                with suppress(OSError):  # what was built is a file that it stands for
                    trial.source = self._sources.of(trial.candidate)
            ops = outcome.ops or (OpOutcome(self._op, outcome.status, message=outcome.message),)
            built = outcome.status is not Status.COMPILE_TIMEOUT  # a build has the tuner's limit
            limit = self._limit(trial) if built else self._seconds
            self._stored.add(
                trial.candidate, trial.source, device, ops, first=first, timeout=limit, memory=self._memory
            )
            self.pending = True

    def commit(self, *, last: bool = False) -> None:
        """Write what was taken down; the last time, wait for other processes that write."""
        done = self._try(lambda stored: stored.close() if last else stored.commit())
        self.pending = done is False  # another process was writing, and all is kept for the next time

    def verdict(self, about: Any) -> Any:
        """Return the verdict over exactly these results, if a final came to one before."""
        return self._try(lambda stored: stored.verdict(about))

    def set_verdict(self, verdict: Any, about: Any) -> None:
        """Take down the verdict over the results as they are now."""
        self._try(lambda stored: stored.set_verdict(verdict, about))

    def _limit(self, trial: Trial) -> float:
        return getattr(trial.candidate, "timeout", None) or self._seconds

    def _try(self, use: Callable[[Search], Any]) -> Any:
        if self._stored is None:
            return None
        try:
            return use(self._stored)
        except StoreError as error:
            self._stored = None
            text = f"{error}; the search goes on, and what it measures from here on is in its report only"
            logging.getLogger("ostinato").warning("%s", text)
            self._note(text)
            return None
