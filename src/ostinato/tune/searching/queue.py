"""Candidates that wait: offered, admitted once each, built, and given to devices."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Protocol, runtime_checkable

from ostinato.tune.candidate import Call, Candidate, Command
from ostinato.tune.policy import Policy
from ostinato.tune.result import Result
from ostinato.tune.strategies import Listed
from ostinato.tune.trial import Task, Trial
from ostinato.tune.workers.slot import LeasedWorker

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Tasks:
    """Makes the tasks of one search."""

    def __init__(
        self,
        op: str,
        key: dict[str, Any],
        verify: str | None,
        policy: Policy,
        turn: Policy,
        *,
        seconds: float,
        memory: int | None,
        data: str | None = None,
    ) -> None:
        self._op = op
        self._key = key
        self._verify = verify
        # Sampling ends well before the limit of time does: only what hangs reaches that.
        self._policy, self._turn = (
            dataclasses.asdict(dataclasses.replace(each, max_seconds=min(each.max_seconds, seconds / 2)))
            for each in (policy, turn)
        )
        self._seconds = seconds
        self._memory = memory
        self._data = data
        self._shared: dict[tuple[str, str, str | None, bool], str] = {}

    def build(self, trial: Trial) -> Task:
        """Build a command, or prepare a call."""
        candidate = trial.candidate
        if not isinstance(candidate, Call):
            return Task(trial, "build", self._op, self._seconds)
        number = _number()
        request = {
            "type": "prepare",
            "id": number,
            "prepare": candidate.prepare,
            "config": candidate.config,
            "save": trial.save_path,
        }
        return Task(trial, "build", self._op, self._seconds, number, _encode(request))

    def check(self, trial: Trial, stdout: str) -> Task:
        """Check what a command printed and wrote."""
        number = _number()
        request = {
            "type": "check",
            "id": number,
            "verify": self._verify,
            "key": self._key,
            "outputs": {"stdout": stdout, "scratch": trial.scratch},
        }
        return Task(trial, "check", self._op, self._seconds, number, _encode(request), self._verify)

    def measure(self, trial: Trial, worker: LeasedWorker, bound: float | None, what: str) -> Task:
        """Measure a trial; a turn of the final takes few samples, and the callable is kept for the next."""
        candidate = trial.candidate
        if isinstance(candidate, Command):
            return Task(trial, what, self._op, candidate.timeout or self._seconds)
        assert isinstance(candidate, Call)
        number, prepared = _number(), "null" if trial.prepared is None else _encode(trial.prepared)
        # The rest is the same for thousands of candidates.
        rest = self._rest(candidate, worker, what == "final")
        request = (
            f'{{"type":"measure","id":{number},"candidate":"{candidate.id}","config":{candidate.config_text},'
            f'"prepared":{prepared},"bound":{"null" if bound is None else repr(bound)},{rest}'
        )
        return Task(trial, what, self._op, self._seconds, number, request, self._verify)

    def _rest(self, candidate: Call, worker: LeasedWorker, final: bool) -> str:
        """Return the JSON of what requests share, from the first name on."""
        about = worker.name, candidate.factory, candidate.setup, final
        if about not in self._shared:
            request = {
                "op": self._op,
                "factory": candidate.factory,
                "key": self._key,
                "setup": candidate.setup,
                "data": self._data,
                "verify": self._verify,
                "policy": self._turn if final else self._policy,
                "again": final,
                "keep": final,
                "memory": self._memory,
                **worker.measuring,
            }
            self._shared[about] = _encode(request)[1:]
        return self._shared[about]


def _number() -> int:
    """Return the number of a request: one that a candidate does not guess, since it can write to its worker's pipe."""
    return int.from_bytes(os.urandom(6))


@runtime_checkable
class Strategy(Protocol):
    """Offers candidates, and is told what became of them; those of `ostinato.tune.strategies`, or your own."""

    def ask(self) -> Candidate | None:
        """Return the next candidate; None if there are no more."""

    def tell(self, result: Result) -> None:
        """Take note of a result; several of one candidate, if it reports several ops."""


class Offered(Listed):
    """Offers what an iterable yields."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        super().__init__(map(checked, candidates))
        self.total = len(candidates) if isinstance(candidates, Sized) else None
        self._promised = self.total is not None  # only what is known to end


def checked(candidate: object) -> Candidate:
    """Return a candidate."""
    if not isinstance(candidate, Candidate):
        raise TypeError(f"candidates must be Candidate.command(...) or Candidate.call(...), got {candidate!r}")
    return candidate


def offers(candidates: Iterable[Candidate] | Strategy, default: Candidate | None) -> Strategy:
    """Return what offers `candidates`."""
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


class Queue:
    """Makes trials of what a strategy offers: the default first, and each candidate once."""

    def __init__(self, strategy: Strategy, default: Candidate | None, most: int | None) -> None:
        self._strategy = strategy
        self._default = default
        self._most = most
        self._taken: set[str] = set()
        self._offered: list[str] = []
        self.open = True
        """Whether there may be another."""

    @property
    def default(self) -> str | None:
        """The id of the default candidate."""
        return None if self._default is None else self._default.id

    @property
    def total(self) -> int | None:
        """The number of candidates; None if nobody knows."""
        total: int | None = getattr(self._strategy, "total", None)
        return total

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
