"""What a run is given for what lies outside of its program: events to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ostinato.events import Event, event_of

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.runtime.run import Run

__all__ = ["After", "conditions"]

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
