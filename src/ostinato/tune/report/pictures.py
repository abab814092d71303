"""Pictures of a report, as SVG."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from ostinato.text import counted, duration, one_line, setting, settings, shorten
from ostinato.tune.report.summary import marks, named
from ostinato.view.palette import HEAT
from ostinato.view.svg import element, number, text

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result, Span

_MOST_TITLED = 1000
_FEWEST_LINEAR = 4.0  # times the lowest value: from there, an axis is logarithmic


def picture(width: float, height: float, described: str, *content: str) -> str:
    """Return a picture that shrinks with the page; `described` is read out where it cannot be seen."""
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=float(width),
        role="img",
        aria_label=one_line(described),
    )


class Dot(NamedTuple):
    """A dot, and what says what is shown when it is pointed at."""

    x: float
    y: float
    title: Callable[[], str]


def dots(entries: Iterable[Dot], css: str, radius: float = 3.0) -> Iterator[str]:
    """Yield dots: with their titles as long as there are few, else as one path that keeps pages of thousands fast."""
    found = list(entries)
    if len(found) <= _MOST_TITLED:
        for dot in found:
            title = element("title", escape(dot.title()))
            yield element("circle", title, cx=dot.x, cy=dot.y, r=radius, css=css)
        return
    places = dict.fromkeys((round(2 * dot.x) / 2, round(2 * dot.y) / 2) for dot in found)
    path = "".join(f"M{number(x)} {number(y)}h0" for x, y in places)
    yield element("path", d=path, css=f"{css} dots", stroke_width=2 * radius)


class Scale:
    """Where values are along an axis: evenly, or by their logarithm where they differ much."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.logarithmic = low > 0 and high / low > _FEWEST_LINEAR
        if not self.logarithmic and high <= low:
            low, high = low - 0.5 * abs(low) - 1e-9, high + 0.5 * abs(high) + 1e-9
        self.low, self.high, self._begin, self._end = low, high, begin, end

    def place(self, value: float) -> float:
        return self._begin + (self._end - self._begin) * self.part(value)

    def part(self, value: float) -> float:
        """How far along it is, from 0 to 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return up to about six round values."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1, 3), (1,)):
                found = self._inside(step * 10.0**decade for decade in decades for step in steps)
                if len(found) <= 6:
                    return found
            return found[:: math.ceil(len(found) / 6)]
        rough = (self.high - self.low) / 5
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= 0.999 * rough)
        first = math.ceil(self.low / step - 1e-6)
        return self._inside(round(first + index, 6) * step for index in range(8))

    def _inside(self, values: Iterable[float]) -> list[float]:
        slack = 1e-6 * (self.high - self.low)
        rounded = (float(f"{value:.9g}") for value in values)
        return [value for value in rounded if self.low - slack <= value <= self.high + slack]


_MOST_LEVELS = 40
_ABSENT = "(none)"


class Parameter(NamedTuple):
    """A parameter that took several values.

    Its values are its levels, in their order where they are numbers, else as they first appear. Where there are more
    than forty, neighbours are put together.
    """

    name: str
    labels: tuple[str, ...]
    """What each level is called."""
    levels: tuple[int, ...]
    """The level of each result."""
    share: float
    """Which part of the variance of log(time) the parameter explains alone; not corrected for what chance explains."""


def landscape(report: Report) -> list[Parameter]:
    """Return the parameters that took several values, the one that explains most first.

    Where the results are of several ops, the op counts as one.
    """
    rows: list[dict[str, Any]] = [dict(result.candidate.config) for result in report.results]
    if len({result.op for result in report.results}) > 1:
        for row, result in zip(rows, report.results, strict=True):
            row["op"] = f"{row['op']}, {result.op}" if "op" in row else result.op
    times = [result.time_ns for result in report.results]
    found = [_parameter(name, rows, times) for name in dict.fromkeys(name for row in rows for name in row)]
    return sorted((entry for entry in found if len(entry.labels) > 1), key=lambda entry: -entry.share)


def _parameter(name: str, rows: Sequence[dict[str, Any]], times: Sequence[float | None]) -> Parameter:
    values: dict[str, Any] = {
        json.dumps(row[name], sort_keys=True) if name in row else "": row.get(name) for row in rows
    }
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()):
        values = dict(sorted(values.items(), key=lambda item: item[1]))
    texts = [setting(value) if key else _ABSENT for key, value in values.items()]
    size = math.ceil(len(texts) / _MOST_LEVELS)
    groups = [texts[index : index + size] for index in range(0, len(texts), size)]
    level = {key: index // size for index, key in enumerate(values)}
    levels = [level[json.dumps(row[name], sort_keys=True) if name in row else ""] for row in rows]
    labels = (group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups)
    return Parameter(name, tuple(labels), tuple(levels), _share(levels, times))


def _share(levels: Sequence[int], times: Sequence[float | None]) -> float:
    """Return the sum of squares between levels over the total one, of log(time)."""
    groups: dict[int, list[float]] = {}
    for level, time in zip(levels, times, strict=True):
        if time and time > 0:
            groups.setdefault(level, []).append(math.log(time))
    logs = [log for group in groups.values() for log in group]
    if len(groups) < 2:
        return 0.0
    mean = math.fsum(logs) / len(logs)
    total = math.fsum((log - mean) ** 2 for log in logs)
    between = math.fsum(len(group) * (math.fsum(group) / len(group) - mean) ** 2 for group in groups.values())
    return 0.0 if total <= 1e-18 * len(logs) else min(1.0, between / total)


_LABELS, _WIDTH, _MARGIN = 130.0, 1044.0, 52.0
_ROW, _BAR = 22.0, 16.0
_NARROW = 2.0  # bars below it are drawn as one path per colour, and those in the same place once
_LONGEST_NAME = 18


def kind(span: Span) -> str:
    """Return how a span is coloured: by what it was if it went well, else by how it ended."""
    return span.what if span.status in ("ok", "raced") else str(span.status)


def time_line(spans: Sequence[Span]) -> str:
    """Return a row per device and place in the compile pool, with the part of the time that it was busy."""
    if not spans:
        return ""
    of: dict[str, list[Span]] = {}
    for span in spans:
        of.setdefault(span.where, []).append(span)
    names = sorted(of, key=lambda name: (name.startswith("build:"), _order(name)))
    hosts = dict.fromkeys(host for host, slash, _ in (name.partition("/") for name in names) if slash)
    scale = Scale(0.0, max(max(span.end for span in spans), 1e-9), _LABELS, _WIDTH - _MARGIN)
    height = (len(names) + len(hosts)) * _ROW + 40
    parts = []
    for tick in scale.ticks():
        x = scale.place(tick)
        parts.append(element("line", x1=x, x2=x, y1=4.0, y2=height - 30, css="grid"))
        parts.append(text(duration(tick * 1e9) if tick else "0 s", x, height - 14, text_anchor="middle", css="label"))
    row = -1
    for name in names:
        row += 1
        busy = sum(span.end - span.begin for span in of[name]) / scale.high
        host, slash, device = name.partition("/")
        if slash and host in hosts:  # a heading, before the first of its devices
            del hosts[host]
            its = [each for each in names if each.startswith(f"{host}/")]
            share = sum(span.end - span.begin for each in its for span in of[each]) / (len(its) * scale.high)
            top = 6 + row * _ROW
            heading = f"{one_line(host)}: {counted(len(its), 'device')}"
            parts.append(text(heading, _LABELS + 2, top + 12, text_anchor="start", css="label"))
            parts.append(text(f"{share:.0%}", _WIDTH - 6, top + 12, text_anchor="end", css="label"))
            row += 1
        top = 6 + row * _ROW
        shown = one_line(device if slash else name)
        shown = shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"
        title = element("title", escape(one_line(name)))
        parts.append(element("text", escape(shown), title, x=_LABELS - 8, y=top + 12, text_anchor="end", css="label"))
        parts += _bars(of[name], scale, top)
        parts.append(text(f"{busy:.0%}", _WIDTH - 6, top + 12, text_anchor="end", css="label"))
    return picture(_WIDTH, height, "what each device was busy with", *parts)


def _bars(spans: Sequence[Span], scale: Scale, top: float) -> Iterator[str]:
    narrow: dict[tuple[str, int], None] = {}
    for span in spans:
        begin, end = scale.place(span.begin), scale.place(span.end)
        if end - begin < _NARROW:
            narrow[kind(span), round(begin)] = None
            continue
        about = "" if span.candidate is None else f": {settings(span.candidate.config)}"
        words = f"{span.what}{about}, {duration((span.end - span.begin) * 1e9)}, {span.status}"
        title = element("title", escape(words))
        gap = 0.5  # so that one can tell neighbours apart
        yield element("rect", title, x=begin, y=top, width=end - begin - gap, height=_BAR, css=f"bar k-{kind(span)}")
    for css in dict.fromkeys(css for css, _ in narrow):
        lines = "".join(f"M{x} {number(top)}v{number(_BAR)}" for name, x in narrow if name == css)
        yield element("path", d=lines, css=f"bars k-{css}")


def _order(name: str) -> tuple[str, int]:
    """``cpu:10`` comes after ``cpu:9``."""
    digits = name[len(name.rstrip("0123456789")) :]
    return name.removesuffix(digits), int(digits or 0)


COLOURS = tuple(tuple(int(colour[place : place + 2], 16) for place in (1, 3, 5)) for colour in HEAT)
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
    return shorten(one_line(label), _LONGEST_LABEL)


def _title(report: Report, result: Result) -> str:
    time = "" if result.time_ns is None else duration(result.time_ns)
    return f"{named(report, result)}: {time}, {result.status}"


def _colour(part: float) -> str:
    place = min(max(part, 0.0), 1.0) * (len(COLOURS) - 1)
    index = min(int(place), len(COLOURS) - 2)
    pairs = zip(COLOURS[index], COLOURS[index + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - index)):02x}" for a, b in pairs)
