"""The picture of a prediction beside what was measured: the last steps of both, on one axis of time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ostinato.view.timeline import draw_below_each_other

if TYPE_CHECKING:
    from ostinato.view.trace import Trace

__all__ = ["draw"]


def draw(predicted: Trace, measured: Trace, path: str | os.PathLike[str], steps: int) -> None:
    """Draw the last `steps` steps as predicted, and below them as measured, into the file `path`."""
    draw_below_each_other({"predicted": predicted, "measured": measured}, path, steps)
