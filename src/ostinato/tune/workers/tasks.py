"""What builders and devices are asked to do for a trial, as tasks with the requests that workers get."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from ostinato.tune.candidate import Call, Command
from ostinato.tune.policy import Policy
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
