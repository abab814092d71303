"""What a report says in sentences and tables."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ostinato.text import counted, duration, one_line, setting, settings
from ostinato.tune.outcome import Status

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result

_FEWEST_SAMPLES = 6  # of fewer, the range covers the median with less than 95 %
_MOST_TIES = 5
_LONGEST_SENTENCE = 300


class Gain(NamedTuple):
    """How many times as fast as the default the winner is.

    Each median is within its interval with a probability of 95 %, so both are, and the quotient is between `low`
    and `high`, with at least 90 %. Both are None where there are too few samples for that.
    """

    ratio: float
    low: float | None
    high: float | None


def gain(report: Report) -> Gain | None:
    """Return how much faster than the default the winner is; None if one of them has no time, or they are the same."""
    best, default = report.best, report.default
    if best is None or default is None or best is default or not best.time_ns or not default.time_ns:
        return None
    ratio = default.time_ns / best.time_ns
    few = min(len(best.samples), len(default.samples)) < _FEWEST_SAMPLES
    if few or best.interval_ns is None or default.interval_ns is None or best.interval_ns[0] <= 0:
        return Gain(ratio, None, None)
    return Gain(ratio, default.interval_ns[0] / best.interval_ns[1], default.interval_ns[1] / best.interval_ns[0])


def half_width(result: Result) -> float | None:
    """Return half the width of the 95 % confidence interval, relative to the median; None if there are few samples."""
    if result.interval_ns is None or not result.time_ns or len(result.samples) < _FEWEST_SAMPLES:
        return None
    return (result.interval_ns[1] - result.interval_ns[0]) / 2 / result.time_ns


def status_counts(report: Report) -> dict[Status, int]:
    """Return how many results ended how, in the order of `Status`."""
    counts = Counter(result.status for result in report.results)
    return {status: counts[status] for status in Status if counts[status]}


def ranked(report: Report) -> list[Result]:
    """Return the results: the winner and its ties, then what is ok and what was cut, by time, then the failures."""
    first = {id(result): index for index, result in enumerate(report.ties)}
    if report.best is not None:
        first[id(report.best)] = -1
    order = {status: index for index, status in enumerate(Status)}

    def place(result: Result) -> tuple[int, int, float]:
        time = float("inf") if result.time_ns is None else result.time_ns
        return first.get(id(result), len(first)), order[result.status], time

    return sorted(report.results, key=place)


def named(report: Report, result: Result) -> str:
    """Return the configuration of a result, with its op if it is another than the search's."""
    if result.op == report.op:
        return settings(result.candidate.config)
    op = one_line(result.op)
    return f"{settings(result.candidate.config)} ({op})" if result.candidate.config else op


def sentences(report: Report) -> list[str]:
    """Return what was found."""
    if not report.results:
        return ["No candidate was tried."]
    if report.best is None:
        said = ["No candidate is ok, so there is no winner.", *_failure(report)]
    else:
        said = [
            _winner(report, report.best),
            *_default(report, report.best),
            *_ties(report, report.best),
            *_order(report, report.best),
        ]
    return [*said, _all(report)]


def _winner(report: Report, best: Result) -> str:
    if best.time_ns is None:
        return f"No candidate reported a time. {named(report, best)} comes first: {_preference(report, best)}."
    said = f"The winner is {named(report, best)}: {_time(best)} a call"
    if best.interval_ns is not None and len(best.samples) >= _FEWEST_SAMPLES:
        low, high = best.interval_ns
        said += f", between {duration(low)} and {duration(high)} with 95 % confidence"
    return f"{said} ({counted(len(best.samples), 'sample')}{_where(report, best)})."


def _preference(report: Report, best: Result) -> str:
    return "it is the default" if best is report.default else f"it needs {counted(best.workspace, 'byte')} of workspace"


def _failure(report: Report) -> list[str]:
    """Say what is wrong with most of the results, where none is ok."""
    messages = Counter(result.message for result in report.results if result.message)
    return [
        f"{count} of {counted(len(report.results), 'result')}: {_short(one_line(message))}"
        for message, count in messages.most_common(1)
    ]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[: _LONGEST_SENTENCE - 3]}..."


def _order(report: Report, best: Result) -> list[str]:
    """Say why a time may be less than the winner's."""
    if all(_nanoseconds(result) >= _nanoseconds(best) for result in report.results if result.status is Status.OK):
        return []
    return [
        "Times that are less than the winner's are no contradiction: the best were compared round by round, so that "
        "what disturbs a round counts for all of them alike, and among ties the default and less workspace come first."
    ]


def _nanoseconds(result: Result) -> float:
    return float("inf") if result.time_ns is None else result.time_ns


def _where(report: Report, result: Result) -> str:
    if not result.device:
        return ""
    finals = {
        span.where
        for span in report.spans
        if span.what == "final" and span.candidate == result.candidate and span.where != result.device
    }
    again = f", and in the final on {one_line(finals.pop())}" if finals else ""
    return f", on {one_line(result.device)}{again}"


def _default(report: Report, best: Result) -> list[str]:
    default = report.default
    if default is None:
        return []
    if best.time_ns is None:
        return []
    if default is best:
        return ["It is the default: nothing that was tried is faster beyond the noise."]
    if default.time_ns is None and default.status is Status.OK:
        return [f"The default, {named(report, default)}, reported no time."]
    if default.time_ns is None:
        return [f"The default, {named(report, default)}, is no match: it ended as {default.status}."]
    found = gain(report)
    if found is None:
        return []
    said = f"It is {found.ratio:.3g} times as fast as the default, {named(report, default)}: {_time(default)}"
    if found.low is None or found.high is None:
        return [f"{said}; there are too few samples to say how sure that is."]
    return [f"{said}; between {found.low:.3g} and {found.high:.3g} times with 90 % confidence."]


def _ties(report: Report, best: Result) -> list[str]:
    others = [result for result in report.ties if result is not best]
    if not others:
        return []
    shown = "; ".join(f"{named(report, result)} ({_time(result)})" for result in others[:_MOST_TIES])
    more = f"; and {len(others) - _MOST_TIES} more" if len(others) > _MOST_TIES else ""
    return [
        f"{counted(len(others), 'other')} cannot be told from it by these measurements: {shown}{more}. Among ties the "
        "default wins, then of those equally fast what needs less workspace."
    ]


def _all(report: Report) -> str:
    candidates = len({result.candidate.id for result in report.results})
    places = len({span.where for span in report.spans if not span.where.startswith("build:")})
    several = f" with {counted(len(report.results), 'result')}" if len(report.results) != candidates else ""
    cached = len({result.candidate.id for result in report.results if result.cached})
    said = f"{counted(candidates, 'candidate')}{several} in {duration(report.seconds * 1e9)}"
    said += f" on {counted(places, 'device')}" if places else ""
    said += _final(report)
    said += f", {cached} of them from the store" if cached else ""
    return f"{said}."


def _final(report: Report) -> str:
    """Say what the final cost."""
    turns = [span for span in report.spans if span.what == "final"]
    if not turns:
        return ""
    seconds = max(turn.end for turn in turns) - min(turn.begin for turn in turns)
    places = len({turn.where for turn in turns})
    return f", of them {duration(seconds * 1e9)} for {counted(len(turns), 'turn')} of the final on {places}"


def _time(result: Result) -> str:
    return "no time" if result.time_ns is None else duration(result.time_ns)


_LONGEST_CELL = 60
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def parameters(report: Report) -> list[str]:
    """Return the names of all configurations, in the order in which they first appear."""
    return list(dict.fromkeys(name for result in report.results for name in result.candidate.config))


def marks(report: Report) -> dict[int, str]:
    """Return what a result is besides its status, by its `id`: winner, tie, default."""
    found = {id(result): "tie" for result in report.ties}
    if report.best is not None:
        found[id(report.best)] = "winner"
    if report.default is not None:
        mark = found.get(id(report.default))
        found[id(report.default)] = f"{mark}, default" if mark else "default"
    return found


def table(report: Report, most: int | None = None) -> str:
    """Return a report as lines for a terminal; see `Report.table`."""
    rows = ranked(report)
    shown = rows if most is None else rows[:most]
    lines = [""] * (len(shown) + 1)
    for heading, cells, adjust in _columns(report, shown):
        if any(cells):
            cells = [heading, *cells]
            width = max(map(len, cells))
            lines = [f"{line}{adjust(cell, width)}  " for line, cell in zip(lines, cells, strict=True)]
    if len(shown) < len(rows):
        lines.append(f"and {len(rows) - len(shown)} more")
    return "\n".join(line.rstrip() for line in lines)


def _columns(report: Report, shown: list[Result]) -> Iterator[tuple[str, list[str], Callable[[str, int], str]]]:
    marked = marks(report)
    yield "", [marked.get(id(result), "") for result in shown], str.ljust
    for name in parameters(report):
        configs = [result.candidate.config for result in shown]
        numbers = all(isinstance(config.get(name, 0), int | float) for config in configs)
        cells = [setting(config[name]) if name in config else "" for config in configs]
        yield one_line(name), cells, str.rjust if numbers else str.ljust
    if any(result.op != report.op for result in shown):
        yield "op", [one_line(result.op) for result in shown], str.ljust
    yield "status", [str(result.status) for result in shown], str.ljust
    yield "time", ["" if result.time_ns is None else duration(result.time_ns) for result in shown], str.rjust
    widths = [half_width(result) for result in shown]
    yield "+/-", ["" if width is None else f"{width:.1%}" for width in widths], str.rjust
    best = report.best.time_ns if report.best is not None else None
    ratios = ["" if not best or result.time_ns is None else f"{result.time_ns / best:.4g}" for result in shown]
    yield "x best", ratios, str.rjust
    yield "samples", [str(len(result.samples) or "") for result in shown], str.rjust
    yield "workspace", [str(result.workspace or "") for result in shown], str.rjust
    yield "device", [one_line(result.device or "") for result in shown], str.ljust
    yield "message", [_shortened(result.message) for result in shown], str.ljust


_FIXED: dict[str, Callable[[Result], object]] = {
    "candidate": lambda result: result.candidate.id,
    "op": lambda result: result.op,
    "status": lambda result: str(result.status),
    "time_ns": lambda result: result.time_ns,
    "interval_low_ns": lambda result: result.interval_ns and result.interval_ns[0],
    "interval_high_ns": lambda result: result.interval_ns and result.interval_ns[1],
    "samples": lambda result: len(result.samples),
    "workspace": lambda result: result.workspace,
    "device": lambda result: result.device,
    "message": lambda result: result.message,
    "cached": lambda result: json.dumps(result.cached),
    "miss": lambda result: result.miss,
    "contended": lambda result: result.contended,
    "overhead_ns": lambda result: result.overhead_ns,
}


def write_csv(report: Report, out: IO[str]) -> None:
    """Write one row per result, in the order of `Report.results`.

    A spreadsheet must not take a text for a formula: one that begins with ``=``, ``+``, ``-`` or ``@`` (or a tab or the
    end of a line, before them) and is not a number gets an apostrophe before it.

    A parameter named like one of the other columns gets ``config.`` before its name. Values that are no `str` are
    written as JSON.
    """
    names = parameters(report)
    marked = marks(report)
    writer = csv.writer(out)
    taken = {"verdict", *_FIXED}
    headings = [*(f"config.{name}" if name in taken else name for name in names), "verdict", *_FIXED]
    writer.writerow(map(_guarded, headings))
    for result in report.results:
        values = [result.candidate.config.get(name, "") for name in names]
        cells = [
            *(value if isinstance(value, str) else json.dumps(value) for value in values),
            marked.get(id(result), ""),
            *(cell(result) for cell in _FIXED.values()),
        ]
        writer.writerow(map(_guarded, cells))


def _guarded(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    return cell if _NUMBER.fullmatch(cell) else f"'{cell}"


def write_json(report: Report, out: IO[str]) -> None:
    """Write everything, with the samples; `best`, `ties` and `default` are places in `results`."""
    places = {id(result): index for index, result in enumerate(report.results)}
    value = {
        "op": report.op,
        "key": report.key,
        "policy": dataclasses.asdict(report.policy),
        "seconds": report.seconds,
        "environment": report.environment,
        "best": None if report.best is None else places[id(report.best)],
        "ties": [places[id(result)] for result in report.ties],
        "default": None if report.default is None else places[id(report.default)],
        "results": [_described(result) for result in report.results],
        "stretches": [
            {
                "where": span.where,
                "what": span.what,
                "candidate": None if span.candidate is None else span.candidate.id,
                "begin": span.begin,
                "end": span.end,
                "status": span.status,
            }
            for span in report.spans
        ],
    }
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(_strict(value), allow_nan=False)
    out.write(f"{text}\n")


def _described(result: Result) -> dict[str, Any]:
    fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    candidate = fields.pop("candidate")
    return {"candidate": {"id": candidate.id, **candidate.described()}, **fields}


def _strict(value: Any) -> Any:
    """Return a value with numbers that JSON has no form for, such as infinity, as text."""
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _shortened(message: str) -> str:
    first = one_line(message.strip().partition("\n")[0])
    return first if len(first) <= _LONGEST_CELL else f"{first[: _LONGEST_CELL - 3]}..."
