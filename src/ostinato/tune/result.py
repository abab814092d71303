"""What became of one candidate and op."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ostinato.text import duration, one_line
from ostinato.tune.candidate import Candidate
from ostinato.tune.outcome import OpOutcome, Status
from ostinato.tune.stopping import interval, median


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of one candidate and op.

    Attributes
    ----------
    candidate
        The candidate; its configuration is ``result.candidate.config``.
    op
        The op: that of the search, or the one that a command reported.
    status
        How it ended.
    time_ns
        Median time of one call in ns; None if nothing was measured, or the candidate told a workspace only.
    interval_ns
        Confidence interval (95 %) of the median in ns; the range, where there are fewer than six samples.
    samples
        Times of single calls in ns, in the order in which they were taken.
    workspace
        Bytes that it said it needs.
    device
        The name of the device that it was first measured on; None if it reached none. Each round of the final takes
        place on one device for all finalists.
    message
        What went wrong, or what should be known; empty if all is well.
    cached
        Whether the store answered.
    miss
        Why the store could not answer: the name of the field of the key that differs from a stored result of the same
        op and configuration; None if there was no such result, or if the store answered.
    contended
        How many of the samples were disturbed by something else on the device, after up to three more tries each.
    overhead_ns
        Time of an empty call in ns, which was subtracted from each sample; 0 for commands, which measure themselves.
    """

    candidate: Candidate
    op: str
    status: Status
    time_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    samples: tuple[float, ...] = field(default=(), repr=False)
    workspace: int = 0
    device: str | None = None
    message: str = ""
    cached: bool = False
    miss: str | None = None
    contended: int = 0
    overhead_ns: float = 0.0

    def __repr__(self) -> str:
        time = "" if self.time_ns is None else f", {duration(self.time_ns)}"
        return f"<Result of {one_line(self.op)[:60]}: {self.status}{time}>"


def result_of(
    candidate: Candidate, outcome: OpOutcome, device: str | None, *, cached: bool = False, miss: str | None = None
) -> Result:
    """Return the result that an outcome is of a candidate."""
    ordered = sorted(outcome.samples)
    return Result(
        candidate=candidate,
        op=outcome.op,
        status=outcome.status,
        time_ns=median(ordered) if ordered else None,
        interval_ns=interval(ordered) if ordered else None,
        samples=outcome.samples,
        workspace=outcome.workspace,
        device=device,
        message=outcome.message,
        cached=cached,
        miss=miss,
        contended=outcome.contended,
        overhead_ns=outcome.overhead_ns,
    )


def outcome_of(result: Result) -> OpOutcome:
    """Return what was measured of a result."""
    return OpOutcome(
        result.op,
        result.status,
        result.samples,
        result.workspace,
        result.message,
        result.contended,
        result.overhead_ns,
    )


class Span(NamedTuple):
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
