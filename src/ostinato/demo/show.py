"""Runs the demo and shows what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import ostinato as ost
from ostinato.counting import counted
from ostinato.demo import DemoError, photograph
from ostinato.demo.diffusion import BLUR, NATIVE, Method, Scene
from ostinato.demo.photograph import Picture
from ostinato.demo.race import Contestant, by_pool, check, contest, one_by_one, replay
from ostinato.demo.tuned import chosen, costs_as_written, tune
from ostinato.demo.words import duration
from ostinato.tune.graphs.tune_graph import Reports
from ostinato.view.trace import Trace

STRIPS = 128
PREVIEW_STRIPS = 32
SMALLER = 8
"""The preview has every eighth pixel of every eighth row."""


def run(image: Path | None, steps: int, output: Path, *, tuned: bool = True) -> None:
    """Denoise `image` in `steps` steps, print the tables, and write the pictures to `output`."""
    console = Console(markup=False, highlight=False)  # a path may look like markup
    picture = photograph.load(image or photograph.standard())
    noisy = photograph.with_noise(picture)
    begin = time.perf_counter()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with ost.Machine() as machine, ThreadPoolExecutor(len(machine.processors)) as pool:
            console.print(_headline(picture, machine))
            whole = partial(Scene, noisy, STRIPS)
            preview = partial(_preview, np.ascontiguousarray(noisy[:, ::SMALLER, ::SMALLER]))
            reports = None
            if tuned:
                reports = tune(console, [whole([NATIVE]), preview([NATIVE])], machine)
                reports.plot(output / "landscape.png")
            race = partial(_race, console, machine, pool, reports)
            denoised = race("the photograph", whole, steps, output)
            race("a preview, diffused and blurred", preview, 5 * steps, None)
            console.print("\nEvery result equals that of the plain loop, bit for bit.")
        captions = ("photograph with noise", f"after {counted(steps, 'step')} of diffusion")
        photograph.save_before_after(noisy, denoised, captions, output / "demo.png")
    except OSError as error:
        raise DemoError(f"cannot write to {output}: {error}") from error
    console.print(f"{time.perf_counter() - begin:.0f} s in all. The pictures are:")
    for name in ("demo.png", *(["landscape.png"] if tuned else []), "timeline.png", "predicted.png"):
        console.print(f"    {output / name}", soft_wrap=True)


def _preview(small: Picture, methods: Sequence[Method]) -> Scene:
    """Return what shows both filters side by side: tasks that are short, and differ."""
    return Scene(small, PREVIEW_STRIPS, [*methods, BLUR])


def _race(
    console: Console,
    machine: ost.Machine,
    pool: Executor,
    reports: Reports | None,
    title: str,
    make: Callable[[Sequence[Method]], Scene],
    steps: int,
    output: Path | None,
) -> Picture:
    """Race the kernel as it is and, where kernels were tuned, the best one; return the denoised picture."""
    few = max(steps // 10, 1)
    with ExitStack() as programs:

        def replayed(method: Method, kernel: Method, known: str, costs: dict[object, float] | None) -> Contestant:
            scene = make([method])
            program = programs.enter_context(ost.compile(scene.step, machine=machine, costs=costs))
            return replay(scene, steps, program, kernel.name, known, retuned=known == "retuned")

        plain = one_by_one(make([NATIVE]), steps)
        as_written = replayed(NATIVE, NATIVE, "estimated", {})
        everybody = [plain, by_pool(make([NATIVE]), few, pool), as_written]
        if reports is not None:
            best = chosen(reports, plain.scene)
            pairs = [(as_written, replayed(NATIVE, NATIVE, "measured", costs_as_written(reports, plain.scene)))]
            everybody.append(pairs[0][1])
            better = as_written
            if best is not NATIVE:
                better = replayed(best, best, "estimated", {})
                everybody += [one_by_one(make([best]), steps), by_pool(make([best]), few, pool), better]
            pairs += [(better, replayed(NATIVE, best, known, None)) for known in ("measured", "retuned")]
            everybody += [placed for _, placed in pairs[1:]]
        contest(everybody)
        check(everybody, lambda: make([NATIVE]))
        _print(console, title, everybody)
        if reports is not None:
            gains = [f"{before.per_step / after.per_step:.2f}x" for before, after in pairs]
            console.print(
                f"What tuning the kernel gains: {as_written.per_step / better.per_step:.2f}x. What placing by measured "
                f"costs gains: {gains[0]} with the kernel as it is, {gains[1]} with the chosen one, {gains[2]} retuned."
            )
        if output is not None:
            _timelines(console, make([NATIVE]), machine, output)
    return plain.picture


def _timelines(console: Console, scene: Scene, machine: ost.Machine, output: Path) -> None:
    """Draw what the threads did, and beside it what a simulation of the schedule says that they do.

    The simulation knows what tasks take next to each other, from a trace: while tuned, their arrays were in the cache.
    """
    with ost.compile(scene.step, machine=machine) as program:
        program.replay(20)
        costs = program.trace(100)
        graph = program.graph
    with graph.compile(machine, costs=costs) as program:
        trace = _quietest(program.trace(10) for _ in range(10))
        simulation = program.simulate()
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
    return f"Denoising a photograph of {width} x {height} pixels on {counted(len(machine.processors), 'processor')}."


def _print(console: Console, title: str, contestants: Sequence[Contestant]) -> None:
    steps = " or ".join(str(number) for number in dict.fromkeys(contestant.steps for contestant in contestants))
    title = f"{counted(contestants[0].scene.tasks, 'strip')} of {title}, steps: {steps}"
    table = Table(title=title, title_justify="left", title_style="bold")
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
