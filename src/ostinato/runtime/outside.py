"""What a run is given for what lies outside of its program: events to wait for, and barriers."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ostinato.events import Barrier, Event, event_of

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.runtime.run import Run

__all__ = ["After", "BarrierParams", "conditions"]

After: TypeAlias = (
    "Event | Run | Mapping[str, Event | Run] | Mapping[None, Event | Run] | Mapping[str | None, Event | Run] | None"
)
"""What a run comes after: its default precondition, or the events of all its preconditions by name."""


def conditions(names: Sequence[str], after: After) -> tuple[_core.Event | None, tuple[_core.Event | None, ...]]:
    """Return the default precondition of a run, and the events of its preconditions in the order of their names.

    Raises
    ------
    ValueError
        A declared precondition is not given, or one is given that is not declared.
    TypeError
        What is given is no event.
    """
    if type(after) is not dict and not isinstance(after, Mapping):  # the first is much faster
        if not names:
            return None if after is None else event_of(after), ()
        by_name: Mapping[str | None, Any] = {} if after is None else {None: after}
    else:
        by_name = cast("Mapping[str | None, Any]", after)
    try:
        given = [by_name[name] for name in names]
    except KeyError:
        raise _mismatch(names, by_name) from None
    events = tuple([event._core if isinstance(event, Event) else event_of(event) for event in given])
    if len(by_name) == len(names):
        return None, events
    if len(by_name) > len(names) + (None in by_name):
        raise _mismatch(names, by_name)
    return event_of(by_name[None]), events


def _mismatch(names: Sequence[str], after: Mapping[str | None, Any]) -> ValueError:
    declared = ", ".join(map(repr, names)) or "none"
    unknown = [name for name in after if name is not None and name not in names]
    if unknown:
        return ValueError(f"after= gives precondition {unknown[0]!r}, but the graph declares {declared}")
    missing = next(name for name in names if name not in after)
    return ValueError(
        f"precondition {missing!r} is not given: pass after={{{missing!r}: event}}, with an event for each "
        f"of {declared}"
    )


class BarrierParams:
    """Barriers given with runs, and the phase that each run's first step belongs to.

    That is the phase a barrier is at, or, where an earlier run of the program is still to take it further, the phase
    after that.

    Parameters
    ----------
    independent
        Whether runs are independent of each other: then they meet in the phase a barrier is at.
    """

    def __init__(self, independent: bool) -> None:
        self._independent = independent
        self._last: weakref.WeakKeyDictionary[Barrier, _Use] = weakref.WeakKeyDictionary()

    def bases(
        self, barriers: Sequence[Barrier], follows: _core.Run | None = None
    ) -> tuple[tuple[_core.Barrier, int], ...]:
        """Return barriers with the phase of the run's first step; no other run may come before `note`.

        A run that continues another one goes on with the phase after that one's, if no other run came between.
        """
        return tuple((barrier._core, self._base(barrier, follows)) for barrier in barriers)

    def note(self, barriers: Sequence[Barrier], bases: Sequence[tuple[_core.Barrier, int]], run: _core.Run) -> None:
        """Take note of the run that was submitted with them."""
        for barrier, (_, base) in zip(barriers, bases, strict=True):
            self._last[barrier] = _Use(base, run)

    def _base(self, barrier: Barrier, follows: _core.Run | None) -> int:
        last = self._last.get(barrier)
        if last is not None and last.run is follows:
            return last.base + last.run.requested
        if last is None or self._independent:
            return barrier.phase
        phase = barrier.phase
        return phase if last.run.done else max(phase, last.base + last.run.requested)


class _Use:
    def __init__(self, base: int, run: _core.Run) -> None:
        self.base = base
        self.run = run
