"""The demo's kernels are tuned, and what came of that is shown."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

import ostinato as ost
from ostinato.demo.diffusion import NATIVE, Diffusion, Method, Scene, method_of
from ostinato.demo.kernels import diffuse
from ostinato.demo.words import duration
from ostinato.tune.graphs.tune_graph import Reports

__all__ = ["chosen", "costs_as_written", "tune"]


def tune(console: Console, scenes: Sequence[Scene], machine: ost.Machine) -> Reports:
    """Measure the variants of the kernels, unless the store knows them, and say which."""
    with ost.capture() as graph:
        for scene in scenes:
            scene.step()
    begin = time.perf_counter()
    reports = graph.tune(machine, progress=True)
    seconds = time.perf_counter() - begin
    for label, report in reports.items():
        if len(report.results) > 1:
            _print(console, label, report)
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


def _print(console: Console, label: str, report: ost.Report) -> None:
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
