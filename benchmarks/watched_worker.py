"""Replays, timed on request: started by `watching`, alone or by ``ostinato top``.

The first line on stdout names the cases. A line on stdin is a case and seconds; the line that answers it is the
nanoseconds that a step took.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial

import numpy as np

import ostinato as ost
from benchmarks.measure import Run
from benchmarks.native import SPREAD
from benchmarks.ours import native_program, python_program
from benchmarks.patterns import flatten, stencil
from benchmarks.peers import Kernels

_WIDTH = 16


def _empty() -> None:
    pass


def _calls(program: ost.Program, steps: int) -> None:
    for _ in range(steps):
        program.replay()


def main() -> None:
    """Answer requests until the pipe is closed."""
    flat = flatten(stencil(_WIDTH))
    kernels = Kernels()
    users, costs = np.zeros(_WIDTH, np.int64), [SPREAD] * _WIDTH
    with ExitStack() as stack:
        machine = stack.enter_context(ost.Machine(cpus=2, gpus=0))
        native = stack.enter_context(native_program(flat, machine, kernels.empty, users, costs, 2))
        python = stack.enter_context(python_program(flat, machine, [(_empty, ())] * _WIDTH))
        one = stack.enter_context(native_program(flat, machine, kernels.empty, users, costs, 1))
        runs: dict[str, Run] = {
            "native tasks on one lane": one.replay,
            "native tasks on two lanes": native.replay,
            "Python tasks": python.replay,
            "replays of one step": partial(_calls, one),
        }
        print(",".join(runs), flush=True)
        for line in sys.stdin:
            case, _, seconds = line.rpartition(" ")
            end = time.perf_counter_ns() + int(float(seconds) * 1e9)
            begin, done, steps = time.perf_counter_ns(), 0, 64
            while (now := time.perf_counter_ns()) < end:
                runs[case](steps)
                done += steps
                if now - begin < 0.01e9:
                    steps *= 2
            print((now - begin) / done, flush=True)


if __name__ == "__main__":
    main()
