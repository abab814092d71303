"""One variant of an op as a callable that is timed: by the core, as often as a clock can make sense of."""

from __future__ import annotations

import copy
import math
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ostinato import _core
from ostinato.compiler.bound import with_values
from ostinato.compiler.flatten import FlatOp
from ostinato.compiler.lower import kinds_of, lower
from ostinato.graph.body import Fill, NativeCall, PythonCall
from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.scalar import as_scalar
from ostinato.runtime.outcome import outcome
from ostinato.tune.graphs.measuring.problem import Unmeasurable, copied_object
from ostinato.tune.worker.forked import end_if_forked
from ostinato.tune.worker.functions import described

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostinato.graph.body import Body
    from ostinato.graph.op import Op
    from ostinato.graph.variant import Variant
    from ostinato.runtime.copies import StandIns
    from ostinato.runtime.machine import Machine
    from ostinato.tune.graphs.cases.case import Case
    from ostinato.tune.graphs.measuring.problem import Problem

__all__ = ["Failure", "MemoryFailure", "Subject", "failure_of", "variants_in"]

_now = time.perf_counter

_IN_A_ROW = 16
"""Calls in a step of the program that is timed: what a step costs by itself is a part of what a quick task takes."""

_MOST_CALLS = 1 << 20
_TIMES = 3


class _AsItIs:
    """What stands for a variant where there are none: copies and fills."""

    name = label = ""
    config: Mapping[str, Any] = MappingProxyType({})

    def body(self, default: Body) -> Body:
        return default

    def refusal(self, default: Body) -> None:
        return None


_as_it_is = _AsItIs()


def variants_in(case: Case) -> tuple[Variant, ...]:
    """Return the variants of a case, or what stands for the op itself where it is no call of a task."""
    return case.variants or (cast("Variant", _as_it_is),)


class Failure(Exception):
    """What a task raised, in words; so that faults of those who measure are not taken for its own."""


class MemoryFailure(Failure, MemoryError):
    """The same, where there was too little memory."""


def failure_of(error: BaseException) -> Failure:
    """Return what is raised for what a task raised."""
    full = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
    return (MemoryFailure if full else Failure)(described(error))


class Subject:
    """One variant on a problem's arguments, as a callable that is timed as the tuner's workers time theirs.

    Called, it is run by the core as in a program of one lane, many times if it is quick, and returns itself.

    Parameters
    ----------
    problem
        The op and its arguments, which it shares with other variants that are not called at the same time.
    variant
        The variant.
    machine
        Where it runs: on the calling thread.

    Attributes
    ----------
    before_sample
        Puts back what calls change; None if they change nothing that they read.
    calls_per_sample
        How many calls of the task one call of this stands for; known after the first.

    Raises
    ------
    Unmeasurable
        The variant cannot take these arguments, or a parameter has no default.
    """

    __slots__ = ("_body", "_calibrated", "_machine", "_problem", "_program", "_stand_ins", "_steps", "_unroll")

    sample = 100e-6
    """Seconds that it runs for a sample at least: what a replay costs by itself is less than a hundredth of it."""

    long = 1e-3
    """Seconds; a call that takes longer is a sample by itself."""

    def __init__(self, problem: Problem, variant: Variant, machine: Machine) -> None:
        op = problem.op
        refusal = variant.refusal(op.body)
        body = variant.body(op.body)
        if body is None:
            raise Unmeasurable(f"{variant.label} cannot take the arguments of the call at {op.call_site}: {refusal}")
        self._body = _without_parameters(op, body)
        self._problem = problem
        self._machine = machine
        self._program: Any = None
        self._stand_ins: StandIns | None = None  # those of the program
        self._calibrated = False
        self._unroll = self._steps = 1

    def __call__(self) -> Subject:
        """Run it as often as `calls_per_sample` says.

        Raises
        ------
        Failure
            The task failed.
        KeyboardInterrupt
            It was interrupted.
        """
        if not self._calibrated:
            if self._calibrate() > self.long:
                return self  # it has just been run, and not for nothing
            if self._problem.changes:
                self._put_back()
        self._run(self._steps)
        return self

    @property
    def calls_per_sample(self) -> int:
        return self._steps * self._unroll

    @property
    def before_sample(self) -> object:
        return self._put_back if self._problem.changes else None

    def once(self) -> None:
        """Run it once, in step 0, on arguments as they were captured; what it is to overwrite holds a pattern before.

        Raises
        ------
        Failure, KeyboardInterrupt
            As for a call.
        """
        self._renew()
        program = self._new_program(1)
        try:
            self._replay(program, 1)
        finally:
            program.close()

    def close(self) -> None:
        """Let go of the program; calling it makes another."""
        if self._program is not None:
            self._program.close()
            self._program = self._stand_ins = None

    def _calibrate(self) -> float:
        """Find out how often it is called for one sample; return the seconds of one call."""
        self._renew()
        self._run(1)  # it may compile, and caches are cold
        once = self._seconds(1)
        if once < self.sample:
            try:
                self._find_count(once)
            except Failure:
                if not self._problem.changes:
                    raise
                # One call after the other need not be possible: it may take things from where there are few.
                self._unroll = self._steps = 1
                self.close()
        self._calibrated = True
        return once

    def _find_count(self, once: float) -> None:
        self._unroll = min(_IN_A_ROW, math.ceil(self.sample / max(once, 1e-9)))
        self.close()
        steps, seconds = 1, self._seconds(1)
        while seconds < self.sample / 2 and steps * self._unroll < _MOST_CALLS:
            steps *= 2
            seconds = self._seconds(steps)
        self._steps = max(1, math.ceil(steps * self.sample / seconds))
        self._seconds(self._steps)

    def _seconds(self, steps: int) -> float:
        """Return what steps take; the least of a few times, where they are short: something may come in between."""
        least = math.inf
        for _ in range(_TIMES):
            if self._problem.changes:
                self._put_back()
            self._renew_program()
            begin = _now()
            self._run(steps)
            least = min(least, _now() - begin)
            if least > self.long:
                break
        return least

    def _run(self, steps: int) -> None:
        self._renew_program()
        self._replay(self._program, steps)

    def _renew(self) -> None:
        """Have all arguments as they were captured."""
        self._problem.renew()

    def _put_back(self) -> None:
        """Have those that calls change as they were captured."""
        self._problem.put_back()

    def _renew_program(self) -> None:
        """Have a program on the problem's present copies."""
        if self._program is None or self._stand_ins is not self._problem.stand_ins:
            self.close()
            self._program = self._new_program(self._unroll)
            self._stand_ins = self._problem.stand_ins

    def _new_program(self, count: int) -> Any:
        """Return a program of so many calls in a row."""
        ops = [FlatOp(self._problem.op, index, self._body) for index in range(count)]
        schedule = _in_a_row(ops)
        lowered = lower(ops, schedule, count, self._problem.stand_ins)
        return _core.Program(self._machine._core, schedule, lowered.plan, "pipelined")

    def _replay(self, program: Any, steps: int) -> None:
        try:
            ended = program.replay(steps, 0, True, None, None, None, False)
        finally:
            end_if_forked()
        if type(ended) is int:
            return
        run = cast("_core.Run", ended)
        end = outcome(run, [self._problem.op] * self._unroll)
        run.forget()
        if isinstance(end, BaseException):
            raise end if isinstance(end, KeyboardInterrupt) else failure_of(end.__cause__ or end)


def _without_parameters(op: Op, body: Body) -> Body:
    """Return a body with the defaults of its parameters in their place."""
    if isinstance(body, Fill) and isinstance(body.value, Param):
        filling = FlatOp(op, 0, body)
        return with_values(filling, {body.value.name: _default_of(body.value, None)})
    if not isinstance(body, PythonCall | NativeCall) or not any(isinstance(arg, Param) for arg in body.args):
        return body
    kinds = body.task.kinds if isinstance(body, NativeCall) else (None,) * len(body.args)
    changed = copy.copy(body)
    changed.args = tuple(
        _default_of(arg, kind) if isinstance(arg, Param) else arg for arg, kind in zip(body.args, kinds, strict=True)
    )
    return changed


def _default_of(param: Param, kind: Any) -> object:
    value = param.value_in({})
    if value is REQUIRED:
        raise Unmeasurable(f"parameter {param.name!r} has no default to measure with")
    if isinstance(kind, type):
        return as_scalar(value, kind, f"parameter {param.name!r}")
    return copied_object(value, {}, param.name)


def _in_a_row(ops: Sequence[FlatOp]) -> _core.Schedule:
    """Return a schedule of one lane, in which nothing waits."""
    count = len(ops)
    nothing = np.empty(0, np.int32)
    return _core.Schedule.build(
        lane_begin=np.array([0, count], np.int64),
        lane_ops=np.arange(count, dtype=np.int32),
        home=np.zeros(1, np.int32),
        pinned=np.zeros(1, np.uint8),
        kind=kinds_of(ops),
        wait_begin=np.zeros(count + 1, np.int64),
        wait_op=nothing,
        wait_distance=nothing,
        published=np.zeros(count, np.uint8),
        pred_begin=np.zeros(count + 1, np.int64),
        pred_op=nothing,
        pred_distance=nothing,
        periods=np.ones(1, np.int32),
        until_op=-1,
        until_every=1,
        largest_distance=1,
        n_posts=0,
        n_holdings=0,
    )
