"""Placement by costs: beside the best of all placements, beside round-robin, and beside one lane for tiny tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, measure
from benchmarks.patterns import Pattern, all_patterns, flatten
from benchmarks.work import WorkTable

OURS, BEST, TURNS, ONE = "by costs", "best of all placements", "round-robin", "one lane"
SMALL, IRREGULAR, TINY = "small and mixed", "irregular", "tiny"

#: Seconds that tasks take where they are mixed: from and to, each order of magnitude as likely as any other.
SHORTEST, LONGEST = 0.1e-6, 1e-3
#: Seconds that the ops of a mixed graph take together in a step, at most, so that all placements can be measured.
LONGEST_STEP = 2e-3
#: Of all placements: steps and tries that each gets at first, and how many are measured once more.
FIRST_STEPS, TRIES, FINALISTS = 3, 4, 6
#: Where its memory happens to lie can make a program of empty tasks half as slow again: each is made so many times.
MADE = 3
#: A sample has at least so many steps: the first and the last are not like the others.
STEPS = 8


class Case(NamedTuple):
    """A graph whose ops take given times."""

    name: str
    edges: frozenset[tuple[int, int, int]]  # from, to, distance
    seconds: np.ndarray


def _mixed(draw: np.random.Generator, ops: int) -> np.ndarray:
    while True:
        seconds = np.exp(draw.uniform(np.log(SHORTEST), np.log(LONGEST), ops))
        if seconds.sum() < LONGEST_STEP:
            return seconds


def small(seed: int, ops: int) -> Case:
    """A random graph of mixed ops."""
    draw = np.random.default_rng((seed, ops))
    edges = {(int(a), op, 0) for op in range(1, ops) for a in draw.choice(op, min(op, draw.integers(3)), replace=False)}
    edges |= {(op, op, 1) for op in range(ops) if draw.random() < 0.7}  # what keeps a state from step to step
    edges |= {(int(a), int(b), 1) for a, b in draw.integers(0, ops, (ops // 4, 2))}
    return Case(f"{ops} ops, graph {seed}", frozenset(edges), _mixed(draw, ops))


def mixed(seed: int, serial: bool, ops: int = 24) -> Case:
    """A larger random graph of mixed ops; `serial`: all of a step come after all of the step before."""
    draw = np.random.default_rng((seed, ops))
    edges = {(int(a), op, 0) for op in range(1, ops) for a in draw.choice(op, min(op, draw.integers(3)), replace=False)}
    edges |= {(op, op, 1) for op in range(ops)}
    if serial:
        edges |= {(op, ops - 1, 0) for op in range(ops - 1)} | {(ops - 1, op, 1) for op in range(ops)}
    name = f"mixed, step after step, graph {seed}" if serial else f"mixed, graph {seed}"
    return Case(name, frozenset(edges), _mixed(draw, ops))


def layers(seed: int, width: int = 8, depth: int = 6) -> Case:
    """Layers of ops of lognormal times, 30 us on average, each op after two of the layer before."""
    draw = np.random.default_rng((seed, width, depth))
    ops = width * depth
    edges = {(op - op % width - 1 - int(a), op, 0) for op in range(width, ops) for a in draw.choice(width, 2, False)}
    edges |= {(ops - width + a, b, 1) for a in range(width) for b in range(width)}
    relative = draw.lognormal(0.0, 1.5, ops)
    return Case(f"layers, lognormal, graph {seed}", frozenset(edges), relative / relative.mean() * 30e-6)


def tiles(ops: int = 24) -> Case:
    """A row of tiles with their neighbours, every other one of which is four times as long, 30 us on average."""
    edges = {(a, op, 1) for op in range(ops) for a in (op - 1, op, op + 1) if 0 <= a < ops}
    relative = np.where(np.arange(ops) % 2 == 0, 4.0, 1.0)
    return Case("tiles, every other one is long", frozenset(edges), relative / relative.mean() * 30e-6)


def tiny(grain: float, patterns: Sequence[Pattern] = ()) -> list[Case]:
    """Patterns, by default those of the other benchmarks, with ops that do nothing, or next to it."""
    cases = []
    for pattern in patterns or all_patterns():
        flat = flatten(pattern)
        edges = zip(flat.source.tolist(), flat.target.tolist(), flat.distance.tolist(), strict=True)
        name = f"{pattern.name}, {'empty' if grain == 0 else f'{grain * 1e9:.0f} ns'}"
        cases.append(Case(name, frozenset(edges), np.full(pattern.tasks, grain)))
    return cases


class Work:
    """Programs whose ops take the times of a case, on the clock of this machine."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seconds = 1.0  # an iteration of the kernel takes
        iterations = 10_000
        case = Case("", frozenset({(0, 0, 1)}), np.full(1, float(iterations)))
        with ExitStack() as stack:
            contestant = Contestant("", self.program(case, stack, lanes=1).replay)
            context.measure([contestant])
        self._seconds = float(np.median(contestant.samples)) * 1e-9 / iterations

    def graph(self, case: Case, stack: ExitStack, on: Sequence[int] | None = None) -> tuple[ost.Graph, list[ost.Op]]:
        """Return the graph of a case, and its ops; with `on`, each op is for a given processor."""
        table = WorkTable(np.rint(case.seconds[:, None] / self._seconds))
        stack.callback(lambda: table)  # it lives as long as the program
        graph = ost.Graph(infer=False)
        ops = [
            graph.task(
                ost.native(self._context.kernels.work, (), user=int(user)),
                on=None if on is None else f"cpu:{on[place]}",
            )
            for place, user in enumerate(table.users)
        ]
        for source, target, distance in sorted(case.edges):
            graph.edge(ops[source], ops[target], distance)
        return graph, ops

    def program(self, case: Case, stack: ExitStack, on: Sequence[int] | None = None, lanes: int = 2) -> ost.Program:
        """Compile a case by its costs; with `on`, each op for a given processor."""
        graph, ops = self.graph(case, stack, on)
        costs = dict(zip(ops, case.seconds.tolist(), strict=True))
        return stack.enter_context(graph.compile(self._context.machine, lanes=lanes, costs=costs))

    def contestants(self, case: Case, stack: ExitStack, names: Sequence[str]) -> list[Contestant]:
        """Those of the names that can be made without measuring, a step being the unit."""
        turns = [op % 2 for op in range(len(case.seconds))]
        made = {
            OURS: lambda: self.program(case, stack),
            TURNS: lambda: self.program(case, stack, turns),
            ONE: lambda: self.program(case, stack, lanes=1),
        }
        return [Contestant(name, made[name]().replay, multiple=STEPS) for name in names]


def best_of_all(context: Context, work: Work, case: Case) -> tuple[int, ...] | None:
    """Return the placement on two processors that is fastest; None if one lane is.

    All are measured for some steps; of those that come first, the best is who is best when measured again.
    """
    ops = len(case.seconds)
    taken: dict[tuple[int, ...], float] = {}
    for number in range(1, 2 ** (ops - 1)):  # the last op's processor is given: the two are alike
        on = tuple(number >> op & 1 for op in range(ops))
        with ExitStack() as stack:
            contestant = Contestant("", work.program(case, stack, on).replay)
            taken[on] = min(contestant.time(FIRST_STEPS) for _ in range(TRIES))
    finalists: list[tuple[int, ...] | None] = [*sorted(taken, key=taken.__getitem__)[:FINALISTS], None]
    with ExitStack() as stack:
        contestants = [
            Contestant("", work.program(case, stack, on, lanes=1 if on is None else 2).replay, multiple=STEPS)
            for on in finalists
        ]
        measure(contestants, rounds=5, seconds=context.seconds)
    return finalists[int(np.argmin([np.median(contestant.samples) for contestant in contestants]))]


def _small(context: Context, work: Work, case: Case) -> None:
    on = best_of_all(context, work, case)
    with ExitStack() as stack:
        best = Contestant(BEST, work.program(case, stack, on, lanes=1 if on is None else 2).replay, multiple=STEPS)
        _compare(context, SMALL, case, [*work.contestants(case, stack, (OURS, TURNS, ONE)), best], BEST)


def _against(
    context: Context, work: Work, what: str, case: Case, names: Sequence[str], reference: str, times: int = 1
) -> None:
    with ExitStack() as stack:
        _compare(context, what, case, work.contestants(case, stack, tuple(names) * times), reference)


def _compare(context: Context, what: str, case: Case, contestants: list[Contestant], reference: str) -> None:
    context.measure(contestants)
    fastest: dict[str, Contestant] = {}  # of those of a name
    for contestant in sorted(contestants, key=lambda contestant: float(np.median(contestant.samples))):
        fastest.setdefault(contestant.name, contestant)
    for contestant in fastest.values():
        samples = tuple(np.array(contestant.samples) / 1e3)
        name = f"{what}: {case.name}"
        context.rows.append(Row("placement", name, contestant.name, "us/step", samples, reference))


def run(context: Context) -> None:
    """Measure small graphs beside the best of all placements, irregular ones beside round-robin, tiny beside one."""
    ost.MachineModel.of(context.machine)
    work = Work(context)
    for ops, count in ((6, 1), (8, 2)) if context.quick else ((6, 3), (8, 4), (10, 3), (12, 1)):
        for seed in range(count):
            _small(context, work, small(seed, ops))
    seeds = range(1 if context.quick else 3)
    cases = [case for seed in seeds for case in (mixed(seed, False), mixed(seed, True), layers(seed))]
    for case in [*cases, tiles()]:
        _against(context, work, IRREGULAR, case, (OURS, TURNS, ONE), TURNS)
    for grain in (0.0,) if context.quick else (0.0, 50e-9):
        for case in tiny(grain):
            _against(context, work, TINY, case, (OURS, ONE), ONE, MADE)
