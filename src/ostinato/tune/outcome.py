"""How a measurement ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any


class Status(StrEnum):
    """How a candidate ended; a `str`, so ``result.status == "ok"`` works.

    Examples
    --------
    >>> import ostinato as ost
    >>> ost.Status("ok") is ost.Status.OK
    True
    >>> ost.Status.HANG_KILLED == "hang_killed"
    True
    """

    OK = "ok"
    """Measured, and right where it was checked."""
    RACED = "raced"
    """Cut early: it could no longer win."""
    INVALID = "invalid"
    """It refused its configuration, or could not be started at all."""
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    CRASH = "crash"
    """It died of a signal, raised, or ended with a nonzero exit status."""
    HANG_KILLED = "hang_killed"
    """It was still running at its limit of time, and was killed."""
    OOM = "oom"
    """It took more memory than it may."""
    WRONG_RESULT = "wrong_result"
    BAD_OUTPUT = "bad_output"
    """What it reported makes no sense: nothing, garbage, too much, or a time that is zero, negative or not finite."""
    CONTENDED = "contended"
    """Something else computed on its device for so long that its times mean nothing."""
    DEVICE_LOST = "device_lost"
    CANCELLED = "cancelled"
    """Its turn did not come, or was taken away: the budget was spent, or the search was interrupted."""

    __hash__ = str.__hash__  # Enum's, which hashes a name, takes longer, and differs from that of an equal str

    @property
    def final(self) -> bool:
        """Whether measuring again would say the same: the store answers such a candidate from then on."""
        return self not in (Status.CONTENDED, Status.DEVICE_LOST, Status.CANCELLED)


MOST_PRINTED = 64 << 20
"""Bytes: a candidate that prints more is killed."""


@dataclass(slots=True)  # not frozen: then making one, as each result of a search does, would take twice as long
class OpOutcome:
    """What one op of a candidate came to; the attributes are those of `ostinato.tune.result.Result`."""

    op: str
    status: Status
    samples: tuple[float, ...] = ()
    workspace: int = 0
    message: str = ""
    contended: int = 0
    overhead_ns: float = 0.0

    def __reduce__(self) -> tuple[Any, ...]:  # that of dataclasses calls Python for each field
        return type(self), attrgetter(*type(self).__match_args__)(self)


@dataclass(slots=True)
class Outcome:
    """What one measurement of a candidate came to.

    Attributes
    ----------
    status
        How it ended as a whole.
    ops
        What it reported, per op; empty if it reported nothing.
    message
        What went wrong.
    stdout
        What a command printed, as far as it is kept.
    whole
        False if the budget cut it short: it counts for this search, but is not stored.
    """

    status: Status
    ops: tuple[OpOutcome, ...]
    message: str = ""
    stdout: str = field(default="", repr=False)
    whole: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), attrgetter(*type(self).__match_args__)(self)

    def refuted(self, check: Outcome) -> Outcome:
        """Return what a measurement came to whose outputs a check has found to be wrong, or has failed on."""
        ops = tuple(replace(op, status=check.status, message=check.message) for op in self.ops)
        return Outcome(check.status, ops or (OpOutcome("", check.status, message=check.message),), check.message)


OF_BUILDS = {
    Status.HANG_KILLED: Status.COMPILE_TIMEOUT,
    Status.CRASH: Status.COMPILE_ERROR,
    Status.INVALID: Status.COMPILE_ERROR,
    Status.OOM: Status.COMPILE_ERROR,
    Status.BAD_OUTPUT: Status.COMPILE_ERROR,
}
"""How a candidate ended whose build ended so."""


def death(status: int) -> str:
    """Say how a process ended: `status` is its exit status, or minus the signal.

    Examples
    --------
    >>> death(-11), death(3)
    ('killed by SIGSEGV', 'exit status 3')
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
