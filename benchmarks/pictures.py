"""Pictures of the results: time per task by pattern, efficiency by grain, and how far predictions are off.

``python -m benchmarks.pictures RESULTS.json DIRECTORY`` draws those of a run that was written to a file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter

from benchmarks import scaling, simulation
from benchmarks.measure import Row
from benchmarks.native import ADAPTED, HAND, LOOP, ONE, TITLES, TWO

INK = "#2b2d33"
OURS = "#bc4b51"
FURTHER = "#b9bfc8"
OF_CONTESTANT = {
    LOOP: "#8a8f99",
    HAND: "#e0a21c",
    TITLES["flags"]: "#d98cb3",
    TITLES["queue"]: "#5b8e7d",
    TITLES["tbb"]: "#2a6f97",
    TITLES["taskflow"]: "#8d6a9f",
    TITLES["openmp"]: "#b07d62",
    ONE: INK,
    TWO: OURS,
    ADAPTED: "#e58a8c",
}


def _bars(title: str, rows: Sequence[Row], path: Path) -> None:
    cases = list(dict.fromkeys(row.case for row in rows))
    contestants = list(dict.fromkeys(row.contestant for row in rows))
    figure, axes = plt.subplots(figsize=(12, 4.5), layout="constrained")
    width = 0.85 / len(contestants)
    colours = _colours(contestants)
    for i, name in enumerate(contestants):
        own = {row.case: row for row in rows if row.contestant == name}
        present = [case for case in cases if case in own]
        heights = np.array([own[case].median for case in present])
        spread = np.abs(np.array([own[case].quartiles for case in present]).T - heights)
        places = [cases.index(case) + (i - (len(contestants) - 1) / 2) * width for case in present]
        axes.bar(places, heights, width, yerr=spread, label=name, color=colours[name], error_kw={"linewidth": 0.7})
    axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), cases, rotation=20)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: _grain(time)))
    axes.set_ylabel("time per task", color=INK)
    axes.set_title(title, loc="left", color=INK)
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dfe2e7", linewidth=0.7)
    axes.set_axisbelow(True)
    figure.legend(fontsize=9, ncols=(len(contestants) + 1) // 2, loc="outside lower center", frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _colours(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of each contestant: the same in all pictures, also in those that leave some out."""
    return {name: OF_CONTESTANT.get(name, FURTHER) for name in names}


def _efficiency(rows: Sequence[Row], metg: dict[str, float], path: Path) -> None:
    """Draw everybody's efficiency against the grain: a line through the medians, a band between the quartiles.

    The legend has the smallest effective grain of each, the smallest first; a dot marks it where it is.
    """
    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    names = list(dict.fromkeys(row.contestant for row in rows))
    colours = _colours(names)
    widths = {ONE: 2.2, TWO: 2.6}
    axes.axhline(0.5, color="#8a8f99", linewidth=0.9)
    for name in sorted(names, key=lambda name: metg.get(name, np.inf)):
        own = [row for row in rows if row.contestant == name]
        grains = [float(row.case.split()[0]) for row in own]
        colour, width = colours[name], widths.get(name, 1.3)
        label = f"{name}: {_grain(metg[name], grains[0])}" if name in metg else name
        dashed = "--" if name in (LOOP, HAND) else "-"
        axes.plot(grains, [row.median for row in own], dashed, color=colour, linewidth=width, label=label)
        low, high = zip(*(row.quartiles for row in own), strict=True)
        axes.fill_between(grains, low, high, color=colour, alpha=0.15, linewidth=0)
        if grains[0] < metg.get(name, 0) <= grains[-1]:
            axes.plot(metg[name], 0.5, "o", color=colour, ms=6, mec="white", zorder=5)
    axes.set_xscale("log")
    axes.set_xlim(min(grains), max(grains))
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda grain, _: _grain(grain)))
    axes.set_xlabel("grain: computation per task", color=INK)
    axes.set_ylabel("of the serial rate, per thread", color=INK)
    axes.set_title("Stencil of width 8: how much of the machine tasks of a grain can use", loc="left", color=INK)
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dfe2e7", linewidth=0.7)
    figure.legend(
        title="half of it from a grain of",
        loc="outside right upper",
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        title_fontsize=9,
        alignment="left",
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _grain(nanoseconds: float, least: float = 0.0) -> str:
    """Return a grain with its unit; the least one that was measured says that it may be less."""
    if not np.isfinite(nanoseconds):
        return "none"
    size, unit = next(((size, unit) for size, unit in ((1e6, "ms"), (1e3, "µs")) if nanoseconds >= size), (1, "ns"))
    return f"{'< ' if nanoseconds <= least else ''}{nanoseconds / size:.3g} {unit}"


def _errors(rows: Sequence[Row], path: Path) -> None:
    """Draw by how much simulation is off, against what a step takes: a mark for each pattern and grain."""
    median = {(row.case, row.contestant): row.median for row in rows}
    cases = [case for case, who in median if who == simulation.ERROR]
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    axes.axhspan(-10, 10, color="#f0f1f4", zorder=0)
    axes.axhline(0, color="#8a8f99", linewidth=0.9)
    for lanes, colour, marker in (("1 lane", INK, "o"), ("2 lanes", OURS, "D")):
        own = [case for case in cases if case.endswith(f", {lanes}")]
        taken = np.array([median[case, simulation.MEASURED] for case in own])
        error = np.array([median[case, simulation.ERROR] for case in own])
        worst = f", at most {np.abs(error).max():.1f} % off" if len(own) else ""
        axes.plot(taken, error, marker, color=colour, ms=5, alpha=0.8, label=f"{lanes}: {len(own)} cases{worst}")
    axes.set_xscale("log")
    most = max(20.0, 1.05 * max(abs(error) for line in axes.lines for error in line.get_ydata()))
    axes.set_ylim(-most, most)
    axes.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _grain(step * 1e3)))
    axes.set_xlabel("a step as measured", color=INK)
    axes.set_ylabel("simulated against measured", color=INK)
    axes.set_title("Steps of all patterns, simulated and measured; 10% is shaded", loc="left", color=INK)
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, labelcolor=INK, fontsize=9, loc="upper right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _scaling(rows: Sequence[Row], path: Path) -> None:
    """Draw steps on a few ranks, measured and predicted, and the efficiency on many nodes, which is only predicted."""
    figure, (near, far) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained", width_ratios=(2, 3))
    median = {(row.case, row.contestant): row.median for row in rows}
    checked = [case for case, who in median if who == "measured"]
    groups = list(dict.fromkeys(case.partition(", ")[2] for case in checked))  # such as "MPI, 2 ranks"
    for group, colour, marker in zip(groups, (OURS, "#2a6f97", "#e0a21c", "#5b8e7d"), "Dos^", strict=False):
        own = [case for case in checked if case.endswith(group)]
        measured, predicted = ([median[case, who] for case in own] for who in ("measured", "predicted"))
        off = max(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True))
        label = f"{group}: at most {off:.0%} off"
        near.plot(measured, predicted, marker, color=colour, ms=6, alpha=0.85, label=label)
    near.set_xscale("log")
    near.set_yscale("log")
    ends = np.array(near.get_xlim())
    near.plot(ends, ends, color="#8a8f99", linewidth=0.9, zorder=0)
    near.fill_between(ends, ends * 0.85, ends * 1.15, color="#f0f1f4", zorder=-1)
    near.set_xlim(*ends)
    for axis in (near.xaxis, near.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda step, _: _grain(step * 1e3)))
    near.set_xlabel("a step as measured", color=INK)
    near.set_ylabel("as predicted", color=INK)
    near.set_title("Measured: ranks of one host; 15% is shaded", loc="left", color=INK)
    for kind, colour in ((scaling.WEAK, OURS), (scaling.STRONG, "#2a6f97")):
        # They may be the same, where tasks hide what messages take: a thin line over a broad one shows both.
        for name, marker, width, alpha in ((scaling.ON_HOST, "o", 1.3, 1.0), (scaling.ON_NETWORK, "", 7.0, 0.25)):
            steps = np.array([median[f"{kind}, {nodes} nodes", name] for nodes in scaling.NODES])
            ideal = steps[0] / (1 if kind == scaling.WEAK else np.array(scaling.NODES))
            far.plot(
                scaling.NODES,
                ideal / steps,
                marker=marker,
                ms=4,
                linewidth=width,
                alpha=alpha,
                color=colour,
                label=f"{kind}, {name}".replace(" us", " µs"),
            )
    far.set_xscale("log", base=2)
    far.set_xticks(scaling.NODES, [f"{nodes:,}" for nodes in scaling.NODES])
    far.set_ylim(0, 1.05)
    far.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    far.set_xlabel("nodes of one core", color=INK)
    far.set_title("Predicted, not measured: efficiency on many nodes", loc="left", color=INK)
    for axes in (near, far):
        axes.tick_params(colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#dfe2e7", linewidth=0.7)
        axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw what there are rows for; return the files."""
    mpl.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    own = [row for row in rows if row.benchmark == "native"]
    if own:
        written.append(directory / "native.png")
        _bars("Empty native tasks", own, written[-1])
    own = [row for row in rows if row.benchmark == "metg" and row.unit == "efficiency"]
    if own:
        written.append(directory / "metg.png")
        crossings = [row for row in rows if row.benchmark == "metg" and row.unit != "efficiency"]
        _efficiency(own, {row.contestant: row.median for row in crossings}, written[-1])
    own = [row for row in rows if row.benchmark == "simulation"]
    if own:
        written.append(directory / "simulation.png")
        _errors(own, written[-1])
    own = [row for row in rows if row.benchmark == scaling.PREDICTED]
    if own:
        written.append(directory / "scaling.png")
        _scaling(own, written[-1])
    return written


def main(results: Path, directory: Path) -> None:
    """Draw what a run was written to."""
    rows = [
        Row(*(each[name] for name in ("benchmark", "case", "contestant", "unit")), tuple(each["samples"]))
        for each in json.loads(results.read_text())["results"]
    ]
    for path in draw(rows, directory):
        print(path)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
