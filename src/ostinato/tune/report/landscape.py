"""The tuning landscape: what each parameter's values do to the time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ostinato.tune.wording import setting

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report

__all__ = ["Parameter", "landscape"]

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
