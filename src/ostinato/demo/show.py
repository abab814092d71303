"""Runs the demo and shows what came of it."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ostinato as ost
from ostinato.demo import DemoError, photograph
from ostinato.demo.diffusion import NATIVE, NUMPY
from ostinato.demo.race import Outcome, race


def run(image: Path | None, steps: int, output: Path) -> None:
    """Denoise `image` in `steps` steps, print the table, and write ``demo.png`` and ``timeline.png`` to `output`."""
    console = Console(markup=False, highlight=False)  # a path may look like markup
    picture = photograph.load(image or photograph.standard())
    noisy = photograph.with_noise(picture)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with ost.Machine() as machine:
            console.print(_headline(picture, machine))
            begin = time.perf_counter()
            native = race(NATIVE, noisy, 16, steps, machine, output / "timeline.png")
            _print(console, native)
            _print(console, race(NUMPY, noisy, 8, max(steps // 20, 1), machine))
            console.print("Every result equals that of the plain loop, bit for bit.")
        captions = ("photograph with noise", f"after {steps} steps of diffusion")
        photograph.save_before_after(noisy, native.picture, captions, output / "demo.png")
    except OSError as error:
        raise DemoError(f"cannot write to {output}: {error}") from error
    console.print(f"{time.perf_counter() - begin:.0f} s in all. The pictures are:")
    for name in ("demo.png", "timeline.png"):
        console.print(f"    {output / name}", soft_wrap=True)


def _headline(picture: photograph.Picture, machine: ost.Machine) -> str:
    _, height, width = picture.shape
    return f"Denoising a photograph of {width} x {height} pixels on {len(machine.processors)} processors."


def _print(console: Console, outcome: Outcome) -> None:
    plain = outcome.timings[0]
    table = Table(title=f"{plain.tasks} tiles as {outcome.method}", title_justify="left", title_style="bold")
    table.add_column("")
    for heading in ("steps", "per step", "per task", "speed"):
        table.add_column(heading, justify="right")
    for timing in outcome.timings:
        table.add_row(
            timing.name,
            str(timing.steps),
            _duration(timing.per_step),
            _duration(timing.per_task),
            f"{plain.per_step / timing.per_step:.2f}x",
        )
    console.print()
    console.print(table)
    console.print(f"Capturing and compiling the step took {_duration(outcome.preparation)}, once.")


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.2f} µs"
