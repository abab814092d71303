"""Profiles: when each operation of a run was issued, ready, began and ended, and what was skipped and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from ostinato.compiler.inserted import InstanceCopy
from ostinato.graph.body import Body, Copy, Inserted, NativeCall, PythonCall
from ostinato.graph.op import Op
from ostinato.runtime.trace import find_ready, read_records, set_starts
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.ir import Executable
    from ostinato.runtime.workers import Processor, Workers

By: TypeAlias = Literal["op", "kind", "processor", "run"]


class ProfileTotal(NamedTuple):
    """What several records of a profile come to."""

    what: str
    """What they have in common: the name of an op, a kind such as ``"copy"``, or the name of a processor."""
    ran: int
    """How many of the operations ran, those that failed included."""
    skipped: int
    """How many did not run: ``"poisoned"`` or ``"cancelled"``."""
    time: int
    """The sum of ``end - start`` over those that ran, in nanoseconds."""
    longest: int
    """The largest of these, in nanoseconds."""
    nbytes: int
    """The bytes that copies moved."""


def kind_of(op: Op) -> str:
    """Return what an op is: ``"task"``, ``"copy"``, ``"fill"``, ``"until"``, ``"arrive"`` and so on."""
    if isinstance(op.body, PythonCall | NativeCall):
        return "task"
    if isinstance(op.body, Copy | InstanceCopy):
        return "copy"
    return type(op.body).__name__.lower()


def bytes_copied(ops: Sequence[Op], op: npt.NDArray[Any], step: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return how many bytes each record's op copied in its step."""
    by_op = [_bytes_by_phase(each.body) for each in ops]
    periods = np.array([len(each) for each in by_op], np.int64)
    begin = np.cumsum(periods) - periods
    every = np.fromiter((nbytes for each in by_op for nbytes in each), np.int64, int(periods.sum()))
    phase = step.astype(np.int64) % periods[op]
    copied: npt.NDArray[np.int64] = every[begin[op] + phase]
    return copied


def _bytes_by_phase(body: Body) -> Sequence[int]:
    if isinstance(body, InstanceCopy):
        return body.nbytes
    if isinstance(body, Copy):
        return (body.target.arrays[0].nbytes if body.scatter is None else body.source.arrays[0].nbytes,)
    return (0,)


def add_up(
    labels: Sequence[str], ran: npt.NDArray[np.bool_], time: npt.NDArray[np.int64], nbytes: npt.NDArray[np.int64]
) -> list[ProfileTotal]:
    """Return the totals of the records of each label, those that took longest first."""
    names, which = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
    if not len(labels):
        return []
    time, nbytes = np.where(ran, time, 0), np.where(ran, nbytes, 0)
    totals = np.zeros((5, len(names)), np.int64)
    for total, values in zip(totals, (ran, ~ran, time, None, nbytes), strict=True):
        if values is not None:
            np.add.at(total, which, values.astype(np.int64))
    np.maximum.at(totals[3], which, time)
    found = map(ProfileTotal, names.tolist(), *totals.tolist())
    return sorted(found, key=lambda each: each.time, reverse=True)


STATUSES = ("ok", "failed", "poisoned", "cancelled")  # as in core/program/trace.h


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
    issued: int
    """When the operation was called. Work for a device is issued then, which may be long before it is `ready`: the
    device waits, and not the host. For all other operations it is `start`."""
    nbytes: int
    """How many bytes it copied; 0 for what is no copy."""


# By what records are added up: the label of each.
_LABELS: dict[str, Callable[[np.ndarray[Any, Any], Sequence[Op], Sequence[Processor]], list[str]]] = {
    "op": lambda found, ops, _: [ops[op].name for op in found["op"].tolist()],
    "kind": lambda found, ops, _: [kind_of(ops[op]) for op in found["op"].tolist()],
    "processor": lambda found, _, processors: [processors[slot].name for slot in found["slot"].tolist()],
    "run": lambda found, *_: ["run"] * len(found),
}


class Profile(Sequence[ProfileRecord]):
    """The records of a run, by step and program order.

    Memory is bounded: what does not fit is left out and counted.

    Attributes
    ----------
    dropped
        How many records were left out.
    written_back
        How many bytes the end of the run copied from devices to arrays of the host. No record is of these copies.
    """

    def __init__(
        self,
        found: np.ndarray[Any, Any],
        dropped: int,
        executable: Executable,
        processors: Sequence[Processor],
        submitted: int,
        written_back: int = 0,
    ) -> None:
        self._found = found[np.lexsort((found["op"], found["step"]))]
        self.dropped = dropped
        self.written_back = written_back
        self._executable = executable
        self._processors = processors
        self._ready = find_ready(self._found, executable, submitted)
        set_starts(self._found, self._ready)
        waits = [index for index, _ in executable.step.streams.fences]
        self._issued = np.where(self._found["issued"] > 0, self._found["issued"], self._found["start"])
        self._nbytes = bytes_copied(executable.step.nodes, self._found["op"], self._found["step"])
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

    def totals(self, by: By = "op") -> list[ProfileTotal]:
        """Add up the records of each op, kind of operation, or processor, or of the whole run.

        Parameters
        ----------
        by
            ``"op"``: by the name of the op. ``"kind"``: tasks, copies, fills and so on. ``"processor"``: by the name
            of the processor. ``"run"``: all in one, whose bytes include `written_back`.

        Returns
        -------
        list of ProfileTotal
            Those that took longest first.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> a, b = np.zeros(1000), np.ones(1000)
        >>> graph = ost.Graph()
        >>> op = graph.copy(b, a)
        >>> op = graph.fill(b, 2.0)
        >>> with graph.compile() as program:
        ...     run = program.submit(10, profile=True)
        ...     done = run.result()
        >>> sorted((total.what, total.ran, total.nbytes) for total in run.profile.totals("kind"))
        [('copy', 10, 80000), ('fill', 10, 0)]
        """
        if by not in _LABELS:
            raise ValueError(f'by must be "op", "kind", "processor" or "run", got {by!r}')
        found = self._found[self._shown]
        ran = found["status"] <= STATUSES.index("failed")
        labels = _LABELS[by](found, self._executable.step.nodes, self._processors)
        summed = add_up(labels, ran, found["end"] - found["start"], self._nbytes[self._shown])
        return [each._replace(nbytes=each.nbytes + self.written_back) for each in summed] if by == "run" else summed

    def __repr__(self) -> str:
        return f"<Profile of {counted(len(self), 'record')}{f', {self.dropped} left out' if self.dropped else ''}>"

    def _record(self, place: int) -> ProfileRecord:
        found = self._found[place]
        op = self._executable.step.nodes[found["op"]]
        return ProfileRecord(
            op if isinstance(op.body, Inserted) else op.original,
            int(found["step"]),
            self._processors[found["slot"]],
            int(self._ready[place]),
            int(found["start"]),
            int(found["end"]),
            STATUSES[found["status"]],
            self._reason(place),
            int(self._issued[place]),
            int(self._nbytes[place]),
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
                op = self._executable.step.nodes[self._found["op"][place]]
                return f"what {op.name!r} comes after, outside of this run, is poisoned"
            place = before
        op, step = self._executable.step.nodes[self._found["op"][place]], self._found["step"][place]
        return f"{op.name!r} failed in step {step}; called at {op.call_site}"

    def _before(self, place: int) -> Iterator[int]:
        """Where the records are of what an op comes after, if that did not end well."""
        op, step = int(self._found["op"][place]), int(self._found["step"][place])
        edges = self._executable.step.edges
        begin, end = np.searchsorted(edges.dst, [op, op + 1])
        for src, distance in zip(edges.src[begin:end].tolist(), edges.distance[begin:end].tolist(), strict=True):
            low, high = np.searchsorted(self._found["step"], [step - distance, step - distance + 1])
            at = low + int(np.searchsorted(self._found["op"][low:high], src))
            if at < high and self._found["op"][at] == src and self._found["status"][at] in (1, 2):
                yield at


def make_profile(run: _core.Run, executable: Executable, workers: Workers) -> Profile:
    """Return the profile of a run that was traced and has ended."""
    processors = workers.processors if executable.step.uses_devices else workers.cpus
    parts = [(found, lost) for _, found, lost in read_records(run, len(executable.step.nodes))]
    found = np.concatenate([part for part, _ in parts])
    return Profile(found, sum(lost for _, lost in parts), executable, processors, run.submitted, run.written_back)
