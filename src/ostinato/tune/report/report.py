"""What a search found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ostinato.text import counted
from ostinato.tune.candidate import Candidate
from ostinato.tune.policy import Policy
from ostinato.tune.progress import Progress
from ostinato.tune.result import Result, Span

__all__ = ["Report", "SoFar", "writer"]


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
    The winner is obj=xxxx: 1 us a call (1 sample).
    It is 1.5 times as fast as the default, obj=xxxxxx: 1.5 us; there are too few samples to say how sure that is.
    2 candidates in 0 ns.
    Results: 2 ok.
    >>> print(report.table())
             obj     status    time  x best  samples
    winner   xxxx    ok        1 us       1        1
    default  xxxxxx  ok      1.5 us     1.5        1
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
        from ostinato.view.trace import replacing

        write = writer(path)
        with replacing(path) as draft, open(draft, "w", encoding="utf-8", errors="backslashreplace", newline="") as out:
            write(self, out)


def writer(path: str | os.PathLike[str]) -> Callable[[Report, IO[str]], None]:
    """Return what writes a report to a file of this name.

    Raises
    ------
    ValueError
        If the suffix is not known.

    Examples
    --------
    >>> writer("report.csv").__name__
    'write_csv'
    """
    suffix = Path(path).suffix.lower()
    writers = _writers()
    if suffix not in writers:
        raise ValueError(f"the suffix of a report's file must be one of {', '.join(writers)}, got {os.fspath(path)!r}")
    return writers[suffix]


def _writers() -> dict[str, Callable[[Report, IO[str]], None]]:
    from ostinato.tune.report.page import write_page
    from ostinato.tune.report.summary import write_csv, write_json

    return {".json": write_json, ".csv": write_csv, ".html": write_page}


class SoFar(Progress):
    """Keeps the results of a search as they come, and tells another listener all that it is told.

    Parameters
    ----------
    listener
        The other one.

    Examples
    --------
    >>> import ostinato as ost
    >>> found = SoFar(Progress())
    >>> found.begin("dumps", 2)
    >>> candidate = ost.Candidate.call("json:dumps", {"obj": 1})
    >>> result = ost.Result(candidate=candidate, op="dumps", status=ost.Status.OK, time_ns=900.0)
    >>> found.ended(result, result)
    >>> found.report({}, ost.Policy()).best is result
    True
    """

    def __init__(self, listener: Progress) -> None:
        self._listener = listener
        self._op = ""
        self._began = time.monotonic()
        self._best: Result | None = None
        self._results: dict[tuple[str, str], Result] = {}

    def report(self, key: Mapping[str, Any], policy: Policy, default: Candidate | None = None) -> Report:
        """Return a report of the results so far: no final has been held, so the fastest one leads, without ties."""
        name = None if default is None else default.id
        return Report(
            op=self._op,
            key=dict(key),
            policy=policy,
            best=self._best,
            ties=() if self._best is None else (self._best,),
            results=tuple(self._results.values()),
            default=next((result for (candidate, _), result in self._results.items() if candidate == name), None),
            seconds=time.monotonic() - self._began,
        )

    def begin(self, op: str, total: int | None) -> None:
        self._op, self._began, self._best = op, time.monotonic(), None
        self._results.clear()
        self._listener.begin(op, total)

    def ended(self, result: Result, best: Result | None) -> None:
        self._results[result.candidate.id, result.op] = result
        self._best = best
        self._listener.ended(result, best)

    def waiting(self, device: str, holder: str) -> None:
        self._listener.waiting(device, holder)

    def building(self, slot: str, candidate: Candidate) -> None:
        self._listener.building(slot, candidate)

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        self._listener.running(device, candidate, what)

    def idle(self, where: str) -> None:
        self._listener.idle(where)

    def note(self, text: str) -> None:
        self._listener.note(text)

    def end(self, report: Report | None) -> None:
        self._listener.end(report)
