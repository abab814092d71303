"""One version of Ostinato, timed on request: ``python -m benchmarks.before_worker``, which `before` starts twice.

Uses only what every version has. A line on stdin names a case and a number of steps, as JSON; the line on stdout that
answers it is nanoseconds. Before that, one line lists the cases and how many tasks a step of each has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np

import ostinato as ost
from benchmarks.machine import revision
from benchmarks.measure import Contestant, Part, Run
from benchmarks.native import SPREAD
from benchmarks.ours import Call, native_program, python_program
from benchmarks.patterns import Flat, all_patterns, flatten, stencil
from benchmarks.peers import Kernels

_WIDE = "stencil_1d 64"  # left out: it takes long to say little more than the narrower ones


def _empty() -> None:
    pass


@dataclass(frozen=True)
class Case:
    """Something to be timed: `runs` makes of the program that `start` compiles what runs so many steps of it."""

    start: Callable[[], ost.Program]
    tasks: int
    runs: Callable[[ost.Program], Run]
    steps: int = 0  # in a sample, where it times itself


def _replays(program: ost.Program) -> Run:
    def run(times: int) -> None:
        for _ in repeat(None, times):
            program.replay()

    return run


def _submits(program: ost.Program) -> Run:
    def run(times: int) -> None:
        for _ in repeat(None, times):
            program.submit().result()

    return run


def _woken(program: ost.Program) -> Run:
    """Replay after a pause in which every thread goes to sleep; the pause does not count."""

    def run(times: int) -> float:
        spent = 0
        for _ in repeat(None, times):
            time.sleep(0.003)
            begin = time.perf_counter_ns()
            program.replay()
            spent += time.perf_counter_ns() - begin
        return spent

    return run


def _patterns(machine: ost.Machine, kernels: Kernels) -> dict[str, Case]:
    """Empty native tasks in every pattern, on one lane and on two."""
    found: dict[str, Case] = {}
    for pattern in all_patterns():
        if pattern.name == _WIDE:
            continue
        flat = flatten(pattern)
        for lanes, threads in ((1, "1 lane"), (2, "2 lanes")):
            start = partial(_native, machine, kernels, flat, lanes)
            found[f"{pattern.name}, {threads}"] = Case(start, flat.n_ops, lambda program: program.replay)
    return found


def _native(machine: ost.Machine, kernels: Kernels, flat: Flat, lanes: int) -> ost.Program:
    users, seconds = np.zeros(flat.n_ops, np.int64), [SPREAD] * flat.n_ops
    return native_program(flat, machine, kernels.empty, users, seconds, lanes)


def _fixed(machine: ost.Machine, kernels: Kernels) -> dict[str, Case]:
    """Single calls, of a Python function, of a native one, and of two lanes."""
    found: dict[str, Case] = {}
    python, native = ost.Graph(), ost.Graph()
    python.task(_empty, access=())
    native.task(ost.native(kernels.empty, ()))
    for name, graph in (("a Python function", python), ("a native function", native)):
        start = partial(graph.compile, machine)
        found[f"replay(1) of {name}"] = Case(start, 1, _replays)
        found[f"submit(1).result() of {name}"] = Case(start, 1, _submits)
    two = partial(_native, machine, kernels, flatten(stencil(2)), 2)
    found["replay(1), 2 lanes"] = Case(two, 1, _replays)
    found["replay(1), 2 lanes, woken"] = Case(two, 1, _woken, steps=4)
    tasks: list[Call] = [(_empty, ())] * 16
    start = partial(python_program, flatten(stencil(16)), machine, tasks)
    found["stencil_1d 16, Python"] = Case(start, 16, lambda program: program.replay)
    return found


def main() -> None:
    """Answer requests until there are none."""
    with ost.Machine(cpus=2, gpus=0) as machine, ExitStack() as stack:
        # Not where the scheduler happened to put one version or the other: cores differ from minute to minute.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        kernels = Kernels()
        cases = _patterns(machine, kernels) | _fixed(machine, kernels)
        say = partial(print, flush=True)
        listed = {name: {"tasks": case.tasks, "steps": case.steps} for name, case in cases.items()}
        say(json.dumps({"revision": revision(Path(ost.__file__).parent), "cases": listed}))
        asked = ""
        for line in sys.stdin:
            name, steps = json.loads(line)
            if name != asked:  # one program at a time: others, even idle, are looked at
                stack.close()
                asked, case = name, cases[name]
                run = case.runs(stack.enter_context(case.start()))
                timed = Part(name, run) if case.steps else Contestant(name, run)
            say(timed.time(steps))


if __name__ == "__main__":
    main()
