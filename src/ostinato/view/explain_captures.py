"""What of a program's work for devices is captured and issued as one, and why other work is not, as text."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ostinato.counting import counted
from ostinato.graph.body import PythonCall
from ostinato.graph.op import Op, shown
from ostinato.graph.param import STEP
from ostinato.view.listing import listed, more

if TYPE_CHECKING:
    from ostinato import _core

__all__ = ["Stretch", "captures", "stretches_of"]

_MOST = 32


class Stretch(NamedTuple):
    """Ops of a stream that can be captured together."""

    device: str
    """The name of their device."""
    ops: Sequence[int]
    """Their numbers, in order."""
    phases: int
    """It is captured so many times, as rings turn."""
    times: int
    """It was captured so many times."""
    why: str | None
    """Why it cannot be; None where it was, or where that was not tried yet. Empty: the device captures nothing."""
    failed: int
    """The op of which that is told; -1: of none."""

    def plus(self, other: Stretch) -> Stretch:
        """Return what became of it in two plans."""
        if not other.tried:
            return self
        if not self.tried:
            return other
        told = self if self.why is not None else other
        return told._replace(phases=self.phases + other.phases, times=self.times + other.times)

    @property
    def tried(self) -> bool:
        """Whether somebody has tried to capture it."""
        return self.times > 0 or self.why is not None


def stretches_of(plans: Iterable[_core.Plan]) -> list[Stretch]:
    """Return what can be captured in plans of one schedule, as the core knows it."""
    by_plan = [[Stretch(*each) for each in plan.stretches] for plan in plans]
    return [functools.reduce(Stretch.plus, same) for same in zip(*by_plan, strict=True)]


def captures(ops: Sequence[Op], stretches: Iterable[Stretch]) -> list[str]:
    """Return what is issued as one, what is called in each step, and why.

    Parameters
    ----------
    ops
        All ops of a schedule.
    stretches
        Those that can be captured, as the core knows them.
    """
    lines: list[str] = []
    waiting: list[int] = []
    for each in stretches:
        if each.why is not None:
            lines += _called(each, ops)
        elif each.times:
            lines.append(_issued(each, ops))
        else:
            waiting += each.ops
    lines += [f"{_shown(op)} is called in each step: ost.step is another in each" for op in ops if _takes_step(op)]
    if waiting:
        lines.append(f"not captured yet, since bodies are called once before: {_listed(waiting, ops)}")
    if not lines:
        return []
    return ["Captures", *(f"  {line}" for line in lines[:_MOST]), *more(len(lines) - _MOST, "line")]


def _issued(stretch: Stretch, ops: Sequence[Op]) -> str:
    again = stretch.times - stretch.phases
    changed = f", {counted(again, 'time')} again for other parameters" if again > 0 else ""
    as_one = " as one" * (len(stretch.ops) > 1)
    return f"{stretch.device}: {counted(len(stretch.ops), 'op')} captured{as_one}{changed}: {_listed(stretch.ops, ops)}"


def _called(stretch: Stretch, ops: Sequence[Op]) -> Iterator[str]:
    why = stretch.why or f"{stretch.device} captures nothing"
    failed = stretch.ops[0] if stretch.failed < 0 and len(stretch.ops) == 1 else stretch.failed
    if failed < 0:
        yield f"{stretch.device}: called in each step: {_listed(stretch.ops, ops)}: {why}"
        return
    yield f"{_shown(ops[failed])} is called in each step: {why}"
    others = [index for index in stretch.ops if index != failed]
    if others:
        yield f"{stretch.device}: called in each step with it: {_listed(others, ops)}"


def _shown(op: Op) -> str:
    return f"{shown(op)} at {op.call_site}"


def _listed(numbers: Iterable[int], ops: Sequence[Op]) -> str:
    return listed(ops[index].name for index in numbers)


def _takes_step(op: Op) -> bool:
    return isinstance(op.body, PythonCall) and op.body.launch_only and any(arg is STEP for arg in op.body.args)
