"""The tuning landscape as pictures: all configurations by rank, each parameter, and the two that matter most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from ostinato.counting import counted
from ostinato.one_line import one_line
from ostinato.tune.report.landscape import Parameter
from ostinato.tune.report.summary import named
from ostinato.tune.report.svg import Dot, Scale, dots, element, number, picture, text
from ostinato.tune.report.table import marks
from ostinato.tune.wording import duration

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result

__all__ = ["COLOURS", "heat_map", "parameter_picture", "rank_picture"]

COLOURS = ((0xFD, 0xE7, 0x25), (0x5E, 0xC9, 0x62), (0x21, 0x91, 0x8C), (0x3B, 0x52, 0x8B), (0x44, 0x01, 0x54))
"""Of the heat map, from fast to slow: they differ in lightness too, for those who cannot tell the hues apart."""

_LEFT, _RIGHT = 64.0, 12.0
_MOST_INTERVALS = 300
_LONGEST_LABEL = 14
_STRIP = 12.0


def rank_picture(report: Report) -> str:
    """Return all results that have a time, the fastest first; empty if there is none."""
    timed = sorted(_timed(report.results), key=lambda entry: entry[1])
    if not timed:
        return ""
    width, height, top, bottom = 1044.0, 300.0, 12.0, 34.0
    scale = _time_scale(timed, height - bottom, top)
    step = (width - _LEFT - _RIGHT) / len(timed)
    parts = [*_time_axis(scale, _LEFT, width - _RIGHT)]
    marked = marks(report)
    groups: dict[str, list[Dot]] = {"raced": [], "ok": [], "default": [], "tie": [], "winner": []}
    for rank, (result, time) in enumerate(timed):
        x = _LEFT + (rank + 0.5) * step
        if result.interval_ns is not None and len(timed) <= _MOST_INTERVALS:
            low, high = (scale.place(min(max(value, scale.low), scale.high)) for value in result.interval_ns)
            parts.append(element("line", x1=x, x2=x, y1=low, y2=high, css="interval"))
        group = marked.get(id(result), str(result.status)).partition(",")[0]
        groups[group if group in groups else "ok"].append(Dot(x, scale.place(time), partial(_title, report, result)))
    for css, found in groups.items():
        parts += dots(found, css, 4.5 if css in ("winner", "tie", "default") else 3.0)
    parts.append(
        text(f"{counted(len(timed), 'result')} with a time, the fastest first", _LEFT, height - 10, css="label")
    )
    return picture(width, height, "time of every configuration, the fastest first", *parts)


def parameter_picture(report: Report, parameter: Parameter) -> str:
    """Return the values of a parameter against the time; empty if nothing has a time."""
    timed = _timed(report.results)
    if not timed:
        return ""
    width, height, top = 494.0, 260.0, 12.0 + _STRIP
    labels = _thinned(parameter.labels, width - _LEFT - _RIGHT)
    bottom = 34.0 if all(len(label) <= 5 for label in labels) else 92.0
    scale = _time_scale(timed, height - bottom, top)
    step = (width - _LEFT - _RIGHT) / len(parameter.labels)
    parts = [*_time_axis(scale, _LEFT, width - _RIGHT)]
    count, failed = [0] * len(labels), [0] * len(labels)
    least: dict[int, float] = {}
    shown: list[Dot] = []
    winner: list[Dot] = []
    for index, (result, level) in enumerate(zip(report.results, parameter.levels, strict=True)):
        count[level] += 1
        if not result.time_ns:
            failed[level] += result.status not in ("ok", "contended", "device_lost", "cancelled")
            continue
        least[level] = min(least.get(level, result.time_ns), result.time_ns)
        spread = (index * 0.618034 % 1 - 0.5) * 0.6  # side by side, the same in every run
        dot = Dot(_LEFT + (level + 0.5 + spread) * step, scale.place(result.time_ns), partial(_title, report, result))
        (winner if result is report.best else shown).append(dot)
    parts += dots(shown, "ok faint")
    line = [(_LEFT + (level + 0.5) * step, scale.place(time)) for level, time in sorted(least.items())]
    parts.append(element("path", d="M" + "L".join(f"{number(x)} {number(y)}" for x, y in line), css="best"))
    parts += dots(winner, "winner", 4.5)
    for level, label in enumerate(labels):
        x = _LEFT + (level + 0.5) * step
        if failed[level]:
            size = _STRIP * failed[level] / count[level]
            title = element("title", f"{failed[level]} of {count[level]} failed")
            box = {"x": x - 0.4 * step, "y": top - 4 - size, "width": 0.8 * step, "height": size}
            parts.append(element("rect", title, css="failed", **box))
        parts.append(_below(label, x, height - bottom, bottom > 40))
    return picture(width, height, f"values of {parameter.name} against the time", *parts)


def heat_map(report: Report, across: Parameter, down: Parameter) -> str:
    """Return the least time of every pair of values of two parameters; empty if nothing has a time."""
    best: dict[tuple[int, int], Result] = {}
    tried: dict[tuple[int, int], int] = {}
    for result, x, y in zip(report.results, across.levels, down.levels, strict=True):
        tried[x, y] = tried.get((x, y), 0) + 1
        held = best.get((x, y))
        if result.time_ns and (held is None or held.time_ns is None or result.time_ns < held.time_ns):
            best[x, y] = result
    times = [result.time_ns for result in best.values() if result.time_ns]
    if not times:
        return ""
    left, top = 120.0, 10.0
    wide = min(90.0, 850.0 / len(across.labels))
    tall = min(40.0, max(16.0, 420.0 / len(down.labels)))
    labels = _thinned(across.labels, wide * len(across.labels))
    slanted = any(len(label) * 7 > wide * len(labels) / sum(map(bool, labels)) for label in labels)
    right, floor = left + wide * len(across.labels), top + tall * len(down.labels)
    scale = Scale(min(times), max(times), 0.0, 1.0)
    parts = []
    for (x, y), count in sorted(tried.items()):
        box = {"x": left + x * wide + 0.5, "y": top + y * tall + 0.5, "width": wide - 1, "height": tall - 1}
        found = best.get((x, y))
        if found is None or not found.time_ns:
            title = element("title", f"none of {count} has a time")
            parts.append(element("rect", title, css="hole", **box))
            continue
        part = scale.part(found.time_ns)
        title = element("title", escape(f"best of {count}: {_title(report, found)}"))
        css = "cell winner-cell" if found is report.best else "cell"
        parts.append(element("rect", title, css=css, fill=_colour(part), **box))
        if wide >= 60:
            ink = {"css": "cell-text", "fill": "#111" if part < 0.6 else "#fff"}
            words = duration(found.time_ns)
            parts.append(text(words, left + (x + 0.5) * wide, top + (y + 0.5) * tall + 4, text_anchor="middle", **ink))
    for level, label in enumerate(labels):
        parts.append(_below(label, left + (level + 0.5) * wide, floor, slanted))
    for level, label in enumerate(down.labels):
        parts.append(text(_short(label), left - 6, top + (level + 0.5) * tall + 4, text_anchor="end", css="label"))
    height = floor + (80 if slanted else 26)
    return picture(max(right + 70, 420), height, f"best time of {across.name} and {down.name}", *parts)


def _timed(results: Sequence[Result]) -> list[tuple[Result, float]]:
    return [(result, result.time_ns) for result in results if result.time_ns and result.time_ns > 0]


def _time_scale(timed: list[tuple[Result, float]], begin: float, end: float) -> Scale:
    times = [time for _, time in timed]
    return Scale(0.97 * min(times), 1.03 * max(times), begin, end)


def _time_axis(scale: Scale, left: float, right: float) -> Iterator[str]:
    for tick in scale.ticks():
        y = scale.place(tick)
        yield element("line", x1=left, x2=right, y1=y, y2=y, css="grid")
        yield text(duration(tick), left - 8, y + 4, text_anchor="end", css="label")


def _below(label: str, x: float, floor: float, slanted: bool) -> str:
    if not label:
        return ""
    if slanted:
        turned = f"rotate(-40 {number(x)} {number(floor + 16)})"
        return text(label, x, floor + 16, text_anchor="end", css="label", transform=turned)
    return text(label, x, floor + 18, text_anchor="middle", css="label")


def _thinned(labels: Sequence[str], width: float) -> list[str]:
    """Labels with so many left out that those that stay do not touch."""
    shown = [_short(label) for label in labels]
    room = 22 if max(map(len, shown)) > 5 else 9 * max(map(len, shown)) + 6  # long ones are slanted
    every = -(-len(shown) * room // int(width))
    return [label if index % every == 0 else "" for index, label in enumerate(shown)]


def _short(label: str) -> str:
    label = one_line(label)
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def _title(report: Report, result: Result) -> str:
    time = "" if result.time_ns is None else duration(result.time_ns)
    return f"{named(report, result)}: {time}, {result.status}"


def _colour(part: float) -> str:
    place = min(max(part, 0.0), 1.0) * (len(COLOURS) - 1)
    index = min(int(place), len(COLOURS) - 2)
    pairs = zip(COLOURS[index], COLOURS[index + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - index)):02x}" for a, b in pairs)
