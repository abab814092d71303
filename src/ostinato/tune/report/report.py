"""What a search found."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ostinato.text import counted
from ostinato.tune.policy import Policy
from ostinato.tune.result import Result, Span


@dataclass(slots=True, kw_only=True)
class Report:
    """What a search found.

    Attributes
    ----------
    op, key
        What was tuned.
    policy
        How it was measured.
    best
        The winner, one of `results`; None if no candidate is ok. What is ok without a time wins only where nothing has
        one.
    ties
        What cannot be told from the winner by these measurements, the winner first.
    results
        One entry per candidate and op, in the order of the candidates.
    default
        The default's entry; None if there is no default or it reported nothing.
    seconds
        Duration of the search.
    spans
        When which device was busy with what.
    environment
        Devices, drivers and library versions that the results hold for.

    Examples
    --------
    >>> import ostinato as ost
    >>> slow, fast = (
    ...     ost.Result(
    ...         candidate=ost.Candidate.call("json:dumps", {"obj": "x" * n}),
    ...         op="dumps",
    ...         status=ost.Status.OK,
    ...         time_ns=n * 250.0,
    ...         samples=(n * 250.0,),
    ...     )
    ...     for n in (6, 4)
    ... )
    >>> report = ost.Report(
    ...     op="dumps", key={}, policy=ost.Policy(), best=fast, ties=(fast,), results=(slow, fast), default=slow
    ... )
    >>> print(report.why())
    The winner is obj=xxxx: 1 µs a call (1 sample).
    It is 1.5 times as fast as the default, obj=xxxxxx: 1.5 µs; there are too few samples to say how sure that is.
    2 candidates in 0 ns.
    Results: 2 ok.
    >>> print(report.table())
             obj     status    time  x best  samples
    winner   xxxx    ok        1 µs       1        1
    default  xxxxxx  ok      1.5 µs     1.5        1
    """

    op: str
    key: dict[str, Any]
    policy: Policy
    best: Result | None
    ties: tuple[Result, ...]
    results: tuple[Result, ...]
    default: Result | None = None
    seconds: float = 0.0
    spans: tuple[Span, ...] = field(default=(), repr=False)
    environment: dict[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"<Report of {counted(len(self.results), 'result')}, best {self.best!r}>"

    def _repr_html_(self) -> str:
        from ostinato.tune.report.page import report_page

        return report_page(self)

    def why(self) -> str:
        """Return in a few sentences what was found, and how sure it is."""
        from ostinato.tune.report.summary import sentences, status_counts

        counts = ", ".join(f"{number} {status}" for status, number in status_counts(self).items())
        return "\n".join([*sentences(self), *([f"Results: {counts}."] if counts else [])])

    def table(self, most: int | None = None) -> str:
        """Return a table of the results: the winner, its ties, the others by time, then the failures.

        Parameters
        ----------
        most
            How many rows to show; None: all.
        """
        from ostinato.tune.report.summary import table

        return table(self, most)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file: whole, or not at all.

        Parameters
        ----------
        path
            Where; the suffix says what: ``.json`` has everything, ``.csv`` one row per result, and ``.html`` is a page
            that opens without a network.

        Raises
        ------
        ValueError
            If the suffix is another.
        """
        from ostinato.view.svg import replacing

        write = writer(path)
        with replacing(path) as draft, open(draft, "w", encoding="utf-8", errors="backslashreplace", newline="") as out:
            write(self, out)


def writer(path: str | os.PathLike[str]) -> Callable[[Report, IO[str]], None]:
    """Return what writes a report to a file of this name."""
    suffix = Path(path).suffix.lower()
    writers = _writers()
    if suffix not in writers:
        raise ValueError(f"the suffix of a report's file must be one of {', '.join(writers)}, got {os.fspath(path)!r}")
    return writers[suffix]


def _writers() -> dict[str, Callable[[Report, IO[str]], None]]:
    from ostinato.tune.report.page import write_page
    from ostinato.tune.report.summary import write_csv, write_json

    return {".json": write_json, ".csv": write_csv, ".html": write_page}
