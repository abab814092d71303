"""What programs and runs are given, checked: numbers of steps, parameters, and events to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

import numpy as np

from ostinato.arguments import OnError, Runs, integer
from ostinato.events import Barrier, Event, event_of
from ostinato.graph.param import REQUIRED, Param, as_scalar
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.lower.tables import Lowered
    from ostinato.runtime.run import Run

NO_PARAMS: Mapping[str, Any] = {}

_RUNS: tuple[Runs, ...] = get_args(Runs)
_STOP: dict[OnError, bool] = {"stop": True, "continue": False}
MOST_STEPS = 2**62  # so that step numbers stay far from the ends of 64 bits


def check_runs(runs: Runs) -> Runs:
    """Return how runs relate."""
    if runs not in _RUNS:
        raise ValueError(f"runs must be one of {', '.join(map(repr, _RUNS))}, got {runs!r}")
    return runs


def count_threads(processors: Sequence[object], lanes: int | None) -> int:
    """Return how many threads a program may use."""
    if lanes is None:
        return len(processors)
    return min(len(processors), integer("lanes", lanes, 1))


def merge_params(params: Mapping[str, Any], more_params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters that were given as a mapping and as keywords."""
    if not params:
        return more_params
    if not isinstance(params, Mapping):
        raise TypeError(f"params must be a mapping from names to values, got {brief(params)}")
    if twice := params.keys() & more_params.keys():
        raise TypeError(f"parameter {min(twice)!r} is given twice: in params= and as a keyword")
    return {**params, **more_params}


def count(steps: int) -> int:
    """Return a number of steps."""
    if type(steps) is int and 0 <= steps <= MOST_STEPS:
        return steps
    return integer("steps", steps, 0, MOST_STEPS)


def stops(on_error: OnError) -> bool:
    """Return whether a run begins no further steps after a failure."""
    try:
        return _STOP[on_error]
    except (KeyError, TypeError):
        raise ValueError(f"on_error must be 'stop' or 'continue', got {on_error!r}") from None


After: TypeAlias = (
    "Event | Run | Mapping[str, Event | Run] | Mapping[None, Event | Run] | Mapping[str | None, Event | Run] | None"
)
"""What a run comes after: its default precondition, or the events of all its preconditions by name."""


def resolve_conditions(names: Sequence[str], after: After) -> tuple[_core.Event | None, tuple[_core.Event | None, ...]]:
    """Return the default precondition of a run, and the events of its preconditions in the order of their names."""
    if type(after) is not dict and not isinstance(after, Mapping):  # the first is much faster
        if not names:
            return None if after is None else event_of(after), ()
        by_name: Mapping[str | None, Any] = {} if after is None else {None: after}
    else:
        by_name = cast("Mapping[str | None, Any]", after)
    given = []
    try:
        for name in names:  # written out, as in Values.of
            event = by_name[name]
            given.append(event._core if isinstance(event, Event) else event_of(event))
    except KeyError:
        raise _mismatch(names, by_name) from None
    events = tuple(given)
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


class Values:
    """Gives the values of a run: made once for a plan, since submitting takes little more than this.

    Attributes
    ----------
    form
        How the core reads what a run is given: names of parameters; of those that must be given; a name, a default
        and whether it is a float for each number; a name and a default for each object; names of preconditions. None
        where values must be converted or checked first.
    """

    def __init__(self, params: Mapping[str, Param], lowered: Lowered, preconditions: tuple[str, ...]) -> None:
        self._params = params
        self._required = [name for name, param in params.items() if param.default is REQUIRED]
        self._lowered = lowered
        used = [*(param for param, _ in lowered.native_values), *lowered.objects, *lowered.counts]
        used += [param for param, _ in lowered.fills]
        # Where tasks get values as they are given, which need not be tried.
        self._plain = not (lowered.counts or lowered.fills) and all(
            type(param) is Param and param.combine is None for param in used
        )
        self._numbers = [(param.name, param.default, kind) for param, kind in lowered.native_values]
        self._objects = [(param.name, param.default) for param in lowered.objects]
        self.form: tuple[Any, ...] | None = None
        if self._plain and not lowered.barriers:
            numbers = tuple((name, default, kind is float) for name, default, kind in self._numbers)
            self.form = (*params,), (*self._required,), numbers, (*self._objects,), preconditions
        self._used = list({id(param): param for param in used}.values())  # those of nested graphs may share a name

    def of(self, given: Mapping[str, Any]) -> tuple[list[float] | None, list[object] | None]:
        """Return the numbers for native tasks, and the objects for others, that a run gives, as the plan wants them."""
        params = self._params
        for name in given:
            if name not in params:
                known = ", ".join(map(repr, params)) or "no parameters"
                raise TypeError(f"this program has no parameter {name!r}; it has {known}")
        for name in self._required:
            if name not in given:
                raise TypeError(f"parameter {name!r} has no default, so give it: replay(..., {name}=...)")
        if self._plain:  # loops written out: what this takes is much of what submitting takes
            numbers = []
            for name, default, kind in self._numbers:
                value = given.get(name, default)
                numbers.append(value if kind is float is type(value) else _number(value, kind, name))
            if not self._objects:
                return numbers, None
            objects = []
            for name, default in self._objects:
                objects.append(given.get(name, default))
            return numbers, objects
        lowered = self._lowered
        values = {id(param): param.value_in(given) for param in self._used}
        for param in lowered.counts:
            integer(f"parameter {param.name!r}, a number of arrivals,", values[id(param)], 1)
        for param, target in lowered.fills:
            _check_fill(values[id(param)], target, param.name)
        numbers = [_number(values[id(param)], kind, param.name) for param, kind in lowered.native_values]
        return numbers, [values[id(param)] for param in lowered.objects]


def resolve_barriers(lowered: Lowered, given: Mapping[str, Any]) -> tuple[_core.Barrier, ...]:
    """Return the core's side of the barriers that are given as parameters, in the order the plan wants them."""
    barriers = [param.value_in(given) for param in lowered.barriers]
    for param, barrier in zip(lowered.barriers, barriers, strict=True):
        if not isinstance(barrier, Barrier):
            raise TypeError(f"parameter {param.name!r} must be an ostinato.Barrier, got {barrier!r}")
    return tuple(barrier._core for barrier in barriers)


def _number(value: Any, kind: type, name: str) -> float:
    return value if kind is float is type(value) else as_scalar(value, kind, f"parameter {name!r}")


def _check_fill(value: Any, target: np.ndarray[Any, Any], name: str) -> None:
    """Make the assignment once, to memory that nobody uses."""
    element = np.empty(1, target.dtype)
    try:
        np.lib.stride_tricks.as_strided(element, target.shape, (0,) * target.ndim)[...] = value
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(
            f"parameter {name!r} cannot fill an array of {target.shape}, {target.dtype}: {error}"
        ) from None
