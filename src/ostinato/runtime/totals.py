"""Totals of profiles: records of one op, kind or processor added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.compiler.coherence.coherent_ops import Transferred
from ostinato.graph.body import Body, Copy, NativeCall, PythonCall
from ostinato.graph.op import Op

__all__ = ["By", "ProfileTotal", "bytes_copied", "kind_of", "totals"]

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
    if isinstance(op.body, Copy | Transferred):
        return "copy"
    return type(op.body).__name__.lower()


def bytes_copied(ops: Sequence[Op], op: npt.NDArray[Any], step: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return how many bytes each record's op copied in its step.

    Parameters
    ----------
    ops
        The ops of the schedule.
    op, step
        By record, the index of the op and the step.
    """
    by_op = [_bytes_by_phase(each.body) for each in ops]
    periods = np.array([len(each) for each in by_op], np.int64)
    begin = np.cumsum(periods) - periods
    every = np.fromiter((nbytes for each in by_op for nbytes in each), np.int64, int(periods.sum()))
    phase = step.astype(np.int64) % periods[op]
    copied: npt.NDArray[np.int64] = every[begin[op] + phase]
    return copied


def _bytes_by_phase(body: Body) -> Sequence[int]:
    if isinstance(body, Transferred):
        return body.nbytes
    if isinstance(body, Copy):
        return (body.target.arrays[0].nbytes if body.scatter is None else body.source.arrays[0].nbytes,)
    return (0,)


def totals(
    labels: Sequence[str], ran: npt.NDArray[np.bool_], time: npt.NDArray[np.int64], nbytes: npt.NDArray[np.int64]
) -> list[ProfileTotal]:
    """Return the totals of the records of each label, those that took longest first.

    Parameters
    ----------
    labels, ran, time, nbytes
        By record: its label, whether it ran, how long it took, and what it copied.
    """
    names, which = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
    if not len(labels):
        return []
    time, nbytes = np.where(ran, time, 0), np.where(ran, nbytes, 0)
    longest = np.zeros(len(names), np.int64)
    np.maximum.at(longest, which, time)
    added = [np.zeros(len(names), np.int64) for _ in range(4)]
    for total, values in zip(added, (ran, ~ran, time, nbytes), strict=True):
        np.add.at(total, which, values.astype(np.int64))
    count, skipped, summed, copied = (each.tolist() for each in added)
    found = map(ProfileTotal, names.tolist(), count, skipped, summed, longest.tolist(), copied)
    return sorted(found, key=lambda each: each.time, reverse=True)
