"""Whatever waits for something outside holds up what depends on it, and nothing else.

The oracle works out from `graph.edges` which ops of which steps come after something that has not happened yet; all
others must run, however the ops are spread over lanes, and these must not.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import ostinato as ost


class Waiting:
    """A random graph, some ops of which wait for events or for barriers; and the ops that ran, by step."""

    def __init__(self, rng, machine):
        self.ran = set()
        self.graph = ost.Graph(infer=rng.random() < 0.5)
        self.tasks, self.events, self.barriers, self.waits = [], {}, {}, {}
        self.cpus = [processor.name for processor in machine.processors]
        arrays = np.zeros((6, 2))
        for k in range(rng.randint(3, 14)):
            after = rng.sample(self.tasks, min(len(self.tasks), rng.choice([0, 0, 1, 1, 2])))
            kind = rng.choice(["none", "none", "event", "barrier"])
            if kind == "event":
                name = f"event {len(self.events)}"
                self.events[name] = ost.UserEvent()
                self.waits[name] = self.graph.precondition(name)
                after.append(self.waits[name])
            elif kind == "barrier":
                barrier = ost.Barrier(1)
                wait = self.graph.wait(barrier, after=after)
                self.barriers[wait] = barrier
                after = [wait]
            self._task(rng, k, arrays, after)
        for _ in range(rng.choice([0, 2, 4])):
            src, dst = rng.choice(self.tasks), rng.choice(self.tasks)
            self.graph.edge(src, dst, distance=rng.randint(1, 2))

    def _task(self, rng, k, arrays, after):
        def run(s):
            self.ran.add((k, s))

        row, mode = arrays[rng.randrange(6)], rng.choice([ost.Read, ost.ReadWrite])
        blocking = rng.random() < 0.15

        def work(x, s):
            run(s)

        work.__annotations__ = {"x": mode}
        on = rng.choice([None, None, None, *self.cpus])
        self.tasks.append(self.graph.task(ost.task(blocking=blocking)(work), row, ost.step, after=after, on=on))

    def check(self, eventually, steps, overlap):
        """Check what runs now. Whether an op may overtake itself, a step ahead, is left open."""
        must = self.allowed(steps, overlap, True)
        eventually(lambda: self.ran >= must)
        assert self.ran <= self.allowed(steps, overlap, False)

    def allowed(self, steps, overlap, in_turn):
        """Return the tasks, by step, that come after nothing that has not happened; `in_turn`: nor after themselves."""
        sources = {op: [(op, 1)] if in_turn else [] for op in self.graph.ops}
        for a, b, distance in self.graph.edges:
            sources[b].append((a, distance))
        held = set()
        for step in range(steps):
            for name, op in self.waits.items():
                if step == 0 and not self.events[name].done:
                    held.add((op, step))
            for op, barrier in self.barriers.items():
                if barrier.phase <= step:
                    held.add((op, step))
            if not overlap and any(s < step for _, s in held):
                held |= {(op, step) for op in self.graph.ops}
            for op in self.graph.ops:  # in program order, along which edges within a step go
                if any((a, step - d) in held for a, d in sources[op]):
                    held.add((op, step))
        return {(k, step) for k, op in enumerate(self.tasks) for step in range(steps) if (op, step) not in held}


@pytest.mark.parametrize("lanes", [None, 1])
@pytest.mark.parametrize("seed", range(60))
def test_what_may_run_runs_and_what_may_not_does_not(seed, lanes, machine, eventually):
    rng = random.Random(seed)
    waiting = Waiting(rng, machine)
    steps = rng.randint(1, 4)
    overlap = waiting.graph.infer or any(distance for _, _, distance in waiting.graph.edges)
    happen = [event.trigger for event in waiting.events.values()]
    happen += [barrier.arrive for barrier in waiting.barriers.values() for _ in range(steps)]
    rng.shuffle(happen)
    with waiting.graph.compile(machine, lanes=lanes) as program:
        run = program.submit(steps, after=waiting.events)
        for each in [lambda: None, *happen]:
            each()
            waiting.check(eventually, steps, overlap)
        assert run.result(60) == steps
    assert len(waiting.ran) == steps * len(waiting.tasks)


@pytest.mark.parametrize("lanes", [None, 1])
@pytest.mark.parametrize("seed", range(20))
def test_the_same_of_runs_one_after_the_other(seed, lanes, machine, eventually):
    """Several runs of one step each, all submitted before anything has happened: a run's steps are those of one."""
    rng = random.Random(1000 + seed)
    waiting = Waiting(rng, machine)
    runs = rng.randint(2, 4)
    overlap = waiting.graph.infer or any(distance for _, _, distance in waiting.graph.edges)
    with waiting.graph.compile(machine, lanes=lanes) as program:
        submitted = [program.submit(after=waiting.events)]
        done = ost.merge()
        submitted += [program.submit(after=dict.fromkeys(waiting.events, done)) for _ in range(runs - 1)]
        happen = [event.trigger for event in waiting.events.values()]
        happen += [barrier.arrive for barrier in waiting.barriers.values() for _ in range(runs)]
        rng.shuffle(happen)
        for each in [lambda: None, *happen]:
            each()
            waiting.check(eventually, runs, overlap)
        assert [run.result(60) for run in submitted] == [1] * runs


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_the_same_inside_nested_graphs(seed, depth, machine, eventually):
    rng = random.Random(2000 + seed)
    waiting = Waiting(rng, machine)
    graph = waiting.graph
    for _ in range(depth):
        outer = ost.Graph(infer=graph.infer)
        outer.subgraph(graph, preconditions={name: outer.precondition(name) for name in waiting.events})
        graph = outer
    with graph.compile(machine) as program:
        run = program.submit(after=waiting.events)
        happen = [event.trigger for event in waiting.events.values()]
        happen += [barrier.arrive for barrier in waiting.barriers.values()]
        rng.shuffle(happen)
        for each in [lambda: None, *happen]:
            each()
            waiting.check(eventually, 1, True)
        assert run.result(60) == 1
