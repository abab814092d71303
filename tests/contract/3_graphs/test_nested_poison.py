"""Nested graphs fail as if they were written out: random ones, beside the flat graph of the same tasks.

`graph.edges` of the flat graph says what is to be skipped.
"""

from __future__ import annotations

import random
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost


class Both:
    """The same random tasks in a flat graph and in one with nested graphs; which of them ran, by step."""

    def __init__(self, seed, infer):
        self.random = random.Random(seed)
        self.rows = np.zeros((5, 1))
        self.flat_tasks, self.failing, self.ran = [], set(), set()
        self.flat, self.nested = ost.Graph(infer=infer), ost.Graph(infer=infer)
        self._fill(self.nested, [], 0)
        if not self.flat_tasks:
            self._task(self.nested, [], [])

    def _fill(self, graph, flat_after, depth):
        """Add some ops and nested graphs, all of which come after some; return the flat tasks that this adds."""
        items = []  # what stands in `after=`, and the flat tasks that it stands for
        for _ in range(self.random.randint(0 if depth else 3, 5)):
            chosen = self.random.sample(items, min(len(items), self.random.choice([0, 0, 1, 2])))
            after = [op for op, _ in chosen]
            before = [*flat_after, *(task for _, tasks in chosen for task in tasks)]
            if depth < 3 and self.random.random() < 0.4:
                items.append(self._group(graph, after, before, depth))
            else:
                items.append(self._task(graph, after, before))
        return [task for _, tasks in items for task in tasks]

    def _group(self, graph, after, before, depth):
        inner = ost.Graph(infer=graph.infer)
        tasks = self._fill(inner, before, depth + 1)
        return graph.subgraph(inner, after=after), tasks or before

    def _task(self, graph, after, before):
        k = len(self.flat_tasks)

        def work(x, s):
            self.ran.add((k, s))
            if (k, s) in self.failing:
                raise ArithmeticError(k)

        work.__annotations__ = {"x": self.random.choice([ost.Read, ost.ReadWrite])}
        task = ost.task(blocking=self.random.random() < 0.1)(work)
        row = self.rows[self.random.randrange(5)]
        self.flat_tasks.append(self.flat.task(task, row, ost.step, after=before))
        return graph.task(task, row, ost.step, after=after, name=f"task {k}"), [self.flat_tasks[k]]

    def skipped(self, steps):
        sources = {op: [(a, d) for a, b, d in self.flat.edges if b is op] for op in self.flat.ops}
        bad, skipped = {(self.flat_tasks[k], s) for k, s in self.failing}, set()
        for step in range(steps):
            for op in self.flat.ops:
                if any((a, step - d) in bad for a, d in sources[op]):
                    skipped.add((op, step))
                    bad.add((op, step))
        return {(k, s) for k, op in enumerate(self.flat_tasks) for s in range(steps) if (op, s) in skipped}


@pytest.mark.parametrize("infer", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_exactly_what_is_downstream_is_skipped(seed, infer, machine):
    both = Both(seed, infer)
    rng, n = random.Random(seed), len(both.flat_tasks)
    steps = rng.randint(1, 5)
    both.failing = {(rng.randrange(n), rng.randrange(steps)) for _ in range(rng.choice([1, 1, 2]))}
    skipped = both.skipped(steps)
    least = min(both.failing - skipped, key=lambda found: found[::-1])
    with both.nested.compile(machine) as program:
        run = program.submit(steps, on_error="continue", profile=True)
        error = run.exception(60)
        assert isinstance(error, ost.TaskError)
        assert (error.op.name, error.step) == (f"task {least[0]}", least[1])
        assert both.ran == {(k, s) for k in range(n) for s in range(steps)} - skipped
        told = {(r.op.name, r.step) for r in run.profile if r.status == "poisoned" and r.op.name.startswith("task")}
        assert told <= {(f"task {k}", s) for k, s in skipped}
        untold = {s for k, s in skipped if (f"task {k}", s) not in told}
        assert all(len(both.ran & {(k, s) for k in range(n)}) == 0 for s in untold)  # the run had ended
        both.failing = set()
        both.ran.clear()
        assert program.replay(2) == 2
        assert len(both.ran) == 2 * n


@pytest.mark.parametrize("seed", range(10))
def test_a_cancelled_one_runs_whole_steps_or_tells_what_it_cut(seed, machine):
    both = Both(seed, True)
    n = len(both.flat_tasks)
    with both.nested.compile(machine) as program:
        run = program.submit(10**9)
        second = program.submit(3)
        assert run.cancel()
        with pytest.raises(CancelledError):
            run.result(60)
        assert second.result(60) == 3
    assert len(both.ran) >= (run.steps_done + 3) * n
