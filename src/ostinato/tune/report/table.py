"""A report as a table for a terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from ostinato.one_line import one_line
from ostinato.tune.report.summary import half_width, ranked
from ostinato.tune.wording import duration, setting

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result

__all__ = ["marks", "parameters", "table", "write_csv", "write_json"]

_LONGEST_MESSAGE = 60
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
    yield "x best", [_relative(report, result) for result in shown], str.rjust
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
                "where": stretch.where,
                "what": stretch.what,
                "candidate": None if stretch.candidate is None else stretch.candidate.id,
                "begin": stretch.begin,
                "end": stretch.end,
                "status": stretch.status,
            }
            for stretch in report.stretches
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


def _relative(report: Report, result: Result) -> str:
    if report.best is None or not report.best.time_ns or result.time_ns is None:
        return ""
    return f"{result.time_ns / report.best.time_ns:.4g}"


def _shortened(message: str) -> str:
    first = one_line(message.strip().partition("\n")[0])
    return first if len(first) <= _LONGEST_MESSAGE else f"{first[: _LONGEST_MESSAGE - 3]}..."
