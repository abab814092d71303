"""The same steps three ways: a plain loop, a thread pool and a replay, timed and compared bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from ostinato.demo import DemoError
from ostinato.demo.diffusion import Diffusion, Method
from ostinato.demo.photograph import Picture
from ostinato.view.progress import progress_bar
from ostinato.view.trace import Trace

Function = Callable[..., Any]
Calls = Iterable[tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Timing:
    """How long `steps` steps of `tasks` tasks took."""

    name: str
    steps: int
    tasks: int
    seconds: float

    @property
    def per_step(self) -> float:
        return self.seconds / self.steps

    @property
    def per_task(self) -> float:
        return self.per_step / self.tasks


@dataclass(frozen=True)
class Outcome:
    """What a race found: the timings, the denoised picture, and what it took to capture and compile."""

    method: str
    timings: tuple[Timing, ...]
    picture: Picture
    preparation: float


def race(
    method: Method, noisy: Picture, across: int, steps: int, machine: ost.Machine, timeline: Path | None = None
) -> Outcome:
    """Run `steps` steps each way, on the thread pool a tenth of them, and check that the results are equal."""
    few = max(steps // 10, 1)
    _compile(method, noisy, across)

    plain = Diffusion(noisy, across)
    seconds = _loop(plain, partial(_one_by_one, method.function), range(few), "plain loop")
    after_few = plain.result(few)
    seconds += _loop(plain, partial(_one_by_one, method.function), range(few, steps), "plain loop")
    after_all = plain.result(steps)

    pooled = Diffusion(noisy, across)
    with ThreadPoolExecutor(len(machine.processors)) as pool:
        pool_seconds = _loop(pooled, partial(_on_pool, pool, method.function), range(few), "thread pool")
    _check("thread pool", pooled.result(few), after_few)

    replayed = Diffusion(noisy, across)
    begin = time.perf_counter()
    with replayed.capture(method.task).compile(machine) as program:
        preparation = time.perf_counter() - begin
        begin = time.perf_counter()
        program.replay(steps, progress=True)
        replay_seconds = time.perf_counter() - begin
        _check("replay", replayed.result(steps), after_all)
        if timeline:
            _quietest(program.trace(10) for _ in range(10)).plot(timeline)

    tasks = len(plain.tiles)
    timings = (
        Timing("plain loop", steps, tasks, seconds),
        Timing("thread pool", few, tasks, pool_seconds),
        Timing("replay", steps, tasks, replay_seconds),
    )
    return Outcome(method.name, timings, after_all, preparation)


def _quietest(traces: Iterable[Trace]) -> Trace:
    """The shortest of some traces: the one least disturbed by other processes."""
    return min(traces, key=lambda trace: trace.records["end"].max() - trace.records["start"].min())


def _compile(method: Method, noisy: Picture, across: int) -> None:
    """Let Numba compile outside of all timings."""
    diffusion = Diffusion(noisy, across)
    diffusion.capture(method.task)
    method.function(*diffusion.calls(*diffusion.fields)[0])


def _one_by_one(function: Function, calls: Calls) -> None:
    for arguments in calls:
        function(*arguments)


def _on_pool(pool: ThreadPoolExecutor, function: Function, calls: Calls) -> None:
    for future in [pool.submit(function, *arguments) for arguments in calls]:
        future.result()


def _loop(diffusion: Diffusion, one_step: Callable[[Calls], None], steps: range, label: str) -> float:
    even, odd = diffusion.fields
    calls = diffusion.calls(even, odd), diffusion.calls(odd, even)
    with progress_bar(len(steps), label) as bar:
        begin = time.perf_counter()
        for step in steps:
            one_step(calls[step % 2])
            if step % 50 == 0:
                bar.update(step - steps.start)
        return time.perf_counter() - begin


def _check(name: str, result: Picture, expected: Picture) -> None:
    different = np.count_nonzero(result.view(np.uint32) != expected.view(np.uint32))
    if different:
        raise DemoError(f"the {name} differs from the plain loop in {different} of {expected.size} values")
