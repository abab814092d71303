"""Adapting: a program compiled with nothing known, after some replays, beside the better of one lane and two."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, measure
from benchmarks.ours import adapt
from benchmarks.patterns import Pattern, all_to_all, fft, no_comm, stencil, tree
from benchmarks.placement import Case, Work, tiny

OURS, PLAIN, ONE, TWO, BETTER = "adapted", "as compiled", "one lane", "two lanes", "the better of one and two lanes"

#: A program adapts for so many samples: until it seldom tries the schedules that lost.
SAMPLES = 150

#: A case is measured again, `TRIES` times in all at most, if the host of a virtual machine took a core away
#: meanwhile. That shows in the programs that do not adapt, of one lane and of two: the quartiles of their times then
#: differ by more than `SPREAD` of the median.
TRIES, SPREAD = 3, 0.1


def cases(quick: bool) -> list[Case]:
    """Patterns of four to 64 tasks a row, of no work to 100 us."""
    patterns: list[Pattern] = [stencil(width) for width in (4, 16, 64)]
    for make in (no_comm, tree, fft, all_to_all):
        for width in (8,) if quick else (4, 8, 16):
            patterns.append(replace(made := make(width), name=f"{made.name.split()[0]} {width}"))
    grains = (0, 10e-6) if quick else (0, 1e-6, 10e-6, 100e-6)
    return [case for grain in grains for case in tiny(grain, patterns)]


def forced(graph: ost.Graph, ops: list[ost.Op], context: Context, lanes: int) -> ost.Program:
    """Compile for so many lanes, whether that pays or not."""
    return graph.compile(context.machine, lanes=lanes, costs=dict.fromkeys(ops, 30e-6), adapt=False)


def run(context: Context) -> None:
    """Let programs adapt, and time them beside those of one lane and of two."""
    work = Work(context)
    for case in cases(context.quick):
        if not context.wants(case.name):
            continue
        for _ in range(TRIES):
            contestants = _measured(context, work, case)
            if all(_is_steady(contestant) for contestant in contestants[2:]):
                break
        for contestant in contestants:
            samples = tuple(np.array(contestant.samples) / 1e3)
            context.rows.append(Row("adapt", case.name, contestant.name, "us/step", samples, BETTER))
        better = min(contestants[2:], key=lambda contestant: float(np.median(contestant.samples)))
        samples = tuple(np.array(better.samples) / 1e3)
        context.rows.append(Row("adapt", case.name, BETTER, "us/step", samples, BETTER))


def _measured(context: Context, work: Work, case: Case) -> list[Contestant]:
    """Compile in each way, let the one that adapts do so, and measure them in turn."""
    with ExitStack() as stack:
        graph, ops = work.graph(case, stack)
        programs = {
            OURS: graph.compile(context.machine, costs={}),
            PLAIN: graph.compile(context.machine, costs={}, adapt=False),
            ONE: forced(graph, ops, context, 1),
            TWO: forced(graph, ops, context, 2),
        }
        for program in programs.values():
            stack.enter_context(program)
        adapt(programs[OURS], context.seconds * SAMPLES)
        contestants = [Contestant(name, program.replay) for name, program in programs.items()]
        measure(contestants, rounds=2 * context.rounds, seconds=context.seconds)
        return contestants


def _is_steady(contestant: Contestant) -> bool:
    low, middle, high = np.quantile(contestant.samples, (0.25, 0.5, 0.75))
    return bool(high - low <= SPREAD * middle)
