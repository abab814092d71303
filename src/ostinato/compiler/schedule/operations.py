"""What the core is to run in each step, as the passes that make lanes ask for it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato._core import Kind
from ostinato.compiler.dependences import add_step_barrier
from ostinato.compiler.ir import Mask, Operations, Step, Target
from ostinato.compiler.lower.lowerings import kinds_of, lowering_of
from ostinato.compiler.summary import Summary
from ostinato.errors import GraphError

if TYPE_CHECKING:
    from ostinato.graph.op import Op

_MOST_URGENT = 2**31 - 1  # whoever waits for a postcondition shall hear of it at once


def list_operations(step: Step, target: Target) -> Step:
    """Return the step with what the core is to run: its nodes, and last the barrier between steps if there is one."""
    ops, n = step.nodes, len(step.nodes)
    serial = step.serial or not ops  # a run of nothing has an end, too
    slots = n + int(serial)
    kinds, seconds, priority = np.full(slots, Kind.NOTHING, np.uint8), np.zeros(slots), np.zeros(slots, np.int32)
    summary = step.summary
    kinds[:n], seconds[:n], priority[:n] = kinds_of(summary), step.costs.seconds, summary.priority
    on_cpu = np.ones(n, np.bool_)
    if step.uses_devices:
        on_cpu = step.device < 0
        kinds[:n][~on_cpu] = Kind.EXTERNAL  # a task that keeps no stream's order: a thread waits for the device
        kinds[:n][step.streams.issued] = Kind.DEVICE
        for index, fence in step.streams.fences:
            seconds[index] = 0.0
            if not fence.waits:
                kinds[index] = Kind.NOTHING
    thread_of = np.full(slots, -1, np.int32)
    for index in summary.bound[on_cpu[summary.bound]].tolist():
        thread_of[index] = _thread_of(ops[index], target.processors)
    tells = kinds == Kind.POSTCONDITION
    priority[tells] = _MOST_URGENT
    outside, idle = np.zeros(slots, np.bool_), np.zeros(slots, np.bool_)
    for index in np.flatnonzero((kinds >= Kind.EXTERNAL) & (kinds != Kind.DEVICE)).tolist():
        outside[index] = ops[index].body.waits_outside
        idle[index] = ops[index].body.only_waits
    ordering = add_step_barrier(step.ordering, n) if serial else step.ordering
    gil = _list_gil(kinds, summary)
    found = Operations(ordering, kinds, seconds, *gil, thread_of, priority, outside, idle, tells, serial)
    return replace(step, operations=found)


def _list_gil(kinds: np.ndarray[Any, np.dtype[np.uint8]], summary: Summary) -> tuple[Mask, Mask]:
    """Return which ops hold the GIL all the time, and which take it."""
    bound, takes = np.zeros(len(kinds), np.bool_), np.zeros(len(kinds), np.bool_)
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        takes = kinds == Kind.PYTHON
        for kind in (Kind.PYTHON, Kind.EXTERNAL, Kind.DEVICE):
            mask = kinds == kind
            if mask.any():
                holds = summary.by_call(partial(_holds_gil, kind), np.bool_)
                bound[: len(holds)] |= mask[: len(holds)] & holds
    return bound, bound | takes


def _holds_gil(kind: Kind, op: Op) -> bool:
    return lowering_of(op.body).holds_gil(op.body, kind)


def _thread_of(op: Op, processors: int) -> int:
    on = getattr(op.on, "name", op.on)
    if on is None or on == "cpu":
        return -1
    match = re.fullmatch(r"cpu:(\d+)", on) if isinstance(on, str) else None
    if match is None or int(match[1]) >= processors:
        raise GraphError(
            f"{op.name!r} at {op.call_site} is bound to {on!r}, but this machine has only "
            f"{', '.join(f'cpu:{i}' for i in range(processors))}"
        )
    return int(match[1])
