"""Runs the demo and shows what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ostinato as ost
from ostinato.demo import DemoError, photograph
from ostinato.demo.diffusion import NATIVE, NUMPY, Diffusion, Method
from ostinato.demo.photograph import Picture
from ostinato.demo.race import Contestant, Replays, by_pool, check, contest, one_by_one
from ostinato.demo.tuned import chosen, tune
from ostinato.demo.words import duration
from ostinato.runtime.program import Program
from ostinato.view.trace import Trace

STRIPS = 128
COARSE = 64


def run(image: Path | None, steps: int, output: Path, *, tuned: bool = True) -> None:
    """Denoise `image` in `steps` steps, print the tables, and write the pictures to `output`."""
    console = Console(markup=False, highlight=False)  # a path may look like markup
    picture = photograph.load(image or photograph.standard())
    noisy = photograph.with_noise(picture)
    begin = time.perf_counter()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with ost.Machine() as machine:
            console.print(_headline(picture, machine))
            better = None
            if tuned:
                reports = tune(console, noisy, STRIPS, machine)
                reports.plot(output / "landscape.png")
                better = chosen(reports)
            denoised = _native(console, noisy, steps, machine, better, output)
            _numpy(console, noisy, max(steps // 20, 1), machine)
            console.print("\nEvery result equals that of the plain loop, bit for bit.")
        captions = ("photograph with noise", f"after {steps} steps of diffusion")
        photograph.save_before_after(noisy, denoised, captions, output / "demo.png")
    except OSError as error:
        raise DemoError(f"cannot write to {output}: {error}") from error
    console.print(f"{time.perf_counter() - begin:.0f} s in all. The pictures are:")
    for name in ("demo.png", *(["landscape.png"] if tuned else []), "timeline.png", "predicted.png"):
        console.print(f"    {output / name}", soft_wrap=True)


def _native(
    console: Console, noisy: Picture, steps: int, machine: ost.Machine, tuned: Method | None, output: Path
) -> Picture:
    """Race the kernel as it is and, where kernels were tuned, the best one; return the denoised picture."""
    few = max(steps // 10, 1)
    with ThreadPoolExecutor(len(machine.processors)) as pool, Replays(machine, noisy, STRIPS, steps) as replays:
        plain = one_by_one(NATIVE, noisy, STRIPS, steps)
        untuned = better = replays.add(NATIVE, NATIVE.name, "estimated", {})
        everybody = [plain, by_pool(NATIVE, noisy, STRIPS, few, pool), untuned]
        if tuned is not None and tuned is not NATIVE:
            better = replays.add(tuned, tuned.name, "estimated", {})
            everybody += [one_by_one(tuned, noisy, STRIPS, steps), by_pool(tuned, noisy, STRIPS, few, pool), better]
        placed = []
        if tuned is not None:
            placed = [replays.add(NATIVE, tuned.name, "measured", None), replays.add_retuned(NATIVE, tuned.name)]
            everybody += placed
        contest(everybody)
        check(everybody, NATIVE, noisy)
        _print(console, f"{len(plain.diffusion.strips)} strips as native kernels", everybody)
        if placed:
            gains = " and ".join(f"{better.per_step / each.per_step:.2f}x ({each.costs})" for each in placed)
            console.print(
                f"Tuning the kernel makes the replay {untuned.per_step / better.per_step:.2f} times as fast. "
                f"Placement by costs that are not estimated changes that by {gains}."
            )
        _timelines(console, replays.programs[-1], Diffusion(noisy, STRIPS).capture(NATIVE), machine, output)
    return plain.picture


def _numpy(console: Console, noisy: Picture, steps: int, machine: ost.Machine) -> None:
    few = max(steps // 10, 1)
    with ThreadPoolExecutor(len(machine.processors)) as pool, Replays(machine, noisy, COARSE, steps) as replays:
        everybody = [
            one_by_one(NUMPY, noisy, COARSE, steps),
            by_pool(NUMPY, noisy, COARSE, few, pool),
            replays.add(NUMPY, NUMPY.name, "estimated", {}),
        ]
        contest(everybody)
        check(everybody, NUMPY, noisy)
        _print(console, f"{len(everybody[0].diffusion.strips)} strips as NumPy tasks", everybody)


def _timelines(console: Console, program: Program, again: ost.Graph, machine: ost.Machine, output: Path) -> None:
    """Draw what the threads did, and beside it what a simulation of the schedule says that they do.

    The simulation knows what tasks take next to each other, from a trace: while tuned, their arrays were in the cache.
    """
    with again.compile(machine, costs=program.trace(100)) as traced:
        trace = _quietest(traced.trace(10) for _ in range(10))
        simulation = traced.simulate()
    trace.plot(output / "timeline.png")
    simulation.plot(output / "predicted.png", trace)
    span = float(trace.records["end"].max() - trace.records["start"].min()) * 1e-9 / 10
    console.print(
        f"By simulation of the schedule a step takes {duration(simulation.step_seconds)}; "
        f"in the quietest of ten traces it took {duration(span)}."
    )


def _quietest(traces: Iterable[Trace]) -> Trace:
    """The shortest of some traces: the one least disturbed by other processes."""
    return min(traces, key=lambda trace: trace.records["end"].max() - trace.records["start"].min())


def _headline(picture: Picture, machine: ost.Machine) -> str:
    _, height, width = picture.shape
    return f"Denoising a photograph of {width} x {height} pixels on {len(machine.processors)} processors."


def _print(console: Console, title: str, contestants: Sequence[Contestant]) -> None:
    steps = " or ".join(str(number) for number in dict.fromkeys(contestant.steps for contestant in contestants))
    table = Table(title=f"{title}, {steps} steps", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("kernel")
    table.add_column("costs")
    for heading in ("per step", "per task", "speed"):
        table.add_column(heading, justify="right")
    for contestant in contestants:
        table.add_row(
            contestant.name,
            contestant.kernel,
            contestant.costs,
            duration(contestant.per_step),
            duration(contestant.per_task),
            f"{contestants[0].per_step / contestant.per_step:.2f}x",
        )
    console.print()
    console.print(table)
