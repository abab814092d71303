"""The copies between memories that a program makes by itself, as text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ostinato.compiler.coherence.coherent_ops import Transferred
from ostinato.compiler.coherence.insert_copies import Activity, Coherent
from ostinato.compiler.coherence.memories import HOST
from ostinato.compiler.streams.staging import Staged
from ostinato.compiler.wording import size
from ostinato.graph.op import Op

__all__ = ["copies"]

_MOST = 32


def copies(staged: Staged) -> list[str]:
    """Return the copies with what they move in each step, the largest first; and what goes back when a run ends.

    Parameters
    ----------
    staged
        The ops of a graph that uses devices, with the copies that these need.
    """
    found = staged.coherent
    names = {HOST: "the host"} | {index: device.name for index, device in enumerate(staged.devices)}
    told = [
        _Copy(op, op.body, names, found.activity.get(op.index)) for op in found.ops if isinstance(op.body, Transferred)
    ]
    told.sort(key=lambda copy: (-copy.later, -copy.first))
    lines = [f"  {copy}" for copy in told[:_MOST]]
    if len(told) > _MOST:
        lines.append(f"  and {len(told) - _MOST} more")
    lines += [f"  {line}" for line in _written_back(found, names)]
    if not lines:
        return ["Copies between memories: none"]
    moved = size(sum(copy.later for copy in told))
    once = sum(copy.first for copy in told)
    per_run = f", and {size(once)} once a run" if once else ""
    return [f"Copies between memories: {moved} a step{per_run}", *lines]


class _Copy:
    """What a copy moves: bytes `later` a step on average, and `first` more once a run."""

    def __init__(self, op: Op, body: Transferred, names: dict[int, str], activity: Activity | None) -> None:
        self._op, self._body, self._names = op, body, names
        moved, period = np.array(body.nbytes), body.period
        acts = np.ones(period, np.bool_) if activity is None else activity[1]
        self.later = float((moved * acts).mean())
        self._steps = 0 if activity is None else activity[0].shape[1]
        since = np.arange(self._steps)
        in_first = moved[since % period] * (0 if activity is None else activity[0][0])
        self._in_first = int(np.sum(in_first))
        self.first = max(self._in_first - int((moved * acts)[since % period].sum()), 0)

    def __str__(self) -> str:
        source, target = self._names[self._body.source], self._names[self._body.target]
        return f"{self._often()}, {source} to {target}, for {self._op.original.name!r} at {self._op.call_site}"

    def _often(self) -> str:
        if not self._steps:
            return f"{size(self.later)} a step"
        first = "a run's first step" if self._steps == 1 else f"a run's first {self._steps} steps"
        if not self.later:
            return f"{size(self._in_first)} in {first}"
        if not self._in_first:
            return f"{size(self.later)} a step after {first}"
        return f"{size(self.later)} a step, {size(self._in_first)} in {first}"


def _written_back(found: Coherent, names: dict[int, str]) -> Iterator[str]:
    """What is copied home when a run ends, by where it comes from."""
    moved: dict[tuple[str, str], int] = {}
    for each in found.write_backs:
        if each.usual:
            way = names[each.source], names[each.target]
            moved[way] = moved.get(way, 0) + sum(source.nbytes for source, _ in each.pairs)
    for (source, home), nbytes in moved.items():
        yield f"at most {size(nbytes)} when a run ends, {source} to {home}: what was written last on {source}"
