"""Variants that other processes can import, measured in the worker process of a tuner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.tune.candidate import Candidate
from ostinato.tune.graphs.measuring.comparison import Incomparable
from ostinato.tune.graphs.measuring.problem import Unmeasurable
from ostinato.tune.graphs.measuring.shipment import Shipment, Stale, Unshippable
from ostinato.tune.graphs.measuring.subject import Failure, MemoryFailure
from ostinato.tune.graphs.measuring.worker import write_passed
from ostinato.tune.process.scratch import Scratch
from ostinato.tune.status import Status
from ostinato.tune.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostinato.tune.graphs.cases.case import Case
    from ostinato.tune.graphs.records.unfinished import Keeping
    from ostinato.tune.policy import Budget
    from ostinato.tune.report.report import Report
    from ostinato.tune.tuner import Tuner

__all__ = ["measure_isolated"]

_WORKER = "ostinato.tune.graphs.measuring.worker"
_SAID = {
    AssertionError.__name__: Status.WRONG_RESULT,
    Incomparable.__name__: Status.INVALID,
    Unmeasurable.__name__: Status.INVALID,
    Failure.__name__: Status.CRASH,
    MemoryFailure.__name__: Status.OOM,
}
"""What becomes of variants by what is raised for them."""


def measure_isolated(
    case: Case,
    candidates: Sequence[Candidate],
    *,
    tuner: Callable[[], Tuner],
    rtol: float,
    budget: Budget,
    keeping: Keeping | None = None,
) -> Report:
    """Measure the variants of a case in a worker process: whatever they do there costs them no more than their result.

    Parameters
    ----------
    case
        The case.
    candidates
        What stands for its variants in the report, in their order: the default first.
    tuner
        Gives the tuner whose worker it is.
    rtol, budget
        What part outputs may differ by, and what all may take.
    keeping
        As for `measure`.

    Raises
    ------
    Unshippable
        Another process could not make the same of the case.
    """
    try:
        calls = [
            Candidate.call(f"{_WORKER}:subject", candidate.config, setup=f"{_WORKER}:setup") for candidate in candidates
        ]
    except ValueError as error:
        raise Unshippable(str(error)) from None
    shipment = Shipment(case, rtol)
    scratch = Scratch()
    try:
        directory = scratch.directory("case")
        shipment.write(directory)
        default, verify = calls[0], f"{_WORKER}:check" if len(calls) > 1 else None
        measuring = tuner()
        kept = None
        if keeping is not None:
            seconds, memory = measuring.limits
            kept = keeping(default=default.id, said=_SAID, verify=verify, seconds=seconds, memory=memory)
            if kept.find(Trial(default)) is not None:
                write_passed(directory)
        report = measuring.tune(
            case.label,
            calls,
            key=case.key,
            default=default,
            verify=verify,
            budget=budget,
            data=directory,
            known=kept,
        )
    finally:
        scratch.remove()
    for result in report.results:
        kind, _, message = result.message.partition(": ")
        if kind in _SAID:
            result.message, result.status = message, _SAID[kind]
        elif result is report.default and result.status is Status.INVALID:
            why = message if kind == Stale.__name__ else f"no worker process can make the call: {result.message}"
            raise Unshippable(why)
    return report
