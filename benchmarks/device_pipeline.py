"""Decode, a device, encode: what a photograph takes with one CPU thread, and what keeps thread and device busy."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Row
from benchmarks.peers import Absent

BENCHMARK = "pipeline"
OURS, LOOP, BUSY = "ostinato", "plain loop", ", busy in that"
KERNEL, HOST = "its kernel alone", "decode and encode alone"
SIZE = 256  # pixels on a side
SKIPPED = 6  # steps at both ends of a run, where the pipeline fills and drains
_FILE = Path(__file__).parent.parent / "examples" / "device_pipeline.py"


def _example() -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location("ostinato_example_device_pipeline", _FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def steady(trace: Any, op: str) -> tuple[float, dict[str, float]]:
    """What a step takes in the middle of a trace, and for how long of that each processor is busy, in seconds.

    The middle begins and ends when `op` ends in a step.
    """
    records = trace.records
    ends = np.sort(records["end"][records["op"] == trace.op_names.index(op)])[SKIPPED : -SKIPPED or None]
    begin, end, steps = ends[0], ends[-1], len(ends) - 1
    middle = records[(records["end"] > begin) & (records["start"] < end)].copy()
    middle["start"], middle["end"] = np.maximum(middle["start"], begin), np.minimum(middle["end"], end)
    busy = dataclasses.replace(trace, records=middle).busy()
    return (end - begin) / steps / 1e9, {name: seconds / steps for name, seconds in busy.items()}


def run(context: Context) -> None:
    """Time photographs, all ways in each round."""
    # The device that is a CPU has one core, and the thread another one. It matters before the device is looked for.
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")
    with ost.Machine(cpus=1) as machine:
        if len(machine.processors) == 1:
            context.absent.append(Absent(BENCHMARK, "no device"))
            return
        example = _example()
        count = 24 if context.quick else 48
        photographs = example.take(count, SIZE)
        results = [b""] * count
        noisy, clean = example.buffers(SIZE)
        with ost.capture() as kernel:
            example.smooth(noisy, clean)

        def timed(run: Callable[[], object]) -> float:
            begin = time.perf_counter()
            run()
            return (time.perf_counter() - begin) / count * 1e3

        def host() -> None:
            for k in range(count):
                example.decode(photographs, k, noisy)
                example.encode(clean, k, results)

        samples: dict[str, list[float]] = {}
        with (
            example.recorded(photographs, SIZE, results).compile(machine) as program,
            kernel.compile(machine) as kernels,
        ):
            expected = example.plain_loop(photographs, SIZE)
            program.replay(count)
            if results != expected:
                raise AssertionError("the pipeline gives other files than the plain loop")
            for _ in range(context.rounds):
                step, busy = steady(program.trace(count), "smooth")
                taken = {OURS: step * 1e3} | {name + BUSY: seconds * 1e3 for name, seconds in busy.items()}
                taken[LOOP] = timed(lambda: example.plain_loop(photographs, SIZE))
                taken[KERNEL] = timed(lambda: kernels.replay(count))
                taken[HOST] = timed(host)
                for who, each in taken.items():
                    samples.setdefault(who, []).append(each)
        case = f"a photograph of {SIZE} x {SIZE}, 1 CPU thread"
        context.rows += [Row(BENCHMARK, case, who, "ms", tuple(each), OURS) for who, each in samples.items()]
