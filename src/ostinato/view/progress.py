"""The progress bar of a long replay, shown on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, label: str = "replay") -> Iterator[Callable[[int], None]]:
    """Show a bar of `total` steps on standard error while the block runs, when that is a terminal.

    The block gets a function that takes the number of steps done so far.

    >>> with progress_bar(1000) as show:
    ...     show(500)
    """
    if not sys.stderr.isatty():
        yield lambda steps_done: None
        return
    from rich import progress  # imported here and not with ostinato: it takes a while
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("steps"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(label, total=total)
        yield lambda steps_done: bar.update(row, completed=steps_done)
