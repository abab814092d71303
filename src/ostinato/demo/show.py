"""Runs the demo and shows what came of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import ostinato as ost
from ostinato.demo import DemoError, photograph
from ostinato.demo.diffusion import BLUR, NATIVE, Diffusion, Method, Scene, diffuse, method_of
from ostinato.demo.photograph import Picture
from ostinato.runtime.program import Program
from ostinato.text import counted
from ostinato.tune.graphs.tune_graph import Reports
from ostinato.view.progress import progress_bar


def duration(seconds: float) -> str:
    """Return a time with its unit.

    >>> duration(0.0123), duration(4.2e-6)
    ('12.30 ms', '4.20 µs')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.2f} µs"


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
    with progress_bar(sum(contestant.steps for contestant in contestants), "steps") as show:
        done = 0
        for turn in range(TURNS):
            for contestant in contestants:
                first, last = (contestant.steps * part // TURNS for part in (turn, turn + 1))
                if first < last:
                    begin = time.perf_counter()
                    contestant.advance(range(first, last))
                    contestant.turns.append((time.perf_counter() - begin) / (last - first))
                    done += last - first
                    show(done)


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

    Raises `DemoError` if a bit differs.
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


def tune(console: Console, scenes: Sequence[Scene], machine: ost.Machine) -> Reports:
    """Measure the variants of the kernels, unless the store knows them, and say which."""
    with ost.capture() as graph:
        for scene in scenes:
            scene.step()
    begin = time.perf_counter()
    reports: Reports = graph.tune(machine, progress=True)
    seconds = time.perf_counter() - begin
    for label, report in reports.items():
        if len(report.results) > 1:
            _print_report(console, label, report)
    if all(result.cached for report in reports.values() for result in report.results):
        console.print(f"All of this was in the store, and found in {duration(seconds)}.")
    else:
        console.print(f"Measuring took {duration(seconds)}, and is remembered: the next run finds it in the store.")
    return reports


def chosen(reports: Reports, scene: Scene) -> Method:
    """Return the best way to diffuse the first strip of a scene: the kernel as it is unless a variant is faster."""
    report = _report(reports, *scene.parts[0])
    if report is None or report.best is None or report.default in report.ties:
        return NATIVE
    for variant in diffuse.variants:
        if {"variant": variant.name, **variant.config} == report.best.candidate.config:
            return method_of(variant)
    return NATIVE


def costs_as_written(reports: Reports, scene: Scene) -> dict[object, float]:
    """Return the seconds that the kernels of a scene take as they are, by their names."""
    costs: dict[object, float] = {}
    for method, diffusion in scene.parts:
        report = _report(reports, method, diffusion)
        if report is not None and report.default is not None and report.default.time_ns:
            costs[method.name] = report.default.time_ns * 1e-9
    return costs


def _report(reports: Reports, method: Method, diffusion: Diffusion) -> ost.Report | None:
    """Return what was found of the first strip."""
    shape = list(diffusion.noisy[diffusion.strips[0].inner].shape)
    for report in reports.values():
        if report.key["task"].endswith(f":{method.name}") and report.key["arrays"][-1][1] == shape:
            return report
    return None


def _print_report(console: Console, label: str, report: ost.Report) -> None:
    table = Table(title=f"Variants of {label}", title_justify="left", title_style="bold")
    table.add_column("")
    for heading in ("per task", "speed"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for result in sorted(report.results, key=lambda result: result.time_ns or float("inf")):
        config = dict(result.candidate.config)
        name = config.pop("variant", result.op)
        rest = ", ".join(f"{key}={value}" for key, value in config.items())
        speed = time = ""
        if result.time_ns:
            time = duration(result.time_ns * 1e-9)
            if report.default is not None and report.default.time_ns:
                speed = f"{report.default.time_ns / result.time_ns:.2f}x"
        table.add_row(f"{name}({rest})" if rest else name, time, speed, _verdict(report, result))
    console.print()
    console.print(table)


def _verdict(report: ost.Report, result: ost.Result) -> str:
    if result is (report.default if report.default in report.ties else report.best):
        return "chosen"
    if result.status == "ok":
        return "as it is" if result is report.default else ""
    if result.status == "raced":
        return "given up early"
    return f"{str(result.status).replace('_', ' ')}: never chosen"


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
            _, height, width = picture.shape
            processors = counted(len(machine.processors), "processor")
            console.print(f"Denoising a photograph of {width} x {height} pixels on {processors}.")
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
        traces = [program.trace(10) for _ in range(10)]  # the shortest is the one least disturbed by other processes
        trace = min(traces, key=lambda trace: trace.records["end"].max() - trace.records["start"].min())
        simulation = program.simulate()
    trace.plot(output / "timeline.png")
    simulation.plot(output / "predicted.png", trace)
    span = float(trace.records["end"].max() - trace.records["start"].min()) * 1e-9 / 10
    console.print(
        f"By simulation of the schedule a step takes {duration(simulation.step_seconds)}; "
        f"in the quietest of ten traces it took {duration(span)}."
    )


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
