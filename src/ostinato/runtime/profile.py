"""Profiles: when each operation of a run was ready, began and ended, and what was skipped and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ostinato.compile.completions import completions_of
from ostinato.graph.body import Inserted
from ostinato.runtime.record import ready, records_of, start_when_ready

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compile.schedule import Scheduled
    from ostinato.graph.op import Op
    from ostinato.runtime.processors import Processor

__all__ = ["Profile", "ProfileRecord", "profile_of"]

STATUSES = ("ok", "failed", "poisoned", "cancelled")  # as in core/trace.h


class ProfileRecord(NamedTuple):
    """What became of one operation in one step."""

    op: Op
    """As recorded; or a copy between memories that the program makes for one, which `op.original` is."""
    step: int
    """As everywhere, counted over the program's life."""
    processor: Processor
    """Whose thread ran it, or, for a task that may block, waited for it; or the device that did its work."""
    ready: int
    """When all that it comes after was done; for what comes after nothing, when the run was submitted."""
    start: int
    end: int
    """Nanoseconds, like the two before: of one monotonic clock, that of `time.monotonic_ns`."""
    status: str
    """``"ok"``, ``"failed"``, ``"poisoned"`` (skipped, since what it comes after failed) or ``"cancelled"``."""
    reason: str
    """For what did not end well, why: what failed, and in which step. Otherwise empty."""


class Profile(Sequence[ProfileRecord]):
    """The records of a run, by step and program order.

    Memory is bounded: what does not fit is left out and counted.

    Attributes
    ----------
    dropped
        How many records were left out.
    """

    def __init__(
        self,
        found: np.ndarray[Any, Any],
        dropped: int,
        scheduled: Scheduled,
        processors: Sequence[Processor],
        submitted: int,
    ) -> None:
        self._found = found[np.lexsort((found["op"], found["step"]))]
        self.dropped = dropped
        self._scheduled = scheduled
        self._processors = processors
        self._ready = ready(self._found, scheduled, submitted)
        start_when_ready(self._found, self._ready)
        waits = [index for index, _ in completions_of(scheduled.ops)]
        self._shown = np.flatnonzero(~np.isin(self._found["op"], waits)).tolist()

    def __len__(self) -> int:
        return len(self._shown)

    @overload
    def __getitem__(self, index: int) -> ProfileRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ProfileRecord]: ...
    def __getitem__(self, index: int | slice) -> ProfileRecord | list[ProfileRecord]:
        if isinstance(index, slice):
            return [self._record(place) for place in self._shown[index]]
        return self._record(self._shown[index])

    def __iter__(self) -> Iterator[ProfileRecord]:
        return map(self._record, self._shown)

    def __repr__(self) -> str:
        return f"<Profile of {len(self)} records{f', {self.dropped} left out' if self.dropped else ''}>"

    def _record(self, place: int) -> ProfileRecord:
        found = self._found[place]
        op = self._scheduled.ops[found["op"]]
        return ProfileRecord(
            op if isinstance(op.body, Inserted) else op.original,
            int(found["step"]),
            self._processors[found["seat"]],
            int(self._ready[place]),
            int(found["start"]),
            int(found["end"]),
            STATUSES[found["status"]],
            self._reason(place),
        )

    def _reason(self, place: int) -> str:
        status = STATUSES[self._found["status"][place]]
        if status in ("ok", "cancelled"):
            return "" if status == "ok" else "the run was cancelled"
        seen: set[int] = set()
        while STATUSES[self._found["status"][place]] == "poisoned":
            seen.add(place)
            before = next((at for at in self._before(place) if at not in seen), None)
            if before is None:  # a precondition, or an earlier run
                op = self._scheduled.ops[self._found["op"][place]]
                return f"what {op.name!r} comes after, outside of this run, is poisoned"
            place = before
        op, step = self._scheduled.ops[self._found["op"][place]], self._found["step"][place]
        return f"{op.name!r} failed in step {step}; called at {op.call_site}"

    def _before(self, place: int) -> Iterator[int]:
        """Where the records are of what an op comes after, if that did not end well."""
        op, step = int(self._found["op"][place]), int(self._found["step"][place])
        edges = self._scheduled.edges
        begin, end = np.searchsorted(edges.dst, [op, op + 1])
        for src, distance in zip(edges.src[begin:end].tolist(), edges.distance[begin:end].tolist(), strict=True):
            low, high = np.searchsorted(self._found["step"], [step - distance, step - distance + 1])
            at = low + int(np.searchsorted(self._found["op"][low:high], src))
            if at < high and self._found["op"][at] == src and self._found["status"][at] in (1, 2):
                yield at


def profile_of(run: _core.Run, scheduled: Scheduled, processors: Sequence[Processor]) -> Profile:
    """Return the profile of a run that was traced and has ended."""
    parts = [(found, lost) for _, found, lost in records_of(run, len(scheduled.ops))]
    found = np.concatenate([part for part, _ in parts])
    return Profile(found, sum(lost for _, lost in parts), scheduled, processors, run.submitted)
