"""Counters of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["ProgramStatistics"]


class ProgramStatistics(NamedTuple):
    """A snapshot of a program's counters."""

    operations: int
    """Operations run or skipped since the program was compiled, as far as they have been published."""
    blocked: int
    """How often a lane had to wait for another."""
    runs_submitted: int
    runs_done: int
    core_bytes: int
    """What the compiled program takes in the core, in bytes."""

    @classmethod
    def sum(cls, parts: Iterable[Mapping[str, int]]) -> ProgramStatistics:
        """Return the sums of the counters of several instances."""
        return cls(*map(sum, zip(*(cls(**part) for part in parts), strict=True)))
