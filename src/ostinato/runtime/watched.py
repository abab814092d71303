"""Replays that are watched: with a progress bar, or a limit of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.runtime.run import Run

__all__ = ["watched"]

_INTERVAL = 0.1  # seconds between two looks at the progress


def watched(run: Run, steps: int, progress: bool, limit: float) -> int:
    """Wait for the end of a run and return the number of steps run.

    The calling thread watches, and workers do the steps.

    Parameters
    ----------
    progress
        Whether to show a progress bar.
    limit
        Seconds after which the run is cancelled; negative: never.

    Raises
    ------
    TimeoutError
        The run took longer, and was cancelled.
    """
    core = run._core
    try:
        ended = _watch(run, steps, limit) if progress else core.wait(limit)
        late = not ended and run.cancel()
        core.wait(-1.0)
    except BaseException:  # of a signal handler: Ctrl-C, as a rule
        run.cancel()
        _wait_for_cancelled(core)
        core.retrieve()
        raise
    if late and run.cancelled():
        raise TimeoutError(f"the run did not end within {limit} s and was cancelled after {run.steps_done} steps")
    return run.result()


def _wait_for_cancelled(core: _core.Run) -> None:
    """Wait for the end of a run; raise each further Ctrl-C inside its Python tasks that are running."""
    while True:
        try:
            core.wait(-1.0)
            return
        except KeyboardInterrupt:
            core.interrupt()


def _watch(run: Run, steps: int, limit: float) -> bool:
    """Show how far a run is until it ends or the limit is reached; return whether it has ended."""
    from ostinato.view.progress import progress_bar

    end = time.monotonic() + limit if limit >= 0 else float("inf")
    with progress_bar(steps) as bar:
        while not (ended := run._core.wait(max(0.0, min(_INTERVAL, end - time.monotonic())))):
            bar.update(run.steps_done)
            if time.monotonic() >= end:
                break
        bar.update(run.steps_done)
    return ended
