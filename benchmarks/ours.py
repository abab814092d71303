"""Ostinato's side: a flat pattern as a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.patterns import Flat

#: A Python function and its arguments.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


#: Seconds of replays in which a program adapts before anything is timed.
FIRST = 0.5

#: Seconds of such a replay.
REPLAY = 5e-3


def adapt(program: ost.Program, seconds: float = FIRST) -> None:
    """Replay a program until it knows what its tasks take, in replays of some milliseconds, as it is timed later."""
    begin, steps, took = time.perf_counter(), 1, 0.0
    while time.perf_counter() < begin + seconds:
        steps *= 2 if took < REPLAY else 1
        start = time.perf_counter()
        program.replay(steps)
        took = time.perf_counter() - start


def _join(graph: ost.Graph, flat: Flat, ops: Sequence[ost.Op]) -> None:
    for source, target, distance in zip(flat.source, flat.target, flat.distance, strict=True):
        graph.edge(ops[source], ops[target], int(distance))


def native_program(
    flat: Flat, machine: ost.Machine, task: int, users: np.ndarray, seconds: Sequence[float], lanes: int | None
) -> ost.Program:
    """Compile a pattern whose op i calls the C function at `task` with the address `users[i]`.

    For so many lanes and costs, or, where `lanes` is None, with nothing known, as users do; it has adapted then.
    """
    graph = ost.Graph(infer=False)
    ops = [graph.task(ost.native(task, (), user=int(user))) for user in users]
    _join(graph, flat, ops)
    if lanes is not None:
        return graph.compile(machine, lanes=lanes, costs=dict(zip(ops, seconds, strict=True)))
    program = graph.compile(machine, costs={})
    adapt(program)
    return program


def validated_program(
    flat: Flat,
    machine: ost.Machine,
    task: int,
    users: np.ndarray,
    buffers: np.ndarray,
    seconds: Sequence[float],
    lanes: int | None,
) -> ost.Program:
    """As `native_program`, of tasks that write and read buffers, which say what depends on what."""
    graph = ost.Graph()
    rings = [ost.ring(first, second) for first, second in buffers]
    ops = [
        graph.task(
            ost.native(task, (ost.Write, *([ost.Read] * len(flat.reads[op]))), user=int(users[op])),
            rings[op][0],
            *(rings[source][-distance] for source, distance in flat.reads[op]),
        )
        for op in range(flat.n_ops)
    ]
    if lanes is not None:
        return graph.compile(machine, lanes=lanes, costs=dict(zip(ops, seconds, strict=True)))
    program = graph.compile(machine, costs={})
    adapt(program)
    return program


def python_program(flat: Flat, machine: ost.Machine, calls: Sequence[Call]) -> ost.Program:
    """Compile a pattern whose op i is the Python call `calls[i]`; it has adapted."""
    graph = ost.Graph(infer=False)
    ops = [graph.task(fn, *args, access=(None,) * len(args)) for fn, args in calls]
    _join(graph, flat, ops)
    program = graph.compile(machine)
    adapt(program)
    return program
