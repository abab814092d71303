"""What is known of candidates: from the store, and from this search."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from ostinato.tune.candidate import Call, Candidate
from ostinato.tune.outcome import OpOutcome, Outcome, Status
from ostinato.tune.progress import Progress
from ostinato.tune.racing.race import EntryKey, Race
from ostinato.tune.result import Result, outcome_of, result_of
from ostinato.tune.store.database import StoreError
from ostinato.tune.store.key import Sources
from ostinato.tune.store.store import Search
from ostinato.tune.trial import Trial

_LOOK_SECONDS = 0.1


class Known:
    """What the store knows of the candidates of one search, and is told of them.

    A store that cannot be written any more is left alone from then on, and the search goes on: what was measured is in
    its report.
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

    def join(self, device: str) -> None:
        """Take down results on another device of the same model, too."""
        if self._stored is not None:
            self._stored.join(device)

    def source(self, trial: Trial) -> str:
        """Return the digest of the code of a trial that was looked for, as other hosts have it, too."""
        return trial.source

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


class Confirmed(NamedTuple):
    """What the final made of a candidate."""

    trial: Trial
    outcome: Outcome
    device: str  # of this search: the one that the final took place on
    first: str  # the one that the candidate was first measured on, perhaps in another search


class Results:
    """What is known of every candidate of a search, as results; the race is told as they come."""

    def __init__(self, op: str, default: str | None, alike: bool, race: Race, progress: Progress) -> None:
        self._op = op
        self._default = default
        self._alike = alike  # whether samples of different devices may be put together
        self._race = race
        self._progress = progress
        self._trials: dict[str, Trial] = {}
        self._results: dict[str, tuple[Result, ...]] = {}  # of each candidate, one for each op
        self._turns: dict[EntryKey, list[float]] = {}
        self._final_device = ""
        self._best: Result | None = None  # the fastest so far; the verdict may say otherwise

    def record(self, trial: Trial, outcome: Outcome, device: str | None, *, cached: bool = False) -> list[Result]:
        """Enter what a candidate came to, in place of what was entered before; return the results."""
        candidate = trial.candidate.id
        ops = outcome.ops or (OpOutcome(self._op, outcome.status, message=outcome.message),)
        results = [result_of(trial.candidate, op, device, cached=cached, miss=trial.miss) for op in ops]
        self._trials[candidate] = trial
        before = self._results.get(candidate, ())
        self._results[candidate] = tuple(results if len(results) == 1 else {each.op: each for each in results}.values())
        for earlier in before:
            self._race.failed((candidate, earlier.op))
        best = self._best
        if before and best is not None and best.candidate.id == candidate:  # it may have failed in the final
            self._best = min(self._ok(), key=_time, default=None)
        for result in results:
            if result.status in (Status.OK, Status.RACED) and result.samples:
                place = f"store:{device}" if cached else str(device)
                self._race.measured((candidate, result.op), place, result.samples, result.workspace)
            if result.status is Status.OK and (self._best is None or _time(result) < _time(self._best)):
                self._best = result
            self._progress.ended(result, self._best)
        if candidate == self._default:
            self._race.default = (candidate, min(results, key=_time).op)
        return results

    def turned(self, candidate: str, op: OpOutcome, device: str) -> None:
        """Note a turn of the final."""
        self._race.final((candidate, op.op), op.samples, device)
        self._turns.setdefault((candidate, op.op), []).extend(op.samples)
        self._final_device = device

    def confirmed(self) -> Iterator[Confirmed]:
        """Add the samples of the final to the results of the finalists; yield those that the store may keep.

        A candidate with several ops, some of them measured only on a device of another model than the final's, is not
        yielded: what is stored of a candidate holds for one model.
        """
        for candidate in dict.fromkeys(candidate for candidate, _ in self._turns):
            trial, results = self._trials[candidate], self._results[candidate]
            results = self._results[candidate] = tuple(self._with_turns(trial, result) for result in results)
            if not self._alike and any(
                result.samples and (candidate, result.op) not in self._turns for result in results
            ):
                continue
            first = results[0].device if self._alike else None
            now = Outcome(Status.OK, tuple(map(outcome_of, results)))
            yield Confirmed(trial, now, self._final_device, first or self._final_device)

    def _with_turns(self, trial: Trial, result: Result) -> Result:
        """Return a result with the samples of the final."""
        samples = self._turns.get((trial.candidate.id, result.op))
        if samples is None or result.status not in (Status.OK, Status.RACED):
            return result
        before = result.samples if self._alike else ()
        outcome = replace(outcome_of(result), status=Status.OK, samples=(*before, *samples))
        return result_of(trial.candidate, outcome, result.device, cached=result.cached, miss=trial.miss)

    def revived(self) -> list[Trial]:
        """Return those that were cut and would not be by what is known now: the store's, or where a rival failed."""
        return [
            self._trials[candidate]
            for candidate, results in self._results.items()
            if any(
                result.status is Status.RACED and result.samples and not self._race.cut((candidate, result.op))
                for result in results
            )
        ]

    def _ok(self) -> Iterator[Result]:
        for results in self._results.values():
            yield from (result for result in results if result.status is Status.OK)

    def knows(self, trial: Trial) -> bool:
        """Return whether anything is entered of a trial's candidate."""
        return trial.candidate.id in self._results

    def trial(self, candidate: str) -> Trial:
        """Return the trial of a candidate by its id."""
        return self._trials[candidate]

    def result(self, candidate: str, op: str) -> Result:
        """Return the result of a candidate and op."""
        found = self._find(candidate, op)
        assert found is not None
        return found

    def default(self) -> Result | None:
        """Return the result of the default candidate; of several ops the one that the race took."""
        entry = self._race.default
        return None if entry is None else self._find(*entry)

    def _find(self, candidate: str, op: str) -> Result | None:
        return next((result for result in self._results.get(candidate, ()) if result.op == op), None)

    def timeless(self) -> list[EntryKey]:
        """Return what is ok where nothing that is ok has a time, by preference: the default, then less workspace."""
        found = list(self._ok())
        if any(result.time_ns is not None for result in found):
            return []
        found.sort(key=lambda result: (result.candidate.id != self._default, result.workspace, result.candidate.id))
        return [(result.candidate.id, result.op) for result in found]

    def ties(self, entries: Any) -> tuple[Result, ...] | None:
        """Return the results that a stored verdict names; None if it is none over these results."""
        if not isinstance(entries, list):
            return None
        found = []
        for entry in entries:
            if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)):
                return None
            result = self._find(*entry)
            if result is None or result.status not in (Status.OK, Status.RACED):
                return None
            found.append(result)
        if not found and any(result.samples for result in self._ok()):
            return None
        return tuple(found)

    def in_order(self, order: Sequence[str]) -> tuple[Result, ...]:
        """Return the results of candidates in this order of their ids, those of each as they were reported."""
        return tuple(result for candidate in order for result in self._results[candidate])


def _time(result: Result) -> float:
    return float("inf") if result.time_ns is None else result.time_ns
