"""The same steps in a plain loop, on a thread pool and as replays: timed in turns, and compared bit for bit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from ostinato.demo import DemoError
from ostinato.demo.diffusion import Scene
from ostinato.demo.photograph import Picture
from ostinato.runtime.program import Program
from ostinato.view.progress import progress_bar

__all__ = ["Contestant", "by_pool", "check", "contest", "one_by_one", "replay"]

TURNS = 20


@dataclass
class Contestant:
    """Something that takes `steps` steps of a scene of its own: `advance` takes those of a range."""

    name: str
    kernel: str
    costs: str
    scene: Scene
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
        return self.per_step / self.scene.tasks

    @property
    def picture(self) -> Picture:
        """What came of it."""
        return self.scene.result(self.steps)


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


def one_by_one(scene: Scene, steps: int) -> Contestant:
    """Call one function after the other."""
    calls = scene.calls(0), scene.calls(1)

    def advance(numbers: range) -> None:
        for number in numbers:
            for function, arguments in calls[number % 2]:
                function(*arguments)

    _compile(scene)
    return Contestant("plain loop", scene.parts[0][0].name, "", scene, steps, advance)


def by_pool(scene: Scene, steps: int, pool: Executor) -> Contestant:
    """Call the functions on the threads of a pool, and wait for all of a step."""
    calls = scene.calls(0), scene.calls(1)

    def advance(numbers: range) -> None:
        for number in numbers:
            for future in [pool.submit(function, *arguments) for function, arguments in calls[number % 2]]:
                future.result()

    _compile(scene)
    return Contestant("thread pool", scene.parts[0][0].name, "", scene, steps, advance)


def replay(scene: Scene, steps: int, program: Program, kernel: str, costs: str, *, retuned: bool = False) -> Contestant:
    """Replay a program of the scene, which may be retuned in its first turn; `kernel` is what it runs."""

    def advance(numbers: range) -> None:
        if retuned and numbers.start == 0:
            program.retune(len(numbers))
        else:
            program.replay(len(numbers))

    return Contestant("replay", kernel, costs, scene, steps, advance)


def _compile(scene: Scene) -> None:
    """Let Numba compile outside of all timings."""
    for function, arguments in {id(function): (function, arguments) for function, arguments in scene.calls(0)}.values():
        function(*(array.copy() for array in arguments))


def check(contestants: Sequence[Contestant], anew: Callable[[], Scene]) -> None:
    """Compare all pictures with what a plain loop makes of as many steps; the first contestant is one, of `anew()`.

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
            again = one_by_one(anew(), steps)
            again.advance(range(steps))
            expected[steps] = again.picture
        different = np.count_nonzero(contestant.picture.view(np.uint32) != expected[steps].view(np.uint32))
        if different:
            raise DemoError(
                f"the {contestant.name} of {contestant.kernel} differs from the plain loop "
                f"in {different} of {plain.picture.size} values"
            )
