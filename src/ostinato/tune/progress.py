"""What a search tells while it goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.tune.candidate import Candidate
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result

__all__ = ["Progress", "listener"]


class Progress:
    """Is told what a search does; every method does nothing, so override those that you need.

    They are called in the thread that called `tune`, up to ten thousand times a second, and should return at once.

    Examples
    --------
    >>> from ostinato.tune.progress import Progress
    >>> class Count(Progress):
    ...     seen = 0
    ...
    ...     def ended(self, result, best):
    ...         self.seen += 1
    """

    def begin(self, op: str, total: int | None) -> None:
        """The search begins. `total`: number of candidates, None if nobody knows yet."""

    def waiting(self, device: str, holder: str) -> None:
        """The device is leased by somebody else: by `holder`."""

    def building(self, slot: str, candidate: Candidate) -> None:
        """A place in the compile pool, such as ``"build:0"``, begins to build a candidate."""

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        """The device begins `what`: a `Stretch.what`; `candidate` is None while a worker starts."""

    def idle(self, where: str) -> None:
        """A device or place in the compile pool has nothing to do."""

    def ended(self, result: Result, best: Result | None) -> None:
        """A candidate's op has a result, and `best` is the best one so far."""

    def note(self, text: str) -> None:
        """Something that whoever watches should know, such as a store that cannot be written."""

    def end(self, report: Report | None) -> None:
        """The search is over; `report` is None if it ended with an exception. Called once for each `begin`."""


def listener(progress: Progress | bool | None) -> Progress:
    """Return whom to tell: `progress` itself, nobody for False, by default a display if stderr is a terminal.

    Raises
    ------
    TypeError
        If `progress` lacks the methods of `Progress`.

    Examples
    --------
    >>> from ostinato.tune.progress import Progress, listener
    >>> type(listener(False)) is Progress
    True
    """
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return Progress()
    if progress is None or progress is True:
        from ostinato.view.tuning import Display

        return Display()
    if missing := [name for name in vars(Progress) if name[0] != "_" and not callable(getattr(progress, name, None))]:
        raise TypeError(f"progress lacks {', '.join(missing)}: derive it from ostinato.tune.progress.Progress")
    return progress
