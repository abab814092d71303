"""The progress bar of a long replay, shown on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Takes the number of steps done so far."""

    def update(self, steps_done: int) -> None: ...


class _Silent:
    def update(self, steps_done: int) -> None:
        """Show nothing: nobody is looking."""


@contextmanager
def progress_bar(total: int, label: str = "replay") -> Iterator[Progress]:
    """Show a bar of `total` steps on standard error while the block runs, when that is a terminal.

    >>> with progress_bar(1000) as bar:
    ...     bar.update(500)
    """
    if not sys.stderr.isatty():
        yield _Silent()
        return
    with _Bar(total, label) as bar:
        yield bar


class _Bar:
    """A thin cover over rich, which is imported here and not with ostinato: it takes a while."""

    def __init__(self, total: int, label: str) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("steps"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._row = self._bar.add_task(label, total=total)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def update(self, steps_done: int) -> None:
        self._bar.update(self._row, completed=steps_done)
