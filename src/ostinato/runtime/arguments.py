"""What programs and runs are given, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from ostinato.choices import OnError, Runs
from ostinato.integers import integer
from ostinato.one_line import brief

__all__ = ["MOST_STEPS", "NO_PARAMS", "checked_runs", "count", "merged", "stops", "threads_for"]

NO_PARAMS: Mapping[str, Any] = {}

_RUNS: tuple[Runs, ...] = get_args(Runs)
_STOP: dict[OnError, bool] = {"stop": True, "continue": False}
MOST_STEPS = 2**62  # so that step numbers stay far from the ends of 64 bits


def checked_runs(runs: Runs) -> Runs:
    """Return how runs relate."""
    if runs not in _RUNS:
        raise ValueError(f"runs must be one of {', '.join(map(repr, _RUNS))}, got {runs!r}")
    return runs


def threads_for(processors: Sequence[object], lanes: int | None) -> int:
    """Return how many threads a program may use."""
    if lanes is None:
        return len(processors)
    return min(len(processors), integer("lanes", lanes, 1))


def merged(params: Mapping[str, Any], more_params: Mapping[str, Any]) -> Mapping[str, Any]:
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
