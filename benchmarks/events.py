"""How long it takes until somebody knows: spawned tasks, callbacks of events, lanes that wait for an event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, Run

SPAWN, SUBMIT, POOL = "spawn", "submit of a program", "ThreadPoolExecutor"
BACK = "an empty Python task, there and back"
CALLBACK, LANE, THREAD = "event to callback", "event to task of a lane", "threading.Event to thread"
_BENCHMARK = "events"

#: Something that happens when it is called, and tells when somebody knew of it: nanoseconds of perf_counter_ns().
Happen = Callable[[], int]


def _empty() -> None:
    pass


def _one_by_one(start: Callable[[], ost.Run]) -> Run:
    def run(times: int) -> None:
        for _ in range(times):
            start().result()

    return run


def _together(start: Callable[[], ost.Run]) -> Run:
    """So many, of which at most a thousand are in flight."""

    def run(times: int) -> None:
        for first in range(0, times, 1000):
            for started in [start() for _ in range(min(1000, times - first))]:
                started.result()

    return run


def _tasks(context: Context) -> None:
    """Single tasks: one after the other, and many at once."""
    task = ost.task(_empty)
    graph = ost.Graph()
    graph.task(task)
    with ThreadPoolExecutor(2) as pool, graph.compile(context.machine, runs="concurrent") as program:
        starts: dict[str, Callable[[], ost.Run]] = {
            SPAWN: lambda: context.machine.spawn(task),
            SUBMIT: program.submit,
            POOL: lambda: pool.submit(_empty),  # type: ignore[dict-item,return-value] # a future, like a run
        }
        for case, way in ((BACK, _one_by_one), ("1000 at once, a task", _together)):
            contestants = [Contestant(name, way(start)) for name, start in starts.items()]
            context.compare(_BENCHMARK, case, contestants, POOL, "ns")


class _Told:
    """When somebody was told; waiting for it takes no processor and no lock of the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def tell(self, _: object = None) -> None:
        self._at = time.perf_counter_ns()
        self._lock.release()

    def wait(self) -> int:
        self._lock.acquire()
        return self._at


@contextmanager
def _callback(context: Context) -> Iterator[Callable[[], Happen]]:
    told = _Told()

    def prepare() -> Happen:
        event = ost.UserEvent()
        event.add_done_callback(told.tell)

        def happen() -> int:
            event.trigger()
            return told.wait()

        return happen

    yield prepare


@contextmanager
def _lane(context: Context) -> Iterator[Callable[[], Happen]]:
    """A native task that comes after a precondition, and writes down when it ran."""
    stamp = np.zeros(1, np.int64)
    graph = ost.Graph(infer=False)
    graph.task(ost.native(context.kernels.stamp, (), user=stamp.ctypes.data), after=graph.precondition("asked"))
    with graph.compile(context.machine) as program:

        def prepare() -> Happen:
            event = ost.UserEvent()
            run = program.submit(after={"asked": event})

            def happen() -> int:
                event.trigger()
                run.result()
                return int(stamp[0])

            return happen

        yield prepare


@contextmanager
def _thread(context: Context) -> Iterator[Callable[[], Happen]]:
    asked, told, ending = threading.Event(), _Told(), threading.Event()

    def serve() -> None:
        while asked.wait() and not ending.is_set():
            asked.clear()
            told.tell()

    def happen() -> int:
        asked.set()
        return told.wait()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield lambda: happen
    finally:
        ending.set()
        asked.set()
        thread.join()


def _waits(context: Context) -> None:
    """From an event to those who wait for it, which have waited for a moment, or so long that they sleep."""
    waiters = {CALLBACK: _callback, LANE: _lane, THREAD: _thread}
    with ExitStack() as stack:
        prepares = {name: stack.enter_context(waiter(context)) for name, waiter in waiters.items()}
        for pause, case in ((2e-5, "waiting for 20 us"), (5e-3, "waiting for 5 ms")):
            samples: dict[str, list[float]] = {name: [] for name in prepares}
            for _ in range(20 if context.quick else 100):
                for name, prepare in prepares.items():
                    happen = prepare()
                    time.sleep(pause)
                    begin = time.perf_counter_ns()
                    samples[name].append(happen() - begin)
            context.rows += [Row(_BENCHMARK, case, name, "ns", tuple(taken), THREAD) for name, taken in samples.items()]


def run(context: Context) -> None:
    """Time single tasks, and waking those who wait."""
    _tasks(context)
    _waits(context)
