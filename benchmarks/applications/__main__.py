"""The table of the README: ``python -m benchmarks.applications RESULTS.json ...``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.applications import BENCHMARK, beside_best
from benchmarks.applications.application import PLAIN
from benchmarks.measure import Row


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return what each application takes, and where it was measured, in Markdown.

    Each application may have a run of its own, but all of one revision on one machine: rows are read side by side.
    """
    for what in ("revision", "cpu"):
        found = sorted({str((run["versions"] | run["machine"])[what]) for run in runs})
        if len(found) > 1:
            raise ValueError(f"runs in one table must have the same {what}, got {', '.join(found)}")
    lines = ["| application | Ostinato | fastest of the others | ratio | NumPy |", "|---|---|---|---|---|"]
    for run in runs:
        rows = [
            Row(*(r[key] for key in ("benchmark", "case", "contestant", "unit")), tuple(r["samples"]), r["reference"])
            for r in run["results"]
            if r["benchmark"] == BENCHMARK
        ]
        for ours, best in beside_best(rows):
            plain = "".join(_time(row) for row in rows if row.case == ours.case and row.contestant == PLAIN)
            ratio = f"{ours.median / best.median:.2f}"
            lines.append(f"| {ours.case} | {_time(ours)} | {best.contestant} {_time(best)} | {ratio} | {plain} |")
    machine, dates = runs[-1]["machine"], sorted({run["date"][:10] for run in runs})
    where = f"{machine['cores']} cores of {machine['cpu']}"
    return "\n".join([*lines, "", f"Measured on {where}, {', '.join(dates)}."]) + "\n"


def _time(row: Row) -> str:
    value, unit = (row.median, "us") if row.median < 1000 else (row.median / 1e3, "ms")
    return f"{value:#.3g} {unit}".replace(". ", " ")


if __name__ == "__main__":
    sys.stdout.write(table([json.loads(Path(path).read_text()) for path in sys.argv[1:]]))
