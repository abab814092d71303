"""Figures for the documentation: ``python benchmarks/report.py RESULTS.json ... > docs/figures.md``."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TITLES = {
    "native": "Empty native tasks, ns a task",
    "metg": "Smallest effective grain, ns",
    "fixed": "Fixed costs, ns",
    "irregular": "Irregular durations, efficiency of two threads",
    "python": "Empty Python tasks, ns a task",
    "compile": "Capture and compile",
    "submit": "Calls of submit alone, ns",
    "ports": "A chain of 64 native tasks with ports and parameters, ns a task",
    "profile": "Profiles, ns an op",
    "events": "Spawned tasks and events, ns",
    "before": "Beside the version before",
    "memory": "Memory, KiB more than after 1000",
    "unchained": "Memory over unchained runs and spawned tasks, KiB more than after 10 rounds",
}


def report(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians of runs as a page in Markdown; each benchmark is of one run."""
    lines = ["# Figures", "", "Medians. Made from the benchmarks' JSON by `benchmarks/report.py`."]
    for run in runs:
        machine, kernel = run["machine"], run["machine"]["kernel"].split("-")[0]
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(row["benchmark"] for row in run["results"]))
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        where = f"{machine['cpu']}, {machine['cores']} cores, Linux {kernel}"
        lines += ["", f"{names}: {run['date'][:10]}; {where}; {versions}."]
    results = [row for run in runs for row in run["results"]]
    for benchmark, title in _TITLES.items():
        rows = [row for row in results if row["benchmark"] == benchmark]
        if benchmark == "metg":
            rows = [row for row in rows if row["case"].startswith("METG")]
        if rows:
            lines += ["", f"## {title}", "", *_table(rows)]
    lines += ["", "## What was set out to be reached", "", "| | measured | wanted |", "|---|---|---|"]
    for target in (target for run in runs for target in run["targets"]):
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
