"""Fixed costs: one call of replay or submit, and waking a machine that sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat

import numpy as np

import ostinato as ost
from benchmarks.checking import Check
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, Run
from benchmarks.native import SPREAD
from benchmarks.ours import adapt, native_program
from benchmarks.patterns import flatten, stencil

CALL, REPLAY, SUBMIT, POOL, TWO = (
    "call from Python",
    "replay(1)",
    "submit(1).result()",
    "pool.submit().result()",
    "replay(1), 2 lanes",
)
PYTHON, NATIVE, HOT, WAKE = "a Python function", "a native function", "two hot threads", "woken from sleep"
_BENCHMARK = "fixed"


def _again(call: Callable[[], object]) -> Run:
    """A loop that makes the call so many times."""

    def run(times: int) -> None:
        for _ in repeat(None, times):
            call()

    return run


def _empty() -> None:
    pass


def _replays(program: ost.Program) -> list[Contestant]:
    return [
        Contestant(REPLAY, _again(program.replay)),
        Contestant(SUBMIT, _again(lambda: program.submit().result())),
    ]


def _python(context: Context) -> None:
    graph = ost.Graph()
    graph.task(_empty, access=())
    with graph.compile(context.machine) as program, ThreadPoolExecutor(1) as pool:
        adapt(program)
        contestants = [
            Contestant(CALL, _again(_empty)),
            *_replays(program),
            Contestant(POOL, _again(lambda: pool.submit(_empty).result())),
        ]
        context.compare(_BENCHMARK, PYTHON, contestants, CALL, "ns")


def _native(context: Context) -> None:
    graph = ost.Graph()
    graph.task(ost.native(context.kernels.empty, ()))
    with graph.compile(context.machine) as program:
        adapt(program)
        call = partial(context.kernels.call_empty, None)
        contestants = [Contestant(CALL, _again(call)), *_replays(program)]
        context.compare(_BENCHMARK, NATIVE, contestants, CALL, "ns")


def _two_threads(context: Context) -> None:
    """A program of two ops on two lanes, each of which waits for the other in every step."""
    flat = flatten(stencil(2))
    seconds = [SPREAD] * 2
    check = Check(flat)
    with native_program(flat, context.machine, context.kernels.check, check.users, seconds, 2) as program:
        check.verify(_again(program.replay), TWO)
    users = np.zeros(2, np.int64)
    with native_program(flat, context.machine, context.kernels.empty, users, seconds, 2) as program:
        context.compare(_BENCHMARK, HOT, [Contestant(TWO, _again(program.replay))], TWO, "ns")
        _wake(context, program)


def _wake(context: Context, program: ost.Program) -> None:
    """The same after a pause in which every thread goes to sleep, beside a Python thread that waits for an event."""
    ask, answer = threading.Event(), threading.Event()
    ending = False

    def serve() -> None:
        while ask.wait() and not ending:
            ask.clear()
            answer.set()

    def exchange() -> None:
        ask.set()
        answer.wait()
        answer.clear()

    thread = threading.Thread(target=serve)
    thread.start()
    samples: dict[str, list[float]] = {"threading.Event, there and back": [], TWO: []}
    calls: tuple[Callable[[], object], ...] = (exchange, program.replay)
    for _ in range(20 if context.quick else 100):
        for name, call in zip(samples, calls, strict=True):
            time.sleep(0.005)
            begin = time.perf_counter_ns()
            call()
            samples[name].append(time.perf_counter_ns() - begin)
    ending = True
    ask.set()
    thread.join()
    context.rows += [Row(_BENCHMARK, WAKE, name, "ns", tuple(taken), TWO) for name, taken in samples.items()]


def run(context: Context) -> None:
    """Time single calls."""
    _python(context)
    _native(context)
    _two_threads(context)
