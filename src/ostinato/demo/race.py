"""The same steps in a plain loop, on a thread pool and as replays: timed in turns, and compared bit for bit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import ostinato as ost
from ostinato.demo import DemoError
from ostinato.demo.diffusion import Diffusion, Method
from ostinato.demo.photograph import Picture
from ostinato.runtime.program import Program
from ostinato.view.progress import progress_bar

__all__ = ["Contestant", "Replays", "by_pool", "check", "contest", "one_by_one"]

TURNS = 20


@dataclass
class Contestant:
    """Something that takes `steps` steps of its own diffusion: `advance` takes those of a range."""

    name: str
    kernel: str
    costs: str
    diffusion: Diffusion
    steps: int
    advance: Callable[[range], None]
    turns: list[float] = field(default_factory=list, init=False)

    @property
    def per_step(self) -> float:
        """Seconds: the median of the turns."""
        return statistics.median(self.turns)

    @property
    def per_task(self) -> float:
        """Seconds."""
        return self.per_step / len(self.diffusion.strips)

    @property
    def picture(self) -> Picture:
        """What came of it."""
        return self.diffusion.result(self.steps)


def contest(contestants: Sequence[Contestant]) -> None:
    """Let everybody take their steps in turns, a part each, so that what disturbs the machine disturbs them all."""
    with progress_bar(sum(contestant.steps for contestant in contestants), "steps") as bar:
        done = 0
        for turn in range(TURNS):
            for contestant in contestants:
                first, last = (contestant.steps * part // TURNS for part in (turn, turn + 1))
                if first < last:
                    begin = time.perf_counter()
                    contestant.advance(range(first, last))
                    contestant.turns.append((time.perf_counter() - begin) / (last - first))
                    done += last - first
                    bar.update(done)


def one_by_one(method: Method, noisy: Picture, count: int, steps: int) -> Contestant:
    """Call the function strip by strip."""

    def step(calls: Iterable[tuple[Any, ...]]) -> None:
        for arguments in calls:
            function(*arguments)

    function = partial(method.function, **method.passed) if method.passed else method.function
    return _loop("plain loop", method, Diffusion(noisy, count), steps, step)


def by_pool(method: Method, noisy: Picture, count: int, steps: int, pool: Executor) -> Contestant:
    """Call it on the threads of a pool, and wait for all strips of a step."""

    def step(calls: Iterable[tuple[Any, ...]]) -> None:
        for future in [pool.submit(function, *arguments) for arguments in calls]:
            future.result()

    function = partial(method.function, **method.passed) if method.passed else method.function
    return _loop("thread pool", method, Diffusion(noisy, count), steps, step)


def _loop(
    name: str, method: Method, diffusion: Diffusion, steps: int, step: Callable[[Iterable[tuple[Any, ...]]], None]
) -> Contestant:
    even, odd = diffusion.fields
    calls = diffusion.calls(even, odd), diffusion.calls(odd, even)

    def advance(numbers: range) -> None:
        for number in numbers:
            step(calls[number % 2])

    method.function(*(array.copy() for array in calls[0][0]), **method.passed)  # compiles it
    return Contestant(name, method.name, "", diffusion, steps, advance)


class Replays:
    """Contestants that replay programs; a context manager, which closes these."""

    def __init__(self, machine: ost.Machine, noisy: Picture, count: int, steps: int) -> None:
        self._machine = machine
        self._noisy = noisy
        self._count = count
        self._steps = steps
        self._open = ExitStack()
        self.programs: list[Program] = []

    def __enter__(self) -> Replays:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def add(self, method: Method, kernel: str, known: str, costs: Mapping[object, float] | None) -> Contestant:
        """Compile a program with these costs, or those that the store knows; `kernel` is what it will run."""
        diffusion, program = self._program(method, costs)

        def advance(numbers: range) -> None:
            program.replay(len(numbers))

        return Contestant("replay", kernel, known, diffusion, self._steps, advance)

    def add_retuned(self, method: Method, kernel: str) -> Contestant:
        """Compile a program with costs that the store knows, which is retuned in its first turn."""
        diffusion, program = self._program(method, None)

        def advance(numbers: range) -> None:
            if numbers.start == 0:
                program.retune(len(numbers))
            else:
                program.replay(len(numbers))

        return Contestant("replay", kernel, "retuned", diffusion, self._steps, advance)

    def _program(self, method: Method, costs: Mapping[object, float] | None) -> tuple[Diffusion, Program]:
        diffusion = Diffusion(self._noisy, self._count)
        self.programs.append(self._open.enter_context(diffusion.capture(method).compile(self._machine, costs=costs)))
        return diffusion, self.programs[-1]


def check(contestants: Sequence[Contestant], method: Method, noisy: Picture) -> None:
    """Compare all pictures with what a plain loop over `method` makes of as many steps; the first one is such a loop.

    Raises
    ------
    DemoError
        A bit differs.
    """
    plain = contestants[0]
    expected = {plain.steps: plain.picture}
    for contestant in contestants[1:]:
        steps = contestant.steps
        if steps not in expected:
            again = one_by_one(method, noisy, len(plain.diffusion.strips), steps)
            again.advance(range(steps))
            expected[steps] = again.picture
        different = np.count_nonzero(contestant.picture.view(np.uint32) != expected[steps].view(np.uint32))
        if different:
            raise DemoError(
                f"the {contestant.name} of {contestant.kernel} differs from the plain loop "
                f"in {different} of {noisy.size} values"
            )
