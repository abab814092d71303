"""Runs with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.runtime.run import Run

__all__ = ["watched"]


def watched(run: Run, steps: int) -> int:
    """Show how far a run is until it has ended, and return the number of steps run.

    The calling thread watches, and workers do the steps.
    """
    from ostinato.view.progress import progress_bar

    with progress_bar(steps) as bar:
        try:
            while not run._core.wait(0.1):
                bar.update(run.steps_done)
        except KeyboardInterrupt:
            run.cancel()
            run._core.wait(-1.0)
            raise
        bar.update(run.steps_done)
    return run.result()
