"""What a profiler says in one run: results by op, in the order of its output."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from ostinato.one_line import one_line
from ostinato.tune.outcome import OpOutcome
from ostinato.tune.process.old_lines import BadLine, OldLine, OldLines, nameless, read_lines
from ostinato.tune.process.protocol import Reading
from ostinato.tune.status import Status

__all__ = ["Found", "Profile", "ProfileResult", "extract_profile_result", "left_out"]

_logger = logging.getLogger("ostinato.profiler_runner")
_MOST_LINES = 200_000  # so that who prints them without end takes no memory without end


class ProfileResult(NamedTuple):
    """What a profiler said of one op. Results order by duration: the least is the fastest; without one, the last.

    Attributes
    ----------
    op_config
        The op's name; empty if it has none.
    duration
        Milliseconds, as they were printed: of all the runs that the profiler makes, where it prints their sum. 0 if the
        profiler reports a workspace only.
    workspace
        Bytes.

    Examples
    --------
    >>> min(ProfileResult("tile_16", 0.5, 0), ProfileResult("tile_32", 0.25, 64)).op_config
    'tile_32'
    """

    op_config: str
    duration: float
    workspace: int

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) < _rank(other) if isinstance(other, ProfileResult) else NotImplemented

    def __le__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) <= _rank(other) if isinstance(other, ProfileResult) else NotImplemented

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) > _rank(other) if isinstance(other, ProfileResult) else NotImplemented

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return _rank(self) >= _rank(other) if isinstance(other, ProfileResult) else NotImplemented


Found = ProfileResult | list[ProfileResult] | None


def extract_profile_result(stdout: object, return_ops: Sequence[str] | None = None) -> tuple[Found, bool]:
    """Read what a profiler printed.

    A record ``OP:name,TIME:ms,WS:bytes`` counts, wherever it stands, if its time is positive and finite. Where nothing
    begins so, the least ``TIME:ms`` counts, wherever it is, with an empty name. A time of zero counts beside a
    workspace that is not zero: only the workspace is known.

    Parameters
    ----------
    stdout
        All that it printed; what is no `str` says nothing.
    return_ops
        Names of ops.

    Returns
    -------
    result
        The fastest; with `return_ops` every result of these ops, in the order of the output; None if there is none. A
        result without a name stands for the op, if `return_ops` is only one.
    failed
        Whether there is none.

    Examples
    --------
    >>> stdout = "OP:a,TIME:0.5,WS:16\\nOP:b,TIME:2.5e-1,WS:0\\nOP:c,TIME:nan,WS:0\\n"
    >>> extract_profile_result(stdout)
    (ProfileResult(op_config='b', duration=0.25, workspace=0), False)
    >>> extract_profile_result(stdout, return_ops=["a"])
    ([ProfileResult(op_config='a', duration=0.5, workspace=16)], False)
    >>> extract_profile_result(stdout, return_ops=["c"])
    (None, True)
    >>> extract_profile_result("TIME:0\\nWS:4096\\n")
    (ProfileResult(op_config='', duration=0.0, workspace=4096), False)
    """
    if not isinstance(stdout, str):
        return None, True
    good, bad = read_lines(stdout)
    result = _chosen(_results(good, bad, nameless(stdout)), return_ops)
    cut = [_said(line) for line in bad if not line.op]  # whose they were, nobody can see by what is missing
    if result is not None and cut:
        _logger.warning("%s", left_out(cut))
    return result, result is None


class Profile:
    """Reads what a command reports: by descriptor, or else as old lines.

    Attributes
    ----------
    bad
        What made no sense, or failed.
    """

    def __init__(self) -> None:
        self.bad: list[str] = []
        self._reading = Reading()
        self._old_lines = OldLines()
        self._lines: list[OldLine | BadLine] = []
        self._results: list[ProfileResult] = []

    @property
    def problem(self) -> str:
        return self._reading.problem or next(iter(self.bad), "")

    def reported(self, data: bytes) -> None:
        self._reading.reported(data)

    def printed(self, data: bytes) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines += self._old_lines.feed(data)

    def finish(self, died: tuple[Status, str] | None = None) -> tuple[OpOutcome, ...]:
        """Return what became of each op; of a command that died, nothing."""
        if died is not None:
            return ()
        ops = self._reading.finish()
        if ops:
            well = [op for op in ops if op.status is Status.OK]
            self._results = [ProfileResult(op.op, median(op.samples) * 1e-6, op.workspace) for op in well]
            self.bad = [f"{op.op}: {op.status}: {op.message}" for op in ops if op.status is not Status.OK]
            return ops
        self._lines += self._old_lines.rest()
        good = [line for line in self._lines if isinstance(line, OldLine)]
        bad = [line for line in self._lines if isinstance(line, BadLine)]
        self._results = _results(good, bad, self._old_lines.nameless())
        self.bad = list(map(_said, bad))
        return tuple(
            OpOutcome(op, Status.OK, (ms * 1e6,) if ms else (), workspace) for op, ms, workspace in self._results
        )

    def result(self, return_ops: Sequence[str] | None) -> Found:
        """Return what `extract_profile_result` does."""
        return _chosen(self._results, return_ops)

    @property
    def ops(self) -> list[str]:
        """The ops that there are results of."""
        return [result.op_config for result in self._results]


def _results(good: Iterable[OldLine], bad: Sequence[BadLine], alone: OldLine | None) -> list[ProfileResult]:
    results = [ProfileResult(*line) for line in good]
    return [ProfileResult(*alone)] if not results and not bad and alone is not None else results


def left_out(bad: Sequence[str]) -> str:
    """Say what was no result, in a line."""
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"left out: {one_line(bad[0])}{more}"


def _said(line: BadLine) -> str:
    return f"{line.op or line.text[:100]}: {line.reason}"


def _chosen(results: Sequence[ProfileResult], return_ops: Sequence[str] | None) -> Found:
    if return_ops is None:
        return min(results, default=None)
    names = {return_ops} if isinstance(return_ops, str) else set(return_ops)
    if len(names) == 1 and [result.op_config for result in results] == [""]:
        return list(results)
    return [result for result in results if result.op_config in names] or None


def _rank(result: ProfileResult) -> tuple[float, int, str]:
    return result.duration or math.inf, result.workspace, result.op_config
