"""The same steps three ways: a plain loop, a thread pool and a replay, timed and compared bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from ostinato.demo import DemoError
from ostinato.demo.diffusion import Diffusion
from ostinato.demo.photograph import Picture
from ostinato.view.progress import progress_bar

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

    timings: tuple[Timing, ...]
    picture: Picture
    preparation: float


def race(
    task: Any, noisy: Picture, across: int, steps: int, machine: ost.Machine, timeline: Path | None = None
) -> Outcome:
    """Run `steps` steps each way, on the thread pool a tenth of them, and check that the results are equal."""
    few = max(steps // 10, 1)
    Diffusion(task, noisy, across).capture()  # compiles the kernel, outside all timings

    plain = Diffusion(task, noisy, across)
    seconds = _timed(plain, _call_one_by_one, range(few), "plain loop")
    after_few = plain.result(few)
    seconds += _timed(plain, _call_one_by_one, range(few, steps), "plain loop")

    pooled = Diffusion(task, noisy, across)
    with ThreadPoolExecutor(len(machine.processors)) as pool:

        def call_on_pool(task: Any, calls: Calls) -> None:
            for future in [pool.submit(task, *arguments) for arguments in calls]:
                future.result()

        pool_seconds = _timed(pooled, call_on_pool, range(few), "thread pool")
    _check("thread pool", pooled.result(few), after_few)

    replayed = Diffusion(task, noisy, across)
    begin = time.perf_counter()
    with replayed.capture().compile(machine) as program:
        preparation = time.perf_counter() - begin
        begin = time.perf_counter()
        program.replay(steps, progress=True)
        replay_seconds = time.perf_counter() - begin
        picture = replayed.result(steps)
        _check("replay", picture, plain.result(steps))
        if timeline:
            program.trace(4).plot(timeline)

    tasks = len(plain.tiles)
    timings = (
        Timing("plain loop", steps, tasks, seconds),
        Timing("thread pool", few, tasks, pool_seconds),
        Timing("replay", steps, tasks, replay_seconds),
    )
    return Outcome(timings, picture, preparation)


def _call_one_by_one(task: Any, calls: Calls) -> None:
    for arguments in calls:
        task(*arguments)


def _timed(diffusion: Diffusion, one_step: Callable[[Any, Calls], None], steps: range, label: str) -> float:
    even, odd = diffusion.fields
    calls = diffusion.calls(even, odd), diffusion.calls(odd, even)
    with progress_bar(len(steps), label) as bar:
        begin = time.perf_counter()
        for step in steps:
            one_step(diffusion.task, calls[step % 2])
            if step % 50 == 0:
                bar.update(step - steps.start)
        return time.perf_counter() - begin


def _check(name: str, result: Picture, expected: Picture) -> None:
    different = np.count_nonzero(result.view(np.uint32) != expected.view(np.uint32))
    if different:
        raise DemoError(f"the {name} differs from the plain loop in {different} of {expected.size} values")
