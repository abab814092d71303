"""Cores: a caller that is bound to each core in turn, and another process that uses one of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

import ostinato as ost
from benchmarks.applications.application import OURS
from benchmarks.applications.heat import Heat
from benchmarks.applications.peers import Here
from benchmarks.context import Context
from benchmarks.measure import Contestant, Part, Row, Run, measure
from benchmarks.native import ADAPTED, HAND, ONE, TWO, starters
from benchmarks.patterns import fft, flatten, stencil
from benchmarks.placement import Work, tiny

BENCHMARK = "cores"
CALLER, BESIDE = "caller", "beside"
FREE = "not bound"
STEPS = (1e-6, 16e-6, 100e-6)
CALLS = (1, 100, 4000)
WIDTH = 4
NICE = (0, 10)
HEAT = ("OpenMP", "oneTBB", "Numba prange")


def bound(program: ost.Program, steps: int, cores: set[int]) -> Run:
    """Return what calls `replay(steps)` so often with the caller bound to cores, and tells the time without binding."""

    def run(calls: int) -> float:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            begin = time.perf_counter_ns()
            for _ in range(calls):
                program.replay(steps)
            return time.perf_counter_ns() - begin
        finally:
            os.sched_setaffinity(0, before)

    return run


@contextlib.contextmanager
def busy(core: int, nice: int) -> Iterator[None]:
    """Another process that always has work, bound to a core."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        os.sched_setaffinity(process.pid, {core})
        time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def run(context: Context) -> None:
    """Time calls from each core, then all beside another process."""
    _time_callers(context)
    cores = sorted(os.sched_getaffinity(0))[:2]
    if context.wants(f"{BESIDE} nobody"):
        _time_beside(context, "nobody")
    for nice in NICE:
        for number, core in enumerate(cores):
            who = f"a process at nice {nice} on core {number}"
            if context.wants(f"{BESIDE} {who}"):
                with busy(core, nice):
                    _time_beside(context, who)


def _time_callers(context: Context) -> None:
    work, cores = Work(context), sorted(os.sched_getaffinity(0))
    for seconds in STEPS:
        if not any(context.wants(_caller_case(steps, seconds)) for steps in CALLS):
            continue
        (case,) = tiny(seconds * 2 / WIDTH, [stencil(WIDTH)])
        with ExitStack() as stack:
            program = work.program(case, stack)
            for steps in CALLS:
                places = {FREE: set(cores)} | {f"core {number}": {core} for number, core in enumerate(cores)}
                contestants: list[Contestant] = [
                    Part(name, bound(program, steps, place), tasks=steps) for name, place in places.items()
                ]
                measure(contestants, rounds=3 if context.quick else 9, seconds=context.seconds)
                _keep(context, _caller_case(steps, seconds), contestants)


def _caller_case(steps: int, seconds: float) -> str:
    return f"{CALLER}: replay({steps}) of {seconds * 1e6:.0f} us"


def _time_beside(context: Context, who: str) -> None:
    rounds, seconds = (3, 0.02) if context.quick else (7, 0.05)
    here = Here(context.machine)
    with here.stack:
        heat = Heat(256)
        starts = heat.contestants()
        contestants = [Contestant(name, starts[name](here), multiple=heat.multiple) for name in (OURS, *HEAT)]
        _settle(contestants)
        measure(contestants, rounds=rounds, seconds=seconds)
        _keep(context, f"{BESIDE} {who}: {heat.case}", contestants)
    everybody = {name: start for name, start in starters(context).items() if name in (HAND, ONE, TWO, ADAPTED)}
    for pattern in (stencil(16), fft(8)):
        flat = flatten(pattern)
        with ExitStack() as stack:
            users = np.zeros(flat.n_ops, np.int64)
            contestants = [
                Contestant(
                    name,
                    stack.enter_context(start(flat, context.kernels.empty, users, [5e-7] * flat.n_ops)),
                    multiple=64,
                )
                for name, start in everybody.items()
            ]
            _settle(contestants)
            measure(contestants, rounds=rounds, seconds=seconds)
            _keep(context, f"{BESIDE} {who}: {pattern.name}", contestants)


def _settle(contestants: list[Contestant]) -> None:
    """The same for all: long enough to compile, and for programs to adapt."""
    for contestant in contestants:
        begin = time.monotonic()
        while time.monotonic() - begin < 0.4:
            contestant.time(contestant.multiple * 10)


def _keep(context: Context, case: str, contestants: list[Contestant]) -> None:
    """Compare each with the fastest that is not ours, or of ours where there are no others."""
    others = [each for each in contestants if not each.name.startswith(OURS)]
    fastest = min(others, key=lambda each: float(np.median(each.samples))).name
    context.rows += [
        Row(BENCHMARK, case, each.name, "us/step", tuple(np.array(each.samples) / 1e3), fastest) for each in contestants
    ]
