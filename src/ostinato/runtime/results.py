"""The results of methods of a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostinato.compiler.wording import duration
from ostinato.text import counted, micros, one_line

if TYPE_CHECKING:
    from ostinato.graph.op import Op

_SHOWN = 8


@dataclass(frozen=True)
class Verified:
    """What `Program.verify` compared, and what it left out; printable, and true.

    Attributes
    ----------
    steps
        How many steps were run.
    operations
        How many operations of a step were compared.
    impure
        Operations that were left out because their tasks are declared ``pure=False``.
    dependent
        Operations that were left out because they depend on these.
    function
        The name of the function that the program was made of: it was called eagerly, and compared as well. None for a
        program that was made of a graph.
    closed_over
        The arrays that were compared although no argument of a task names them.
    """

    steps: int
    operations: int
    impure: tuple[Op, ...] = ()
    dependent: tuple[Op, ...] = ()
    function: str | None = None
    closed_over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        lines = [f"compared: {counted(self.operations, 'operation')} in {counted(self.steps, 'step')}"]
        if self.function is not None:
            lines.append(f"compared with {self.function}(), called in every step")
        if self.closed_over:
            lines.append(f"compared beside the arguments of tasks: {', '.join(self.closed_over)}")
        if self.impure:
            lines.append(f"left out, since their tasks are declared pure=False: {_named(self.impure)}")
        if self.dependent:
            lines.append(f"left out, since they depend on these: {_named(self.dependent)}")
        return "\n".join(lines)


def _named(ops: Sequence[Op]) -> str:
    return ", ".join(f"{op.name!r} at {op.call_site}" for op in ops)


class StepTime(NamedTuple):
    """The median seconds of a step, which lies between `low` and `high` with 95 %, if there are six times or more."""

    seconds: float
    low: float
    high: float

    @classmethod
    def of(cls, times: Sequence[float]) -> StepTime | None:
        """Return what a step takes by the times of several turns; None if there are none."""
        if not times:
            return None
        ordered, count = sorted(times), len(times)
        # Fewer than `rank` times lie below the median with a probability of 2.5 % at most.
        chances = accumulate(math.comb(count, below) * 2.0**-count for below in range(count + 1))
        low = max(sum(1 for chance in chances if chance <= 0.025), 1) - 1
        return cls(float(np.median(ordered)), ordered[low], ordered[count - 1 - low])

    def __str__(self) -> str:
        return f"{duration(self.seconds)} ({duration(self.low)} to {duration(self.high)})"


class CostChange(NamedTuple):
    """An operation that does not take the seconds that were assumed when the program was compiled."""

    name: str
    call_site: str
    before: float
    after: float


@dataclass(frozen=True)
class Retuning:
    """What `Program.retune` did.

    Attributes
    ----------
    steps
        The number of steps run: fewer than asked for where `until` ended the run.
    kept
        ``"new"`` if the program has another schedule now, ``"old"`` if it has the one that it had.
    before, after
        What a step takes with the schedule that it had, and with the one that it has; None where no step was run.
    pairs
        How many pairs of turns the schedules took.
    changed
        The ops whose measured cost is not the one that they were scheduled by, the greatest difference first.
    why
        Why that schedule was kept.
    """

    steps: int
    kept: str
    before: StepTime | None
    after: StepTime | None
    pairs: int
    changed: tuple[CostChange, ...]
    why: str

    def __repr__(self) -> str:
        return f"<Retuning over {counted(self.steps, 'step')}: kept the {self.kept} schedule>"

    def _repr_html_(self) -> str:
        from ostinato.view.page import page, paragraphs, table

        title = f"Retuning over {counted(self.steps, 'step')}: kept the {self.kept} schedule"
        heads = ["schedule", "#a step (µs)", "#95 %, from (µs)", "#to (µs)"]
        pairs = (("before", self.before), ("after", self.after))
        times = [(name, *(micros(each * 1e9) for each in time)) for name, time in pairs if time is not None]
        costs = [
            (each.name, micros(each.before * 1e9), micros(each.after * 1e9), each.call_site) for each in self.changed
        ]
        changed = table(["operation", "#assumed (µs)", "#measured (µs)", "at"], costs, _SHOWN)
        return page(title, paragraphs([self.why]), table(heads, times), changed)

    def __str__(self) -> str:
        lines = [f"retuned over {counted(self.steps, 'step')}: kept the {self.kept} schedule; {self.why}"]
        if self.before is not None and self.after is not None:
            lines.append(f"a step took {self.before}")
            if self.kept == "new":
                lines.append(f"and takes    {self.after}, {self.before.seconds / self.after.seconds:.2f} times as fast")
        for change in self.changed[:_SHOWN]:
            lines.append(f"  {change.name}: {duration(change.before)} was assumed, {duration(change.after)} measured")
        if len(self.changed) > _SHOWN:
            lines.append(f"  and {counted(len(self.changed) - _SHOWN, 'more op')}")
        return "\n".join(map(one_line, lines))


class InStore:
    """A mapping of what the store has: compile finds it there, and not in the mapping."""
