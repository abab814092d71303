"""Pictures of the results: time per task by pattern, and efficiency by grain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.measure import Row


def _bars(title: str, rows: Sequence[Row], path: Path) -> None:
    cases = list(dict.fromkeys(row.case for row in rows))
    contestants = list(dict.fromkeys(row.contestant for row in rows))
    figure, axes = plt.subplots(figsize=(12, 4.5), layout="constrained")
    width = 0.85 / len(contestants)
    for i, name in enumerate(contestants):
        own = {row.case: row for row in rows if row.contestant == name}
        present = [case for case in cases if case in own]
        heights = np.array([own[case].median for case in present])
        spread = np.abs(np.array([own[case].quartiles for case in present]).T - heights)
        places = [cases.index(case) + (i - (len(contestants) - 1) / 2) * width for case in present]
        axes.bar(places, heights, width, yerr=spread, label=name, error_kw={"linewidth": 0.7})
    axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), cases, rotation=20)
    axes.set_ylabel("ns per task")
    axes.set_title(title)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(fontsize=8, ncols=len(contestants), loc="outside lower center")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _efficiency(rows: Sequence[Row], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name in dict.fromkeys(row.contestant for row in rows):
        own = [row for row in rows if row.contestant == name]
        axes.plot(
            [float(row.case.split()[0]) for row in own], [row.median for row in own], marker="o", ms=3, label=name
        )
    axes.axhline(0.5, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("grain: ns of computation per task")
    axes.set_ylabel("part of the serial rate kept, per thread")
    axes.set_title("stencil of width 8")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw what there are rows for; return the files."""
    mpl.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, title in (("native", "Empty native tasks"), ("python", "Empty Python tasks")):
        own = [row for row in rows if row.benchmark == name]
        if own:
            written.append(directory / f"{name}.png")
            _bars(title, own, written[-1])
    own = [row for row in rows if row.benchmark == "metg" and row.unit == "efficiency"]
    if own:
        written.append(directory / "metg.png")
        _efficiency(own, written[-1])
    return written
