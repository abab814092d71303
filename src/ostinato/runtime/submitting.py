"""How a program gives runs to the core: with the values of parameters, to the form that takes runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ostinato import _core
from ostinato.errors import ContractError
from ostinato.runtime.arguments import After, barriers_of, conditions, count

if TYPE_CHECKING:
    from ostinato.runtime.concurrent import LinkedRuns
    from ostinato.runtime.program import Program

__all__ = ["replayed", "submitted"]

_Given: TypeAlias = "tuple[_core.Event | None, tuple[_core.Event | None, ...], tuple[_core.Barrier, ...], int, None]"


def submitted(
    program: Program,
    steps: int,
    after: After,
    priority: int,
    stops: bool,
    params: Mapping[str, Any],
    traced: bool,
) -> _core.Run:
    """Submit a run, and return at once; `stops` says whether a failure lets no further step begin."""
    run = None
    while run is None:
        _settle(program)
        if program._linked is not None:
            _, run = _linked(program, program._linked, steps, after, priority, stops, params, traced)
        else:
            values, objects = program._values(params)
            given = _given(program, after, params)
            run = program._core.submit(count(steps), priority, stops, values, objects, given, traced)
        if run is None:
            program._catch_up()
    return run


def replayed(
    program: Program,
    steps: int,
    after: After,
    priority: int,
    stops: bool,
    params: Mapping[str, Any],
    traced: bool,
) -> object:
    """Run steps, and return as `_core.Program.replay` does: the number of steps run, or the run if more is to be told.

    Raises
    ------
    ContractError
        A task called this.
    """
    ended = None
    while ended is None:
        _settle(program)
        if program._linked is not None:
            if _core.serving():
                raise ContractError("replay inside a task: a task on a lane must not wait, the lane would stand still")
            core, run = _linked(program, program._linked, steps, after, priority, stops, params, traced)
            ended = None if run is None else core.follow(run)
        else:
            values, objects = program._values(params)
            given = _given(program, after, params)
            ended = program._core.replay(count(steps), priority, stops, values, objects, given, traced)
        if ended is None:
            program._catch_up()
    return ended


def _settle(program: Program) -> None:
    """Let the form that is to stay take runs, if a retuning has left that to be done."""
    if (unsettled := program._unsettled) is not None:
        unsettled.settle()


def _given(program: Program, after: After, params: Mapping[str, Any]) -> _Given | None:
    """What a run is given of what is outside."""
    if after is None and not program._outside:
        return None
    return *conditions(program._executable.preconditions, after), barriers_of(program._lowered, params), -1, None


def _linked(
    program: Program,
    runs: LinkedRuns,
    steps: int,
    after: After,
    priority: int,
    stops: bool,
    params: Mapping[str, Any],
    traced: bool,
) -> tuple[_core.Program, _core.Run | None]:
    values, objects = program._values(params)
    barriers = barriers_of(program._lowered, params)
    start = conditions(program._executable.preconditions, after)
    return runs.submit(count(steps), priority, stops, values, objects, start, barriers, traced)
