"""Graphs of tasks that watch each other: each checks when it runs that what it comes after has been done."""

from __future__ import annotations

import ctypes
import time
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import ostinato as ost
from native import load

STEPS = 4096
"""How many steps are counted."""

_MASK = 2**64 - 1


class _Shared(ctypes.Structure):
    _fields_ = (
        ("counts", ctypes.c_void_p),
        ("steps", ctypes.c_int64),
        ("floor", ctypes.c_int64),
        ("violations", ctypes.c_int64),
    )


class Watched:
    """A random graph.

    Attributes
    ----------
    graph
        The graph, with parameters `seed` and `odds`: of how many calls one fails, 0 for none.
    counts
        How often each op ran in each step.
    """

    def __init__(self, random: Random, cpus: int) -> None:
        self.ops = random.choice([1, 3, 8, 20, 40])
        self.counts: npt.NDArray[np.int64] = np.zeros((self.ops, STEPS), np.int64)
        self._shared = _Shared(self.counts.ctypes.data, STEPS, 0, 0)
        self.graph = ost.Graph(infer=False)
        self.costs: dict[Any, float] = {}
        edges = list(_edges(random, self.ops))
        scalars = self.graph.param("seed", 0), self.graph.param("odds", 0)
        python, pinned, spin = random.choice([0, 0, 0.2, 0.5]), random.random(), random.choice([0, 10, 100])
        for op in range(self.ops):
            sources = [(a, distance) for a, b, distance in edges if b == op]
            if random.random() < python:
                body, arguments = self._python(op, sources, random), (ost.step, *scalars)
            else:
                body, arguments = self._native(op, sources, spin), scalars
            on = f"cpu:{random.randrange(cpus)}" if random.random() < pinned else None
            made = self.graph.task(body, *arguments, on=on, priority=random.randint(-1, 1))
            self.costs[made] = random.choice([1e-7, 1e-6, 1e-5])
        for a, b, distance in edges:
            self.graph.edge(self.graph.ops[a], self.graph.ops[b], distance)

    @property
    def violations(self) -> int:
        """How often something ran before what it comes after."""
        return int(self._shared.violations)

    def look_from(self, step: int) -> None:
        """Have tasks look only at what was to be done in this step or later."""
        self._shared.floor = step

    def downstream(self, first: int, steps: int, seed: int, odds: int) -> npt.NDArray[np.bool_]:
        """Which ops, in each of some steps, depend on a failure in these steps; failures do not count themselves."""
        bad = np.zeros((self.ops, steps), np.bool_)
        skipped = np.zeros((self.ops, steps), np.bool_)
        sources: dict[int, list[tuple[int, int]]] = {op.index: [] for op in self.graph.ops}
        for a, b, distance in self.graph.edges:
            sources[b.index].append((a.index, distance))
        order = [op.index for op in self.graph.ops]  # edges within a step go along it
        for step in range(steps):
            for op in order:
                skipped[op, step] = any(bad[a, step - d] for a, d in sources[op] if step >= d)
                bad[op, step] = skipped[op, step] or fails(op, first + step, seed, odds)
        return skipped

    def _native(self, op: int, sources: list[tuple[int, int]], spin: int) -> Any:
        user = np.array([ctypes.addressof(self._shared), op, spin, len(sources), *sum(sources, ())], np.int64)
        return ost.native(load("stress/watched.c").watched, (int, int), name="native", user=user)

    def _python(self, op: int, sources: list[tuple[int, int]], random: Random) -> Any:
        nap = random.choice([None, 0, 1e-5])

        @ost.task(releases_gil=random.random() < 0.5)
        def watched(step: int, seed: int, odds: int) -> None:
            for source, distance in sources:
                before = step - distance
                if before >= self._shared.floor and self.counts[source, before] != 1:
                    self._shared.violations += 1
            if nap is not None:
                time.sleep(nap)
            if step < STEPS:
                self.counts[op, step] += 1
            if fails(op, step, seed, odds):
                raise ArithmeticError(f"op {op} in step {step}")

        return watched


def fails(op: int, step: int, seed: int, odds: int) -> bool:
    """Whether a call fails; as in watched.c."""
    luck = (op * 0x9E3779B97F4A7C15 ^ step * 0xBF58476D1CE4E5B9 ^ seed * 0x94D049BB133111EB) & _MASK
    luck ^= luck >> 31
    luck = luck * 0xD6E8FEB86659FD93 & _MASK
    luck ^= luck >> 32
    return odds != 0 and (luck >> 8) % odds == 0


def _edges(random: Random, ops: int) -> set[tuple[int, int, int]]:
    edges = set()
    for _ in range(int(ops * random.choice([0, 0.5, 1, 2]))):
        a, b, distance = random.randrange(ops), random.randrange(ops), random.choice([0, 0, 0, 1, 1, 2, 5])
        if distance:
            edges.add((a, b, distance))
        elif a != b:
            edges.add((min(a, b), max(a, b), 0))
    return edges
