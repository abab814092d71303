"""What a search does, shown on a terminal while it goes on."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from ostinato.text import counted, duration, one_line, settings

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from ostinato.tune.candidate import Candidate
    from ostinato.tune.result import Result


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
        """The device begins `what`: a `Span.what`; `candidate` is None while a worker starts."""

    def idle(self, where: str) -> None:
        """A device or place in the compile pool has nothing to do."""

    def ended(self, result: Result, best: Result | None) -> None:
        """A candidate's op has a result, and `best` is the best one so far."""

    def note(self, text: str) -> None:
        """Something that whoever watches should know, such as a store that cannot be written."""

    def end(self, report: Any) -> None:
        """The search is over: called once for each `begin`.

        `report` is its `ostinato.Report`, or None if the search ended with an exception.
        """


def listener(progress: Progress | bool | None) -> Progress:
    """Return whom to tell: `progress` itself, nobody for False, by default a display if stderr is a terminal."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return Progress()
    if progress is None or progress is True:
        return Display()
    if missing := [name for name in vars(Progress) if name[0] != "_" and not callable(getattr(progress, name, None))]:
        raise TypeError(f"progress lacks {', '.join(missing)}: derive it from ostinato.tune.progress.Progress")
    return progress


_MOST_PLACES = 16
_REDRAWS = 4  # per second: drawing takes a core a millisecond or two, and candidates run on these cores


class Display(Progress):
    """Shows what runs where, what is waited for, and what is best so far.

    It is drawn by a thread of its own; what is told only replaces values here. rich takes 0.1 s to import, so that
    only a search with a display does.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True)
        self._live: Live | None = None

    def begin(self, op: str, total: int | None) -> None:
        from rich.live import Live

        self._op, self._total = one_line(op), total
        self._began = time.monotonic()
        self._tried: set[str] = set()
        self._statuses: Counter[str] = Counter()
        self._best: Result | None = None
        self._places: dict[str, tuple[str, Candidate | str]] = {}
        self._live = Live(
            get_renderable=self._drawn, console=self._console, refresh_per_second=_REDRAWS, transient=True
        )
        self._live.start()

    def waiting(self, device: str, holder: str) -> None:
        self._places[device] = ("waits", f"for {holder}")

    def building(self, slot: str, candidate: Candidate) -> None:
        self._places[slot] = ("build", candidate)

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        self._places[device] = (what, candidate or "")

    def idle(self, where: str) -> None:
        self._places[where] = ("idle", "")

    def ended(self, result: Result, best: Result | None) -> None:
        self._tried.add(result.candidate.id)
        self._statuses[result.status] += 1
        self._best = best

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(one_line(text)))

    def end(self, report: Any) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        lines = [self._summary(), self._lead()]
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column(no_wrap=True, overflow="ellipsis")
        places = sorted(list(self._places.items()))  # a list at once: the other thread adds to it
        for name, (what, candidate) in places[:_MOST_PLACES]:
            about = one_line(candidate) if isinstance(candidate, str) else settings(candidate.config)
            table.add_row(Text(one_line(name), "bold"), what, Text(about, "dim"))
        if len(places) > _MOST_PLACES:
            busy = sum(what not in ("idle", "waits") for _, (what, _) in places[_MOST_PLACES:])
            table.add_row("...", "", Text(f"{len(places) - _MOST_PLACES} more, {busy} of them busy", "dim"))
        return Group(*lines, table)

    def _summary(self) -> Text:
        from rich.text import Text

        of_all = counted(len(self._tried), "candidate") if self._total is None else f"{len(self._tried)}/{self._total}"
        statuses = ", ".join(f"{number} {status}" for status, number in list(self._statuses.items()))
        seconds = time.monotonic() - self._began
        return Text(f"{self._op}: {of_all}  {statuses}  {seconds:.0f} s", no_wrap=True, overflow="ellipsis")

    def _lead(self) -> Text:
        from rich.text import Text

        best = self._best
        if best is None or best.time_ns is None:
            return Text("nothing ok so far", "dim")
        found = f"best {duration(best.time_ns)}  {settings(best.candidate.config)}"
        return Text(found, "green", no_wrap=True, overflow="ellipsis")
