"""One version of Ostinato, timed on request: ``python -m benchmarks.before_worker``, which `before` starts twice.

Uses only what every version has. A line on stdin names a case and a number of steps, as JSON; the line on stdout that
answers it is nanoseconds. Before that, one line lists the cases and how many tasks a step of each has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np

import ostinato as ost
from benchmarks.machine import revision
from benchmarks.measure import Contestant, Part, Run
from benchmarks.native import SPREAD
from benchmarks.ours import native_program, python_program
from benchmarks.patterns import all_patterns, flatten, stencil
from benchmarks.peers import Kernels

_WIDE = "stencil_1d 64"  # left out: it takes long to say little more than the narrower ones


def _empty() -> None:
    pass


def _again(program: ost.Program, submit: bool) -> Run:
    def replays(times: int) -> None:
        for _ in repeat(None, times):
            program.replay()

    def submits(times: int) -> None:
        for _ in repeat(None, times):
            program.submit().result()

    return submits if submit else replays


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


def _patterns(stack: ExitStack, machine: ost.Machine, kernels: Kernels) -> list[Contestant]:
    """Empty native tasks in every pattern, on one lane and on two."""
    found = []
    for pattern in all_patterns():
        if pattern.name == _WIDE:
            continue
        flat = flatten(pattern)
        users, seconds = np.zeros(flat.n_ops, np.int64), [SPREAD] * flat.n_ops
        for lanes, threads in ((1, "1 lane"), (2, "2 lanes")):
            program = stack.enter_context(native_program(flat, machine, kernels.empty, users, seconds, lanes))
            found.append(Contestant(f"{pattern.name}, {threads}", program.replay, flat.n_ops))
    return found


def _fixed(stack: ExitStack, machine: ost.Machine, kernels: Kernels) -> list[Contestant]:
    """Single calls, of a Python function, of a native one, and of two lanes."""
    found = []
    python, native = ost.Graph(), ost.Graph()
    python.task(_empty, access=())
    native.task(ost.native(kernels.empty, ()))
    for name, graph in (("a Python function", python), ("a native function", native)):
        program = stack.enter_context(graph.compile(machine))
        found.append(Contestant(f"replay(1) of {name}", _again(program, submit=False)))
        found.append(Contestant(f"submit(1).result() of {name}", _again(program, submit=True)))
    flat = flatten(stencil(2))
    users = np.zeros(2, np.int64)
    program = stack.enter_context(native_program(flat, machine, kernels.empty, users, [SPREAD] * 2, 2))
    found.append(Contestant("replay(1), 2 lanes", _again(program, submit=False)))
    found.append(Part("replay(1), 2 lanes, woken", _woken(program), steps=4))
    flat = flatten(stencil(16))
    program = stack.enter_context(python_program(flat, machine, [(_empty, ())] * 16))
    found.append(Contestant("stencil_1d 16, Python", program.replay, 16))
    return found


def main() -> None:
    """Answer requests until there are none."""
    with ost.Machine(cpus=2, gpus=0) as machine, ExitStack() as stack:
        # Not where the scheduler happened to put one version or the other: cores differ from minute to minute.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        kernels = Kernels()
        everything = _patterns(stack, machine, kernels) + _fixed(stack, machine, kernels)
        cases = {contestant.name: contestant for contestant in everything}
        say = partial(print, flush=True)
        listed = {name: {"tasks": case.tasks, "steps": case.steps} for name, case in cases.items()}
        say(json.dumps({"revision": revision(Path(ost.__file__).parent), "cases": listed}))
        for line in sys.stdin:
            name, steps = json.loads(line)
            say(cases[name].time(steps))


if __name__ == "__main__":
    main()
