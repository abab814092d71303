"""What a search has found so far, for when it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ostinato.tune.candidate import Candidate
from ostinato.tune.policy import Policy
from ostinato.tune.progress import Progress
from ostinato.tune.report.report import Report
from ostinato.tune.result import Result

__all__ = ["SoFar"]


class SoFar(Progress):
    """Keeps the results of a search as they come, and tells another listener all that it is told.

    Parameters
    ----------
    listener
        The other one.

    Examples
    --------
    >>> import ostinato as ost
    >>> found = SoFar(Progress())
    >>> found.begin("dumps", 2)
    >>> candidate = ost.Candidate.call("json:dumps", {"obj": 1})
    >>> result = ost.Result(candidate=candidate, op="dumps", status=ost.Status.OK, time_ns=900.0)
    >>> found.ended(result, result)
    >>> found.report({}, ost.Policy()).best is result
    True
    """

    def __init__(self, listener: Progress) -> None:
        self._listener = listener
        self._op = ""
        self._began = time.monotonic()
        self._best: Result | None = None
        self._results: dict[tuple[str, str], Result] = {}

    def report(self, key: Mapping[str, Any], policy: Policy, default: Candidate | None = None) -> Report:
        """Return a report of the results so far: no final has been held, so the fastest one leads, without ties."""
        name = None if default is None else default.id
        return Report(
            op=self._op,
            key=dict(key),
            policy=policy,
            best=self._best,
            ties=() if self._best is None else (self._best,),
            results=tuple(self._results.values()),
            default=next((result for (candidate, _), result in self._results.items() if candidate == name), None),
            seconds=time.monotonic() - self._began,
        )

    def begin(self, op: str, total: int | None) -> None:
        self._op, self._began, self._best = op, time.monotonic(), None
        self._results.clear()
        self._listener.begin(op, total)

    def ended(self, result: Result, best: Result | None) -> None:
        self._results[result.candidate.id, result.op] = result
        self._best = best
        self._listener.ended(result, best)

    def waiting(self, device: str, holder: str) -> None:
        self._listener.waiting(device, holder)

    def building(self, slot: str, candidate: Candidate) -> None:
        self._listener.building(slot, candidate)

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        self._listener.running(device, candidate, what)

    def idle(self, where: str) -> None:
        self._listener.idle(where)

    def note(self, text: str) -> None:
        self._listener.note(text)

    def end(self, report: Report | None) -> None:
        self._listener.end(report)
