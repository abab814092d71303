"""What tuning a graph found: a report for each case."""

from __future__ import annotations

import os

from ostinato.one_line import one_line
from ostinato.tune.report.report import Report
from ostinato.tune.status import Status
from ostinato.tune.wording import duration

__all__ = ["Reports"]

_LONGEST = 60


class Reports(dict[str, Report]):
    """What `Graph.tune` found: a `Report` for each case, by its label.

    Examples
    --------
    >>> print(Reports().table())
    case  time  default  gain  variants
    """

    def table(self) -> str:
        """Return a table with a line for each case: what won, how fast it is, and how much that gains."""
        rows = [("case", "winner", "time", "default", "gain", "variants", "message")]
        rows += [_row(label, report) for label, report in self.items()]
        columns = [column for column in zip(*rows, strict=True) if any(column[1:]) or column[0] not in _OPTIONAL]
        lines = [""] * len(rows)
        for column in columns:
            adjust = str.rjust if column[0] in _NUMBERS else str.ljust
            width = max(map(len, column))
            lines = [f"{line}{adjust(cell, width)}  " for line, cell in zip(lines, column, strict=True)]
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return self.table()

    def __missing__(self, label: str) -> Report:
        raise KeyError(
            f"the label must be that of a case, got {label!r}; there are {', '.join(map(repr, self)) or 'none'}"
        )

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of what was found: the variants of each case by what they take.

        Needs Matplotlib: ``pip install ostinato[plot]``.

        Parameters
        ----------
        path
            Where; the suffix says what, such as ``.svg`` or ``.png``.
        """
        from ostinato.view.graph_landscape import plot

        plot(self, path)


_NUMBERS = frozenset({"time", "default", "gain"})
_OPTIONAL = frozenset({"winner", "message"})


def _row(label: str, report: Report) -> tuple[str, str, str, str, str, str, str]:
    best, default = report.best, report.default
    if default is not None and default in report.ties:
        best = default
    right = sum(result.status in (Status.OK, Status.RACED) for result in report.results)
    gain = ""
    if best is not None and default is not None and best.time_ns and default.time_ns:
        gain = f"{default.time_ns / best.time_ns:.2f}"
    wrong = [
        f"{_winner(result.candidate.config)}: {result.status}" for result in report.results if not _fine(result.status)
    ]
    message = report.results[0].message if best is None and report.results else "; ".join(wrong)
    message = one_line(message)
    return (
        one_line(label),
        "" if best is None else _winner(best.candidate.config),
        "" if best is None or best.time_ns is None else duration(best.time_ns),
        "" if default is None or default.time_ns is None else duration(default.time_ns),
        gain,
        f"{right} of {len(report.results)} ok" + (", from the store" if _cached(report) else ""),
        message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}...",
    )


def _fine(status: Status) -> bool:
    return status in (Status.OK, Status.RACED)


def _cached(report: Report) -> bool:
    return bool(report.results) and all(result.cached for result in report.results)


def _winner(config: object) -> str:
    if not isinstance(config, dict) or "variant" not in config:
        return ""
    rest = ", ".join(f"{name}={value}" for name, value in config.items() if name != "variant")
    return one_line(f"{config['variant']}({rest})" if rest else str(config["variant"]))
