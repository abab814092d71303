"""Retuning: what it gains where costs were wrong, and what it costs, and keeps, where nothing is to be gained."""

from __future__ import annotations

import time
from contextlib import ExitStack

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row
from benchmarks.placement import STEPS, Case, Work, layers, mixed, tiny

BEFORE, AFTER, TRUE = "as compiled", "retuned", "compiled with true costs"
RETUNE, REPLAY = "retune", "replay"
GAIN, NOTHING = "wrong costs", "nothing to gain"

#: Steps of a retuning.
RETUNED = 1000


def chain(ops: int = 12) -> Case:
    """A chain of ops of 20 us, step after step: no placement is better than one lane."""
    edges = {(op - 1, op, 0) for op in range(1, ops)} | {(ops - 1, 0, 1)}
    return Case("a chain", frozenset(edges), np.full(ops, 20e-6))


def inverted(seconds: np.ndarray) -> np.ndarray:
    """The longest op is said to be the shortest, and so on."""
    ordered = np.sort(seconds)
    wrong = np.empty_like(seconds)
    wrong[np.argsort(seconds)[::-1]] = ordered
    return wrong


class _Retuned:
    """Programs of one case, compiled with given costs."""

    def __init__(self, context: Context, work: Work, case: Case, stack: ExitStack) -> None:
        self._machine = context.machine
        self._work = work
        self._case = case
        self._stack = stack

    def program(self, costs: np.ndarray | None) -> ost.Program:
        graph, ops = self._work.graph(self._case, self._stack)
        known = None if costs is None else dict(zip(ops, costs.tolist(), strict=True))
        return self._stack.enter_context(graph.compile(self._machine, costs=known, adapt=False))


def _gain(context: Context, work: Work, case: Case, what: str, costs: np.ndarray | None) -> None:
    """Retune a program, and time it beside itself as it was, and beside what was compiled with true costs."""
    with ExitStack() as stack:
        programs = _Retuned(context, work, case, stack)
        before, after, true = (programs.program(each) for each in (costs, costs, case.seconds))
        begin = time.perf_counter()
        found = after.retune(RETUNED)
        seconds = time.perf_counter() - begin
        contestants = [
            Contestant(name, program.replay, multiple=STEPS)
            for name, program in ((BEFORE, before), (AFTER, after), (TRUE, true))
        ]
        context.measure(contestants)
    name = f"{GAIN}: {case.name}, {what}"
    for contestant in contestants:
        samples = tuple(np.array(contestant.samples) / 1e3)
        context.rows.append(Row("retune", name, contestant.name, "us/step", samples, BEFORE))
    context.rows.append(Row("retune", name, f"kept {found.kept}, pairs of turns", "pairs", (float(found.pairs),)))
    context.rows.append(Row("retune", name, f"{RETUNED} steps of retune", "ms", (seconds * 1e3,)))


def _nothing(context: Context, work: Work, case: Case, costs: np.ndarray) -> None:
    """Time retuning beside a replay of as many steps, and count how often it keeps what it had."""
    taken: dict[str, list[float]] = {RETUNE: [], REPLAY: []}
    kept = 0
    with ExitStack() as stack:
        program = _Retuned(context, work, case, stack).program(costs)
        program.replay(RETUNED)
        for _ in range(context.rounds):
            begin = time.perf_counter()
            program.replay(RETUNED)
            replayed = time.perf_counter()
            kept += program.retune(RETUNED).kept == "old"
            taken[RETUNE].append((time.perf_counter() - replayed) * 1e3)
            taken[REPLAY].append((replayed - begin) * 1e3)
    name = f"{NOTHING}: {case.name}, {RETUNED} steps"
    context.rows += [Row("retune", name, each, "ms", tuple(samples), REPLAY) for each, samples in taken.items()]
    context.rows.append(Row("retune", name, "kept the old schedule", "of all", (kept / context.rounds,)))


def run(context: Context) -> None:
    """Retune programs with wrong costs, and programs of which nothing better is to be made."""
    work = Work(context)
    for case in [layers(0)] if context.quick else [layers(0), layers(1), mixed(0, serial=False)]:
        _gain(context, work, case, "costs estimated", None)
        _gain(context, work, case, "costs inverted", inverted(case.seconds))
    for case in tiny(50e-9)[:1] if context.quick else tiny(50e-9)[:3]:
        _gain(context, work, case, "said to take 30 us", np.full_like(case.seconds, 30e-6))
    _nothing(context, work, chain(), chain().seconds)
    _nothing(context, work, layers(0), layers(0).seconds)
