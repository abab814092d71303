"""The picture of what tuning a graph found: a row for each case, a mark for each variant by its time to the default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ostinato.text import counted, duration, one_line, setting, shorten
from ostinato.tune.outcome import Status
from ostinato.view import palette
from ostinato.view.palette import BAND, FAILED, STEPS
from ostinato.view.svg import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result


INK, FAINT = palette.ON_LIGHT[palette.INK], palette.ON_LIGHT[palette.DIM]
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
LONGEST = 44
MOST_NAMED = 42  # so many have different colours and marks
TIMED = (Status.OK, Status.RACED)


def plot(reports: Mapping[str, Report], path: str | os.PathLike[str]) -> None:
    """Draw the reports of a graph's cases into a file, whose suffix says the format."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("the picture needs matplotlib: pip install 'ostinato[plot]'") from error

    height = 1.2 + 0.46 * max(len(reports), 1) + 0.2 * _legend_rows(reports)
    figure = Figure(figsize=(11, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    _style(axes, reports)
    if reports:
        _rows(axes, reports)
        _legend(figure, reports)
    with replacing(path) as draft:
        figure.savefig(draft, format=draft.suffix[1:] or "png")


def _style(axes: Axes, reports: Mapping[str, Report]) -> None:
    axes.set_ylim(max(len(reports), 1) - 0.5, -0.5)
    axes.set_yticks(range(len(reports)), [_row_label(label, report) for label, report in reports.items()])
    axes.tick_params(colors=INK, left=False, labelsize=8.5)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.set_title(_caption(reports), loc="left", fontsize=10, color=INK)
    if not reports:
        axes.set_xticks([])


def _rows(axes: Axes, reports: Mapping[str, Report]) -> None:
    looks = _looks(reports)
    axes.axvline(1, color=FAINT, linewidth=1, zorder=1)
    said = axes.get_yaxis_transform()
    for row, report in enumerate(reports.values()):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color=BAND, zorder=0)
        for result, x in sorted(_timed(report), key=lambda timed: timed[0] is report.best):
            _mark(axes, row, report, result, x, looks[_name(result)])
        verdict, failures = _verdict(report), _failures(report)
        for text, up, size, colour in ((verdict, 6 if failures else 0, 8.5, INK), (failures, -6, 7, FAILED)):
            axes.annotate(
                text,
                (1.015, row),
                xycoords=said,
                xytext=(0, up),
                textcoords="offset points",
                va="center",
                fontsize=size,
                color=colour,
                annotation_clip=False,
            )
    _time_axis(axes, reports)


def _mark(axes: Axes, row: int, report: Report, result: Result, x: float, look: tuple[str, str]) -> None:
    assert result.time_ns is not None
    colour, marker = look
    if result.interval_ns is not None and result.interval_ns[0] > 0:
        low, high = (x * bound / result.time_ns for bound in result.interval_ns)
        axes.plot([low, high], [row, row], color=colour, linewidth=1.2, zorder=2, solid_capstyle="butt")
    won = result is report.best
    if not won and any(result is tie for tie in report.ties):
        axes.plot(x, row, marker="o", ms=13, mfc="none", mec=INK, mew=0.8, ls="", zorder=3)
    if won:
        axes.plot(x, row, marker="*", ms=17, mfc=colour, mec=INK, mew=0.9, ls="", zorder=5)
    else:
        face = "white" if result.status is Status.RACED else colour
        axes.plot(x, row, marker=marker, ms=6.5, mfc=face, mec=colour, mew=1.4, ls="", zorder=4)


def _time_axis(axes: Axes, reports: Mapping[str, Report]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    values = [ratio for report in reports.values() for _, ratio in _timed(report)]
    low, high = min(*values, 0.8, 1.0) / 1.12, max(*values, 1.25, 1.0) * 1.12
    if high / low > 200:
        between = (1, 2, 5) if high / low < 5000 else (1,)
        ticks = [factor * 10.0**power for power in range(-9, 10) for factor in between]
    else:
        ticks = [2.0**power for power in range(-10, 11)] + ([0.75, 1.5] if high / low < 6 else [])
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="x", color=palette.ON_LIGHT[palette.GRID], linewidth=0.7, zorder=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("time, relative to the default's (logarithmic; less is faster)", color=INK, fontsize=9)


def _legend(figure: Figure, reports: Mapping[str, Report]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], ls="", marker=marker, ms=6.5, color=colour, label=_shown(name, LONGEST))
        for name, (colour, marker) in list(_looks(reports).items())[:MOST_NAMED]
    ]
    signs = [Line2D([], [], ls="", marker="*", ms=13, mfc="white", mec=INK, label="winner")]
    if any(len(report.ties) > 1 for report in reports.values()):
        signs.append(Line2D([], [], ls="", marker="o", ms=11, mfc="none", mec=INK, label="tie with the winner"))
    if any(result.status is Status.RACED for report in reports.values() for result in report.results):
        signs.append(Line2D([], [], ls="", marker="o", ms=6.5, mfc="white", mec=INK, label="given up early"))
    figure.legend(
        handles=handles + signs,
        loc="outside lower left",
        ncols=_columns(reports),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        handletextpad=0.3,
        columnspacing=1.4,
    )


def _columns(reports: Mapping[str, Report]) -> int:
    """Return how many entries of the legend stand side by side."""
    longest = max(map(len, _looks(reports)), default=0)
    return max(1, min(6, 130 // (max(longest, 20) + 4)))


def _legend_rows(reports: Mapping[str, Report]) -> int:
    return -(-(min(len(_looks(reports)), MOST_NAMED) + 3) // _columns(reports))


def _looks(reports: Mapping[str, Report]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each variant that has a time, the same in all rows."""
    names = dict.fromkeys(_name(result) for report in reports.values() for result, _ in _timed(report))
    return {name: (STEPS[place % len(STEPS)], MARKERS[place % len(MARKERS)]) for place, name in enumerate(names)}


def _timed(report: Report) -> list[tuple[Result, float]]:
    """Return the results that have a time, each relative to the default's; the winner's where that has none."""
    times = [result.time_ns for result in (report.default, report.best) if result is not None and result.time_ns]
    timed = [result for result in report.results if result.time_ns and result.status in TIMED]
    return [(result, result.time_ns / times[0]) for result in timed if result.time_ns and times]


def _row_label(label: str, report: Report) -> str:
    """Return the case, and the default's time."""
    default = report.default
    time = default.time_ns if default is not None else None
    said = "the default has no time"
    if time:
        said = "default " + duration(float(f"{time:.3g}"))
    return f"{_shown(label, LONGEST)}\n{said}"


def _verdict(report: Report) -> str:
    best, default = report.best, report.default
    if best is None or not best.time_ns:
        return "no variant is ok" if report.results else "nothing was measured"
    if len(report.results) == 1:
        return "has no other variant"
    if best is default:
        return "the default is as fast as any" if len(report.ties) > 1 else "the default wins"
    gain = f": {default.time_ns / best.time_ns:.2f}x" if default is not None and default.time_ns else ""
    return f"{_shown(_name(best), LONGEST)}{gain}"


def _failures(report: Report) -> str:
    """Name what has no time, and why."""
    lost = [result for result in report.results if result.status not in TIMED]
    words = [f"{_shown(_name(result), 28)}: {str(result.status).replace('_', ' ')}" for result in lost[:2]]
    if len(lost) > 2:
        words.append(f"{len(lost) - 2} more")
    return ", ".join(words)


def _caption(reports: Mapping[str, Report]) -> str:
    if not reports:
        return "no cases"
    gains = [
        report.default.time_ns / report.best.time_ns
        for report in reports.values()
        if report.best is not None and report.default is not None and report.best is not report.default
        if report.best.time_ns and report.default.time_ns
    ]
    variants = sum(len(report.results) for report in reports.values())
    said = f"{counted(len(reports), 'case')}, {counted(variants, 'variant')}"
    if not gains:
        return f"{said}: nothing is faster than its default"
    return f"{said}: {counted(len(gains), 'case')} faster than by default, up to {max(gains):.2f}x"


def _name(result: Result) -> str:
    """The variant: its name with its configuration."""
    config: Mapping[str, object] = result.candidate.config
    rest = ", ".join(f"{name}={setting(value)}" for name, value in config.items() if name != "variant")
    name = setting(config["variant"]) if "variant" in config else one_line(result.op)
    return f"{name}({rest})" if rest else name


def _shown(text: str, most: int) -> str:
    """Return a text in one line, shortened, with no mathematics in it."""
    return shorten(one_line(text), most).replace("$", r"\$")
