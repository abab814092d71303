"""What a call of submit costs: with preconditions, postconditions and a parameter, and without any of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Part, Run
from benchmarks.peers import Absent

PLAIN, PORTS, PENDING = "submit", "2 + 2 ports, parameter", "2 + 2 ports, parameter, pending"
ASLEEP = "2 + 2 ports, parameter, threads asleep"
PLAIN_ASLEEP, POOL_ASLEEP = "submit, threads asleep", "ThreadPoolExecutor, threads asleep"
NATIVE, PYTHON = "a native function", "a Python function"
_BATCH = 100  # so few that they are in flight together


def _calls(
    call: Callable[[Any], Any],
    before: Callable[[int], Sequence[Any]],
    after: Callable[..., object],
    batch: int = _BATCH,
    pause: float = 0,
) -> Run:
    """So many calls, of which only the calls are timed: not what is made before a batch, nor the waiting after it."""

    def run(times: int) -> int:
        spent = 0
        for first in range(0, times, batch):
            arguments = before(min(batch, times - first))
            if pause:
                time.sleep(pause)
            begin = time.perf_counter_ns()
            returned = [call(argument) for argument in arguments]
            spent += time.perf_counter_ns() - begin
            after(arguments, returned)
        return spent

    return run


def _events(times: int) -> list[tuple[ost.UserEvent, ost.UserEvent]]:
    return [(ost.UserEvent(), ost.UserEvent()) for _ in range(times)]


def _happened(times: int) -> list[tuple[ost.UserEvent, ost.UserEvent]]:
    pairs = _events(times)
    _trigger(pairs)
    return pairs


def _trigger(pairs: Sequence[tuple[ost.UserEvent, ost.UserEvent]]) -> None:
    for pair in pairs:
        for event in pair:
            event.trigger()


def _wait(_: object, runs: Sequence[Any]) -> None:
    for run in runs:
        run.result()


def _wait_pending(pairs: Sequence[tuple[ost.UserEvent, ost.UserEvent]], runs: Sequence[ost.Run]) -> None:
    _trigger(pairs)
    _wait(None, runs)


def _empty(x: float = 0.0) -> None:
    pass


def _graph(context: Context, function: str, preconditions: bool, postconditions: bool, param: bool) -> ost.Graph:
    """Two ops, one after the other, each with conditions of its own."""
    graph = ost.Graph(infer=False)
    task, access = (ost.native(context.kernels.empty, (float,)), None) if function == NATIVE else (_empty, (None,))
    value = graph.param("x") if param else 1.0
    before = [[graph.precondition(name)] if preconditions else [] for name in "ab"]
    first = graph.task(task, value, after=before[0], access=access)
    second = graph.task(task, value, after=[first, *before[1]], access=access)
    if postconditions:
        graph.postcondition("c", first)
        graph.postcondition("d", second)
    return graph


def _ours(context: Context, stack: ExitStack, function: str, runs: str) -> list[Part]:
    """Submit with nothing, with each of the three, and with all."""

    def program(preconditions: bool = False, postconditions: bool = False, param: bool = False) -> ost.Program:
        graph = _graph(context, function, preconditions, postconditions, param)
        return stack.enter_context(graph.compile(context.machine, runs=runs, lanes=1))

    plain, given, told = program(), program(param=True), program(postconditions=True)
    waiting, every = program(preconditions=True), program(True, True, True)

    def after(pair: tuple[ost.UserEvent, ost.UserEvent]) -> dict[str | None, ost.Event | ost.Run]:
        return {"a": pair[0], "b": pair[1]}

    def everything(pair: tuple[ost.UserEvent, ost.UserEvent]) -> ost.Run:
        return every.submit(after=after(pair), x=2.0)

    return [
        Part(PLAIN, _calls(lambda _: plain.submit(), range, _wait)),
        Part(PLAIN_ASLEEP, _calls(lambda _: plain.submit(), range, _wait, batch=1, pause=0.001), steps=50),
        Part("parameter", _calls(lambda _: given.submit(x=2.0), range, _wait)),
        Part("2 preconditions", _calls(lambda pair: waiting.submit(after=after(pair)), _happened, _wait)),
        Part("2 postconditions", _calls(lambda _: told.submit(), range, _wait)),
        Part(PORTS, _calls(everything, _happened, _wait)),
        Part(PENDING, _calls(everything, _events, _wait_pending)),
        Part(ASLEEP, _calls(everything, _happened, _wait, batch=1, pause=0.001), steps=50),
        Part(".posts of both", _calls(lambda run: run.posts, lambda n: [told.submit() for _ in range(n)], _posts_read)),
    ]


def _posts_read(runs: Sequence[ost.Run], _: object) -> None:
    _wait(None, runs)


def _tasks(times: int) -> int:
    """So many tasks made in a loop of asyncio; the nanoseconds that making them took."""

    async def nothing() -> None:
        pass

    async def make() -> int:
        spent = 0
        for first in range(0, times, _BATCH):
            begin = time.perf_counter_ns()
            made = [asyncio.create_task(nothing()) for _ in range(min(_BATCH, times - first))]
            spent += time.perf_counter_ns() - begin
            await asyncio.gather(*made)
        return spent

    return asyncio.run(make())


def _peers(stack: ExitStack) -> list[Part]:
    pool = stack.enter_context(ThreadPoolExecutor(2))
    return [
        Part("ThreadPoolExecutor", _calls(lambda _: pool.submit(_empty), range, _wait)),
        Part(
            POOL_ASLEEP,
            _calls(lambda _: pool.submit(_empty), range, _wait, 1, 0.001),
            steps=50,
        ),
        Part("asyncio task", _tasks),
    ]


def _compare_with_dask(context: Context) -> None:
    """Dask by itself, last: its threads would disturb the others."""
    if not find_spec("distributed"):
        context.absent.append(Absent("Dask's submit", "needs distributed, which is not installed"))
        return
    from distributed import Client

    graph = _graph(context, PYTHON, preconditions=False, postconditions=False, param=False)
    with (
        graph.compile(context.machine, lanes=1) as program,
        Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client,
    ):
        contestants: list[Contestant] = [
            Part(PLAIN, _calls(lambda _: program.submit(), range, _wait)),
            Part("Dask", _calls(lambda _: client.submit(_empty, pure=False), range, _wait)),
        ]
        context.compare("submit", f"{PYTHON}, beside Dask", contestants, PLAIN, "ns")


def run(context: Context) -> None:
    """Time the calls alone: of programs whose runs follow each other, of programs whose runs do not, and of peers."""
    for case, function, runs in (
        (NATIVE, NATIVE, "pipelined"),
        (f'{NATIVE}, runs="concurrent"', NATIVE, "concurrent"),
        (f'{NATIVE}, runs="serial"', NATIVE, "serial"),
        (PYTHON, PYTHON, "pipelined"),
    ):
        with ExitStack() as stack:
            contestants = _ours(context, stack, function, runs)
            if case == PYTHON:
                contestants += _peers(stack)
            context.compare("submit", case, list(contestants), PLAIN, "ns")
    if not context.quick:
        _compare_with_dask(context)
