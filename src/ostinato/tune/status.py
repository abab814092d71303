"""How a candidate ended."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Status"]


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

    @property
    def final(self) -> bool:
        """Whether measuring again would say the same: the store answers such a candidate from then on."""
        return self not in (Status.CONTENDED, Status.DEVICE_LOST, Status.CANCELLED)
