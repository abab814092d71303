"""Retuning: a program is scheduled anew by what its ops take, and keeps the better schedule."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostinato import _core
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline import schedule_again
from ostinato.compiler.schedule.simulation import predicted
from ostinato.compiler.wording import duration
from ostinato.counting import counted
from ostinato.errors import ContractError
from ostinato.one_line import one_line
from ostinato.runtime.bits import Bits
from ostinato.runtime.calibrate import measure_host
from ostinato.runtime.forms import Form, Forms
from ostinato.runtime.sequential_test import ALPHA, Duel, contest
from ostinato.runtime.trace import durations

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.compiler.ir import Executable
    from ostinato.runtime.arguments import After
    from ostinato.runtime.program import Program

__all__ = ["CostChange", "Retuning", "StepTime", "retune"]

_MOST = 100
"""Steps that are looked at before anything is decided, and steps that are traced."""

_TRACED_SHARE = 5
"""One in so many steps is traced at most."""

_RECORDS = 1_000_000
"""So many records of a trace are enough."""

_FIRST_SHARE = 20
"""One in so many steps is run first, and says how long turns are to be."""

_CHANGED = 1.5
"""An op's cost has changed where it is so many times what it was, or the other way round."""


_WORTH = 1.5
"""What should take so many times as long by the model is not tried: the model is not as wrong as that."""


class StepTime(NamedTuple):
    """What a step takes, in seconds."""

    seconds: float
    """The median."""
    low: float
    high: float
    """Between these the median is, with 95 %; where times are fewer than six, all of them."""

    @classmethod
    def of(cls, times: Sequence[float]) -> StepTime:
        """Return what a step takes by the times of several turns."""
        from ostinato.tune.racing.stopping import interval, median

        ordered = sorted(times)
        return cls(median(ordered), *interval(ordered))

    def __str__(self) -> str:
        return f"{duration(self.seconds)} ({duration(self.low)} to {duration(self.high)})"


class CostChange(NamedTuple):
    """An op that takes something else than was assumed when the program was compiled."""

    name: str
    """Of the op."""
    call_site: str
    before: float
    """Seconds."""
    after: float
    """Seconds."""


@dataclasses.dataclass(frozen=True)
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


_SHOWN = 8


def retune(
    program: Program,
    steps: int,
    after: After,
    params: Mapping[str, Any],
    *,
    seed: int | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Retuning:
    """Run steps of a program, and let it have the better schedule from then on; see `Program.retune`.

    `seed` is that of the coins, and `clock` returns ns: for tests.
    """
    if program._runs in ("concurrent", "once"):
        what = "run side by side" if program._runs == "concurrent" else "are a single one"
        raise ValueError(f"a program of runs={program._runs!r} cannot be retuned: its runs {what}")
    if _core.serving() or any(core.in_own_task for core in program._cores):
        raise ContractError("retune inside a task: a task on a lane must not wait, the lane would stand still")
    program._machine._prepare_caller()
    with program._retuning:
        forms = Forms(program)
        try:
            return _Retuner(forms, Bits(forms, steps, after, params, clock), seed).retune()
        finally:
            forms.finish()


class _Retuner:
    """Learns from the first steps what ops take, and lets other schedules duel with the present one on the rest."""

    def __init__(self, forms: Forms, runs: Bits, seed: int | None) -> None:
        self._forms = forms
        self._runs = runs
        self._seed = seed
        self._turns: dict[Form, list[float]] = defaultdict(list)  # what steps took, by the turns of duels
        self._other: dict[Form, list[float]] = defaultdict(list)  # and by other runs
        self._pairs = 0

    def retune(self) -> Retuning:
        old = self._forms.present
        changed: tuple[CostChange, ...] = ()
        step_seconds = self._run(min(self._runs.left // _FIRST_SHARE, _MOST))
        steps = min(self._runs.left // _TRACED_SHARE, _MOST, 1 + _RECORDS // max(len(old.executable.step.nodes), 1))
        trace = self._runs.trace(steps) if steps else None
        if trace is None:
            why = "the steps were too few to learn from"
        else:
            costs = durations(trace, old.executable.step.costs, "traced")
            if old.executable.step.staged is not None:
                costs = old.executable.step.staged.as_scheduled(costs)
            changed = _changes(old.executable, costs)
            why = self._duels(others(old.executable, costs, self._forms.program), step_seconds)
            if self._forms.present is old:
                executable = old.executable.with_costs(costs)
                self._forms.learn(costs, predicted(executable, executable.target.model))
        self._runs.enter_present()
        self._run(self._runs.left)
        kept = self._forms.present
        return Retuning(
            self._runs.done,
            "old" if kept is old else "new",
            self._time(old),
            self._time(kept),
            self._pairs,
            changed,
            why,
        )

    def _duels(self, rivals: Sequence[Executable], step_seconds: float) -> str:
        """Let the present schedule duel with each of the others, keep the better one, and say why."""
        why = "by what its ops take, no other one promises to be better"
        won = False
        for place, executable in enumerate(rivals):
            present, rival = self._forms.present, self._forms.add(executable)
            self._runs.entrants = present, rival
            duel = Duel(ALPHA / len(rivals), None if self._seed is None else self._seed + place)
            found = contest(self._runs, self._runs.left // (len(rivals) - place), step_seconds, duel)
            self._pairs += found.pairs
            self._turns[present] += found.old
            self._turns[rival] += found.new
            if found.won:
                self._forms.present = rival
            if found.won or not won:
                why = found.why
            won = won or found.won
        return why

    def _run(self, steps: int) -> float:
        """Run steps with the present schedule, and return what one took."""
        seconds = self._runs.run(steps) if steps else None
        if seconds is None:
            return 0.0
        self._other[self._forms.present].append(seconds / steps)
        return seconds / steps

    def _time(self, form: Form) -> StepTime | None:
        times = self._turns[form] or self._other[form]
        return StepTime.of(times) if times else None


def others(present: Executable, costs: Costs, program: Program) -> list[Executable]:
    """Return the schedules that costs lead to and that may be better than the present one, the most promising first."""
    processors = len(program._machine._cpus)
    model = measure_host(processors)
    found: list[Executable] = []
    for threads in sorted({program._threads, 1}, reverse=True):
        executable = schedule_again(present, costs, Target(processors, threads, model))
        executable = dataclasses.replace(executable, target=present.target)  # what was asked for
        if not any(_same(executable, known) for known in (present, *found)):
            found.append(executable)
    if not found:
        return []
    most = _WORTH * predicted(present.with_costs(costs), model)
    ranked = sorted(((predicted(executable, model), place) for place, executable in enumerate(found)))
    return [found[place] for seconds, place in ranked if seconds <= most]


def _same(one: Executable, other: Executable) -> bool:
    """Whether the same lanes run the same ops in the same order; of a single lane, the order makes no difference."""
    lanes = len(one.lane_ops)
    if lanes != len(other.lane_ops):
        return False
    return lanes == 1 or (
        np.array_equal(one.step.placement.home, other.step.placement.home)
        and all(map(np.array_equal, one.lane_ops, other.lane_ops))
    )


def _changes(executable: Executable, costs: Costs) -> tuple[CostChange, ...]:
    nodes, assumed, found = executable.step.nodes, executable.step.costs.seconds, costs.seconds
    changed = np.flatnonzero(np.maximum(assumed, found) > _CHANGED * np.minimum(assumed, found))
    ranked = changed[np.argsort(-np.abs(found - assumed)[changed], kind="stable")]
    return tuple(
        CostChange(nodes[op].name, str(nodes[op].call_site), float(assumed[op]), float(found[op]))
        for op in ranked.tolist()
    )
