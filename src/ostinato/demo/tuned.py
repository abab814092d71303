"""The demo's kernels are tuned, and what came of that is shown."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

import ostinato as ost
from ostinato.demo.diffusion import NATIVE, Diffusion, Method, method_of
from ostinato.demo.kernels import diffuse
from ostinato.demo.photograph import Picture
from ostinato.demo.words import duration
from ostinato.measured.reports import Reports

__all__ = ["chosen", "tune"]


def tune(console: Console, noisy: Picture, count: int, machine: ost.Machine) -> Reports:
    """Measure the variants of the kernel, unless the store knows them, and say which."""
    graph = Diffusion(noisy, count).capture(NATIVE)
    begin = time.perf_counter()
    reports = graph.tune(machine, progress=True)
    seconds = time.perf_counter() - begin
    for label, report in reports.items():
        _print(console, label, report)
    if all(result.cached for report in reports.values() for result in report.results):
        console.print(f"All of this was in the store, and found in {duration(seconds)}.")
    else:
        console.print(f"Measuring took {duration(seconds)}, and is remembered: the next run finds it in the store.")
    return reports


def chosen(reports: Reports) -> Method:
    """Return the way to take most of the steps: the winner's, which is the kernel as it is unless one is faster."""
    report = next(iter(reports.values()))
    if report.best is None or report.default in report.ties:
        return NATIVE
    config = report.best.candidate.config
    for variant in diffuse.variants:
        if {"variant": variant.name, **variant.config} == config:
            return method_of(variant)
    return NATIVE


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
