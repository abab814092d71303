"""Figures for the documentation: ``python benchmarks/report.py benchmarks/results/*.json > docs/figures.md``."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TITLES = {
    "native": "Empty native tasks, ns a task",
    "metg": "Smallest effective grain, ns",
    "fixed": "Fixed costs, ns",
    "first": "The first compile of a process, ms",
    "irregular": "Irregular durations, efficiency of two threads",
    "placement": "Placement by costs, us a step",
    "simulation": "Predicted and measured",
    "retune": "Retuning",
    "adapt": "Adapting, us a step",
    "cores": "Cores that others use, us a step",
    "pays": "When it pays, ns a task",
    "graphtune": "Tuning a graph",
    "tuning": "The tuner",
    "devices": "One core and two on examples/tune_matmul, candidates a second",
    "applications": "Applications",
    "python": "Empty Python tasks, ns a task",
    "eager": "Calls outside captures, ns a call",
    "function": "From a function to a program, us an operation",
    "pure": "Python tasks without a lock, ns a task",
    "top": "What `ostinato top` costs, ns a step",
    "ranks": "Python tasks on ranks, us a step",
    "fleet": "A fleet of eight simulated hosts of eight devices, candidates of 50 ms",
    "messages": "Messages between two ranks of one host, ns",
    "scaling": "Steps on ranks, predicted by LogGP",
    "compile_ranks": "Capture and compile on one of many ranks, ms",
    "compile": "Capture and compile",
    "submit": "Calls of submit alone, ns",
    "ports": "A chain of 64 native tasks with ports and parameters, ns a task",
    "profile": "Profiles, ns an op",
    "events": "Spawned tasks and events, ns",
    "before": "Beside the version before",
    "memory": "Memory, KiB more than after 1000",
    "chains": "Tiny kernels on a device, ns a kernel",
    "runahead": "Run-ahead of a device, ms",
    "pipeline": "Photographs through a device, ms",
    "cuda": "Beside CUDA's graphs",
    "unchained": "Memory over unchained runs and spawned tasks, KiB more than after 10 rounds",
}

_BY_UNIT = ("adapt", "applications", "cores", "cuda", "graphtune", "retune", "scaling", "simulation", "tuning")


def report(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians of runs as a page in Markdown, run by run and by date: none is mixed with another."""
    lines = ["# Figures", "", "Medians. Made from the benchmarks' JSON by `benchmarks/report.py`."]
    times: Counter[str] = Counter()
    for run in sorted(runs, key=lambda run: run["date"]):
        machine, kernel = run["machine"], run["machine"]["kernel"].split("-")[0]
        benchmarks = dict.fromkeys(row["benchmark"] for row in run["results"])
        names = ", ".join(f"`{name}`" for name in benchmarks)
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        where = f"{machine['cpu']}, {machine['cores']} cores, Linux {kernel}"
        times.update(list(benchmarks))
        again = max(times[name] for name in benchmarks)
        suffix = f", run {again}" if again > 1 else ""
        load = f"Other processes used {max(run['others_load'].values()):.0%} of the machine, at most."
        lines += ["", f"## {run['date'][:16].replace('T', ' ')} UTC: {names}", "", f"{where}; {versions}. {load}"]
        for benchmark, title in _TITLES.items():
            rows = [row for row in run["results"] if row["benchmark"] == benchmark]
            if benchmark == "metg":
                rows = [row for row in rows if row["case"].startswith("METG")]
            # Rows of several units are tables of their own where the title names no unit.
            units = dict.fromkeys(row["unit"] for row in rows) if benchmark in _BY_UNIT else {None: None}
            for unit in units if rows else ():
                own = [row for row in rows if unit in (None, row["unit"])]
                named = title if unit is None else f"{title}, {unit}"
                lines += ["", f"### {named}{suffix}", "", *_table(own)]
        if run["targets"]:
            title = f"### What was set out to be reached: {', '.join(benchmarks)}{suffix}"
            lines += ["", title, "", "| | measured | wanted |", "|---|---|---|"]
        for target in run["targets"]:
            bound = "at most" if target["at_most"] else "at least"
            missed = "" if target["reached"] else " **missed**"
            lines.append(f"| {target['name']} | {target['measured']:,.4g}{missed} | {bound} {target['wanted']:,g} |")
    return "\n".join(lines) + "\n"


def _table(rows: list[Mapping[str, Any]]) -> list[str]:
    contestants = list(dict.fromkeys(row["contestant"] for row in rows))
    cases = dict.fromkeys(row["case"] for row in rows)
    median = {(row["case"], row["contestant"]): statistics.median(row["samples"]) for row in rows}
    lines = ["| | " + " | ".join(contestants) + " |", "|---" * (len(contestants) + 1) + "|"]
    for case in cases:
        cells = (f"{median[case, who]:,.3g}" if (case, who) in median else "" for who in contestants)
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.stdout.write(report([json.loads(Path(path).read_text()) for path in sys.argv[1:]]))
