"""What one measurement of a candidate came to."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from ostinato.tune.status import Status

__all__ = ["MOST_PRINTED", "OpOutcome", "Outcome", "death"]

MOST_PRINTED = 64 << 20
"""Bytes: a candidate that prints more is killed."""


@dataclass(frozen=True, slots=True)
class OpOutcome:
    """What one op of a candidate came to; the attributes are those of `ostinato.tune.result.Result`."""

    op: str
    status: Status
    samples: tuple[float, ...] = ()
    workspace: int = 0
    message: str = ""
    contended: int = 0
    overhead_ns: float = 0.0


@dataclass(frozen=True, slots=True)
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
    """

    status: Status
    ops: tuple[OpOutcome, ...]
    message: str = ""
    stdout: str = field(default="", repr=False)


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
